"""Every environment variable the server reads, with its type, unit and default."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from urllib.parse import parse_qsl, unquote, urlsplit

from config import address
from config.spelling import misspelt
from ledger.domain.redaction import HIDDEN, is_secret_name, redact

PLAIN_NAMES = {
    "database_url": "DATABASE_URL",
    "redis_url": "REDIS_URL",
    "eventstore_url": "EVENTSTORE_URL",
    "port": "PORT",
}
"""Variables that go by the name everybody knows; the others are OFFPEAK_<FIELD>."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Env:
    """Read once at start. A wrong value stops the start with the variable's name."""

    home: str = "var"
    """Data directory: the embedded database, generated keys, agents' spools, logs."""
    database_url: str = ""
    """postgresql://user:password@host:port/name?sslmode=…, as libpq reads it: with several hosts,
    sockets, services and all its parameters. Empty: the embedded server under `home`."""
    database_connect_seconds: int = 3
    """How long a connection to the database may take to come about; `connect_timeout` in
    `database_url` goes before it."""
    database_statement_seconds: int = 15
    """How long a page or a request waits for the database before it answers 503; loops wait four
    times as long. A `statement_timeout` of the role or in `database_url` goes before it."""
    eventstore_url: str = "postgres"
    """Where facts are kept: `postgres` (the Django database), `memory`, or an esdb:// address."""
    redis_url: str = ""
    """redis://host:port/0 lets several web processes share sockets; empty: one process."""
    secret_key: str = ""
    """Signs sessions and the tokens of rented machines; empty: made once and kept in `home`.
    Processes on several machines need the same: `openssl rand -base64 48` makes one."""
    work_secret_key: str = ""
    """Wraps the values of work's secrets; empty: made once and kept in `home`. Processes on several
    machines need the same. Without it no such value can be opened: keep a copy, apart from the
    database's."""
    old_work_secret_key: str = ""
    """The one before, which opens what `manage.py rekey` has not wrapped anew yet."""
    debug: bool = False
    """Shows errors with their inside, and logs more. Never where others can reach it."""
    demo: bool = False
    """Shows one-click log-ins and the gallery. Refused on a public address."""
    base_url: str = ""
    """How people reach the site, such as https://gpu.example: a host name of its own, a port where
    it is none of the usual ones, no path. It sets the host name, the origin, the cookies and the
    links of a site behind a proxy; empty: http on loopback, with relaxed cookies."""
    allowed_hosts: str = ""
    """More host names that the site answers to, separated by commas, beside that of `base_url`,
    `host` and this machine's own. None is needed for health checks."""
    trusted_proxies: str = "127.0.0.1,::1"
    """Addresses and networks of proxies whose word on the client's address (X-Forwarded-For) is
    believed, such as 10.0.0.5,192.168.7.0/24. Empty: nobody's."""
    watchers: str = "127.0.0.1,::1"
    """Addresses and networks that may read /metrics, and in /readyz why the site is not ready."""
    second_factor_roles: str = ""
    """Roles of use only to people with a second factor, such as operator,finance; empty: none."""
    host: str = "127.0.0.1"
    """Address to serve on; 0.0.0.0 or [::] are all of this machine."""
    port: int = 8000
    """Port to serve on."""
    market: str = "main"
    """Name of the market (site or region) that has all regions which `markets` leaves."""
    markets: str = ""
    """Markets beside it and the regions each covers, `eu=eu;us=us-east,us-west`: an engine each."""
    currency: str = "USD"
    """Currency of this installation's prices, ISO 4217."""
    fee_ppm: int = 50_000
    """The platform's share of a charge, in millionths: 50 000 is five per cent."""
    round_seconds: int = 60
    """Time between clearing rounds for patient bids."""
    kernels: str = ""
    """Where compiled kernels are (`manage.py compile` makes them); empty: `home`/kernels."""
    usage_window_seconds: int = 3_600
    """Length of a usage window: what is rated and captured at once. Divides an hour."""
    meter_grace_seconds: int = 86_400
    """How long after a lease's end its last usage is waited for before the meter is closed."""
    start_grace_seconds: int = 600
    """How long a scheduled lease may take to start on its host before it fails."""
    host_gone_seconds: int = 1_800
    """How long a host may be silent before its leases end, as its fault; outages of the platform do
    not count. At least five polls of an agent, and 15 s."""
    burst_wait_seconds: int = 900
    """How long a bid with burst allowed waits for local supply before bursting looks at it."""
    burst_cloud: str = "none"
    """`none`, `fake` (in memory, for the demo), or `ec2`."""
    burst_budget: str = "1000"
    """Most that all burst instances of a calendar month may cost, in units of `currency`."""
    burst_idle_seconds: int = 900
    """How long a rented instance may be listed without a lease before it is given back."""
    burst_drain_seconds: int = 60
    """How long a rented instance stays after its lease, so that its agent can tell the last use."""
    burst_home: str = "on"
    """Whether work in a cloud moves home where that is cheaper: `on` or `off`."""
    burst_home_margin_percent: int = 10
    """So much of what the rest of its lease costs in the cloud a move has to save at least."""
    burst_home_lead_seconds: int = 180
    """From the decision to the move: the work saves itself meanwhile."""
    burst_home_move_seconds: int = 300
    """What a move is taken to cost of the work's time: to stop, to be fetched and to start."""
    burst_home_again_seconds: int = 900
    """So long after its start in the cloud, and after each try, work is left where it is."""
    burst_egress_price: str = "0.09"
    """What a cloud takes for a GiB that leaves it, in units of `currency`."""
    burst_driver: str = ""
    """The NVIDIA driver in their image, such as 580.65; empty: bids that ask for one wait here."""
    ec2_image_id: str = ""
    """The machine image that EC2 instances start from, ami-…; it must hold the NVIDIA driver."""
    ec2_boot_script: str = (
        "exec offpeak-agent run --server $OFFPEAK_SERVER --work-users 300000-300031"
    )
    """Shell lines that start the agent on an EC2 instance; the token is in its environment."""
    ec2_endpoint_url: str = ""
    """Another address for EC2's API: a private cloud, or a test server."""
    ec2_region: str = "us-east-1"
    """Region in which EC2 instances are rented."""
    storage: str = "folder"
    """Where files of leased work are kept: `folder` (below `home`, sent through the web process) or
    `s3` (a bucket of Amazon S3 or of what speaks its API, straight from and to clients). Web
    processes on several machines need `s3`, or one folder that all of them share."""
    storage_bucket: str = ""
    """The bucket, which must be there; keys, to list, read, write, delete, as boto3 finds them."""
    storage_endpoint_url: str = ""
    """Another address for S3's API, as clients and agents reach it too: a storage of your own."""
    storage_region: str = "us-east-1"
    """Region of the bucket."""
    exports_to: str = ""
    """Exports of closed months go there: a folder `/…` or `s3://bucket/prefix`; empty: nowhere."""
    exports_formats: str = "focus,gl,beancount"
    """Which forms of them, separated by commas."""
    files_gib_max: int = 100
    """How many GiB of files each organisation may keep."""
    volumes_gib_max: int = 100
    """How many GiB all volumes of an organisation may have together, beside its files."""
    volume_price: str = "0.05"
    """What a GiB in a volume costs for a month of 730 hours, as of when it was last extended."""
    payout_schedule: str = "weekly"
    """How often owners are paid, unless they chose otherwise: `weekly`, `monthly` or `manual`."""
    payout_minimum: str = "10"
    """From how much on owners are paid by the schedule, in units of `currency`; less is carried."""
    payout_held_days: int = 7
    """Of what was earned in so many days before a cut-off, a part is held back for corrections."""
    payout_held_percent: int = 10
    """How much of it: 100 holds all of those days back."""
    payout_alone_max: str = "1000"
    """Up to so much one person approves a payout; above it takes two. In units of `currency`."""
    payout_details_wait_seconds: int = 259_200
    """How long another bank account of an owner waits before it may be confirmed."""
    payout_name: str = ""
    """Whose bank account owners are paid from, as the bank knows it."""
    payout_iban: str = ""
    """Its IBAN. Empty: bank files are written as CSV only."""
    payout_bic: str = ""
    """The BIC of its bank; may be empty."""
    samples_kept_days: int = 62
    """For how many days what agents measured is kept sample by sample; sums are kept for good."""
    meters_differ_percent: int = 2
    """So much more than the work's heartbeat an owner's meter may say; else it is contested."""
    meters_differ_seconds: int = 60
    """The same as a time for each GPU: what differs by more than both is contested."""
    logs_kept_days: int = 30
    """For how many days the logs of leased work are kept after their end."""
    agent_sample_seconds: int = 5
    """How often agents sample their GPUs."""
    agent_poll_seconds: int = 2
    """How often agents ask what to run."""
    access_idle_seconds: int = 1_800
    """How long a connection into leased work may carry nothing before it is closed."""
    access_address: str = ""
    """Where other web processes reach this one, such as http://10.0.0.5:8000: a connection comes
    to any of them, and the tunnel of a host ends at one. Empty: on this machine."""
    work_domain: str = ""
    """The domain below which ports of leased work are opened in a browser, such as work.example:
    each has a name of its own there. A domain that is for nothing else: see the chapter *Into
    running work*. Empty: ports are reached by `offpeak port-forward` alone."""
    oidc_issuer_url: str = ""
    """OpenID Connect issuer for single sign-on, as its discovery document names it; or empty."""
    oidc_client_id: str = ""
    """What the issuer knows this installation as."""
    oidc_client_secret: str = ""
    """What this installation proves itself to the issuer with."""
    mail_host: str = ""
    """The mail server (SMTP) that sends invitations and links for new passwords. Empty: none, and
    an invitation's link is shown to its maker, who passes it on."""
    mail_port: int = 587
    """Port of the mail server."""
    mail_security: str = "starttls"
    """How mail travels to the server: `starttls`, `tls` from the first byte on, or `none`."""
    mail_user: str = ""
    """Whom the mail server knows us as; empty: it asks for nobody."""
    mail_password: str = ""
    """What we prove ourselves to the mail server with."""
    mail_from: str = ""
    """The address that mail comes from, such as offpeak@gpu.example."""
    webhooks: str = "public"
    """Where webhooks may lead: `public`, to public addresses by https; `private`, also into this
    market's own network, by http too. Never to link-local addresses, where clouds keep keys."""
    stripe_key: str = ""
    """A secret or restricted key of Stripe, sk_… or rk_…, by which wallets are topped up with
    cards. Empty: none are; wallets are topped up by hand, cost centres billed inside."""
    stripe_webhook_secret: str = ""
    """What Stripe signs its notices with, whsec_…: of the endpoint `/webhooks/stripe`."""
    stripe_connect_webhook_secret: str = ""
    """The same of its second endpoint there, for events of connected accounts; may be empty."""
    stripe_url: str = ""
    """Another address for Stripe's API: a test server."""
    throttle_per_minute: int = 1_200
    """API requests a token may make in a minute."""
    request_bytes_max: int = 2_097_152
    """Largest request body that is read."""

    def __repr__(self) -> str:
        """Name what is set, for a page or a log about a failure: no secret is among it."""
        shown = (_shown(each.name, getattr(self, each.name)) for each in fields(self))
        return f"Env({', '.join(shown)})"


def _shown(name: str, value: object) -> str:
    return f"{name}={HIDDEN if value and is_secret_name(name) else redact(repr(value))}"


def secrets_of(env: Env) -> Iterator[str]:
    """Return every secret that is set: what no log may hold, in whatever words it is quoted."""
    for each in fields(env):
        value = getattr(env, each.name)
        if not value or not isinstance(value, str):
            continue
        if is_secret_name(each.name):
            yield value
        elif each.name.endswith("_url"):
            yield from _secrets_of_address(value)


def _secrets_of_address(address: str) -> Iterator[str]:
    try:
        parts = urlsplit(address)
        password = parts.password
    except ValueError:
        return
    if password:
        yield from {password, unquote(password)}
    for name, value in parse_qsl(parts.query):
        if is_secret_name(name):
            yield value


DEMO_DEFAULTS: Mapping[str, object] = {
    "burst_cloud": "fake",
    "burst_driver": "580.82.07",
    "burst_wait_seconds": 15,
    "burst_idle_seconds": 120,
    "burst_home_lead_seconds": 30,
    "burst_home_move_seconds": 30,
    "burst_home_again_seconds": 60,
    "round_seconds": 10,
    "usage_window_seconds": 60,
    "meter_grace_seconds": 120,
    "start_grace_seconds": 60,
    "host_gone_seconds": 300,
    "agent_sample_seconds": 2,
    "agent_poll_seconds": 1,
    "work_domain": "localhost",
}
"""What a demo is set to unless told otherwise: an afternoon's events in a few minutes."""


FORMS: Mapping[str, tuple[str, str]] = {
    "mail_security": ("starttls|tls|none", "starttls, tls or none"),
    "mail_from": (r"[^@\s<>,]+@[^@\s<>,]+", "an address, such as offpeak@gpu.example"),
    "webhooks": ("public|private", "public or private"),
    "currency": ("[A-Z]{3}", "a currency's three letters, such as USD"),
    "burst_cloud": ("none|fake|ec2", "none, fake or ec2"),
    "burst_home": ("on|off", "on or off"),
    "burst_egress_price": (r"[0-9]{1,4}(\.[0-9]{1,9})?", "an amount, such as 0.09"),
    "burst_driver": (r"[1-9][0-9]{1,3}(\.[0-9]{1,4}){0,2}", "a driver's version, such as 580.65"),
    "payout_schedule": ("weekly|monthly|manual", "weekly, monthly or manual"),
    "payout_minimum": (r"[0-9]{1,9}(\.[0-9]{1,9})?", "an amount, such as 10"),
    "payout_alone_max": (r"[0-9]{1,9}(\.[0-9]{1,9})?", "an amount, such as 1000"),
    "payout_iban": ("[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}", "an IBAN without blanks"),
    "payout_bic": ("[A-Z]{6}[A-Z0-9]{2}([A-Z0-9]{3})?", "a BIC, such as DEUTDEFF"),
    "volume_price": (r"[0-9]{1,4}(\.[0-9]{1,9})?", "an amount, such as 0.05"),
    "burst_budget": (r"[0-9]{1,9}(\.[0-9]{1,9})?", "an amount, such as 1000"),
    "eventstore_url": ("postgres|memory|esdb(\\+discover)?://.+", "postgres, memory or esdb://…"),
    "database_url": ("(postgresql|postgres)://.+", "postgresql://user:password@host:port/name"),
    "redis_url": ("(redis|rediss|unix)://.+", "redis://host:port/0"),
    "secret_key": (r"(?s).{32,}", "at least 32 characters"),
    "work_secret_key": (r"(?s).{32,}", "at least 32 characters"),
    "old_work_secret_key": (r"(?s).{32,}", "at least 32 characters"),
    "storage": ("folder|s3", "folder or s3"),
    "storage_bucket": (r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]", "a bucket's name"),
    "storage_region": ("[a-z]+(-[a-z0-9]+)*", "a region's name, such as us-east-1"),
    "stripe_key": (r"(sk|rk)_(live|test)_\w+", "a secret or restricted key, sk_… or rk_…"),
    "stripe_webhook_secret": (r"whsec_\S+", "a signing secret, whsec_…"),
    "stripe_connect_webhook_secret": (r"whsec_\S+", "a signing secret, whsec_…"),
    "ec2_image_id": ("ami-[0-9a-f]{8,17}", "a machine image's id, ami- and 8 to 17 digits"),
    "ec2_region": ("[a-z]+(-[a-z]+)+-[0-9]{1,2}", "a region's name, such as us-east-1"),
}
"""What a text must look like where it is not empty. Some hold a password: none is shown."""

BOUNDS: Mapping[str, tuple[int, int]] = {
    "port": (1, 65_535),
    "fee_ppm": (0, 1_000_000),
    "round_seconds": (1, 86_400),
    "database_connect_seconds": (2, 60),
    "database_statement_seconds": (1, 3_600),
    "host_gone_seconds": (15, 604_800),
    "burst_home_margin_percent": (0, 100),
    "burst_home_lead_seconds": (5, 3_600),
    "burst_home_move_seconds": (0, 86_400),
    "burst_home_again_seconds": (5, 604_800),
    "agent_sample_seconds": (1, 3_600),
    "agent_poll_seconds": (1, 3_600),
    "access_idle_seconds": (1, 86_400),
    "throttle_per_minute": (1, 10**9),
    "files_gib_max": (0, 2**20),
    "volumes_gib_max": (0, 2**20),
    "payout_held_days": (0, 366),
    "payout_held_percent": (0, 100),
    "payout_details_wait_seconds": (0, 2_592_000),
    "samples_kept_days": (37, 3_650),
    "meters_differ_percent": (0, 100),
    "meters_differ_seconds": (0, 86_400),
    "logs_kept_days": (1, 3_650),
    "request_bytes_max": (1_024, 2**30),
}
"""Least and most of a number; others may be anything from 0 on."""

READERS: Mapping[str, Callable[[str], str]] = {
    "base_url": address.read_base_url,
    "oidc_issuer_url": address.read_service_url,
    "ec2_endpoint_url": address.read_service_url,
    "storage_endpoint_url": address.read_service_url,
    "stripe_url": address.read_service_url,
    "access_address": address.read_service_url,
    "work_domain": address.read_host,
    "host": lambda text: address.read_host(text).strip("[]"),
    "allowed_hosts": lambda text: ",".join(address.read_host_names(text)),
}
"""How an address is read, so that one that is written in another way is the same."""

EMPTY_MEANS = frozenset({"trusted_proxies"})
"""Texts for which empty is a choice of its own, and not the default."""
MANY_LINES = frozenset({"ec2_boot_script"})
"""Texts that may end with a line end."""

SECONDS_PER_HOUR = 3_600
SAID_MAX = 40
"""Characters of a wrong value that are quoted."""


def variable_of(field: str) -> str:
    """Return the environment variable that sets a field."""
    return PLAIN_NAMES.get(field, f"OFFPEAK_{field.upper()}")


def read_env(environ: Mapping[str, str]) -> Env:
    """Parse `environ`; a value or a name that is not right stops the server and is named."""
    if said := misspelt(environ, {variable_of(field.name) for field in fields(Env)}):
        raise SystemExit(said)
    given: dict[str, object] = {}
    if environ.get("OFFPEAK_DEMO") == "1":
        given.update(DEMO_DEFAULTS)
    for field in fields(Env):
        variable = variable_of(field.name)
        if variable in environ:
            given[field.name] = _parse(
                field.name, str(field.type), environ[variable], default=field.default
            )
    env = Env(**given)  # type: ignore[arg-type]  # _parse has checked each field's type
    _check_together(env)
    return env


def _parse(name: str, kind: str, text: str, *, default: object) -> object:
    variable = variable_of(name)
    if kind == "bool":
        if text not in ("0", "1"):
            raise SystemExit(f"{variable} must be 0 or 1, not {text!r}")
        return text == "1"
    if kind == "int":
        return _number(name, variable, text)
    if not text.strip():
        if text or (default and name not in EMPTY_MEANS):
            raise SystemExit(f"{variable} must be set to something, or not at all")
        return ""
    if text != text.strip() and name not in MANY_LINES:
        raise SystemExit(f"{variable} must be without blanks and line ends around it")
    form, wanted = FORMS.get(name, ("", ""))
    if form and not re.fullmatch(form, text):
        raise SystemExit(f"{variable} must be {wanted}")
    try:
        return READERS[name](text) if name in READERS else text
    except address.AddressUnclear as unclear:
        raise SystemExit(f"{variable} must be {unclear}") from None


def _check_together(env: Env) -> None:
    """Refuse values that are right each, and together cannot work."""
    single_sign_on = ("oidc_issuer_url", "oidc_client_id", "oidc_client_secret")
    given = [name for name in single_sign_on if getattr(env, name)]
    if given and len(given) < len(single_sign_on):
        lacking = " and ".join(variable_of(n) for n in single_sign_on if n not in given)
        raise SystemExit(f"{variable_of(given[0])} needs {lacking} beside it")
    if bool(env.mail_host) != bool(env.mail_from):
        given_one, lacking_one = ("mail_host", "mail_from")[:: 1 if env.mail_host else -1]
        raise SystemExit(f"{variable_of(given_one)} needs {variable_of(lacking_one)} beside it")
    if bool(env.mail_user) != bool(env.mail_password):
        given_one, lacking_one = ("mail_user", "mail_password")[:: 1 if env.mail_user else -1]
        raise SystemExit(f"{variable_of(given_one)} needs {variable_of(lacking_one)} beside it")
    if bool(env.stripe_key) != bool(env.stripe_webhook_secret):
        pair = ("stripe_key", "stripe_webhook_secret")
        given_one, lacking_one = pair if env.stripe_key else pair[::-1]
        raise SystemExit(f"{variable_of(given_one)} needs {variable_of(lacking_one)} beside it")
    if env.old_work_secret_key and not env.work_secret_key:
        raise SystemExit("OFFPEAK_OLD_WORK_SECRET_KEY needs OFFPEAK_WORK_SECRET_KEY beside it")
    if env.storage == "s3" and not env.storage_bucket:
        raise SystemExit("OFFPEAK_STORAGE=s3 needs OFFPEAK_STORAGE_BUCKET beside it")
    if said := address.work_domain_fault(env.work_domain, env.base_url):
        raise SystemExit(f"OFFPEAK_WORK_DOMAIN must be {said}")
    if env.burst_cloud == "ec2":
        if not env.ec2_image_id:
            raise SystemExit("OFFPEAK_BURST_CLOUD=ec2 needs OFFPEAK_EC2_IMAGE_ID beside it")
        if not env.base_url and not env.ec2_endpoint_url:
            raise SystemExit(
                "OFFPEAK_BURST_CLOUD=ec2 needs OFFPEAK_BASE_URL: rented machines report there"
            )


def _number(name: str, variable: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise SystemExit(f"{variable} must be a whole number, not {text[:SAID_MAX]!r}")
    low, high = BOUNDS.get(name, (0, 2**31 - 1))
    # Longer than any bound, whatever its zeros: `int` itself refuses thousands of digits.
    if len(text) > SAID_MAX or not low <= int(text) <= high:
        raise SystemExit(f"{variable} must be between {low} and {high}, not {text[:SAID_MAX]!r}")
    number = int(text)
    if name == "usage_window_seconds" and (not number or SECONDS_PER_HOUR % number):
        raise SystemExit(f"{variable} must be a divisor of {SECONDS_PER_HOUR}, not {text!r}")
    return number
