"""A wrong value in the environment stops the start and names its variable."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from config.env import DEMO_DEFAULTS, Env, read_env, variable_of
from config.spelling import OTHERS

ROOT = Path(__file__).resolve().parents[2]
TEXTS = {".py", ".sh", ".yml", ".yaml", ".service", ".target", ".env", ".conf", ".example", ".md"}
MADE_UP = {"OFFPEAK_URL", "OFFPEAK_FEE_PPMM"}
"""Names that are no settings: another test makes one up, and a document misspells one."""


def test_nothing_set_gives_the_defaults() -> None:
    assert read_env({"PATH": "/bin", "HOME": "/root"}) == Env()


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("PORT", "eighty"),
        ("PORT", "-1"),
        ("PORT", "8000.0"),
        ("PORT", ""),
        ("PORT", "\N{SUPERSCRIPT TWO}"),
        ("PORT", "70000"),
        ("OFFPEAK_DEBUG", "yes"),
        ("OFFPEAK_DEMO", "true"),
        ("OFFPEAK_FEE_PPM", "1000001"),
        ("OFFPEAK_ROUND_SECONDS", "0"),
        ("OFFPEAK_USAGE_WINDOW_SECONDS", "7"),
        ("OFFPEAK_CURRENCY", "dollars"),
        ("OFFPEAK_BURST_CLOUD", "moon"),
        ("OFFPEAK_BURST_BUDGET", "much"),
        ("EVENTSTORE_URL", "sqlite"),
        ("DATABASE_URL", "mysql://localhost/x"),
        ("REDIS_URL", "localhost:6379"),
        # Set to nothing where something is needed: an unset variable of a unit file, mostly.
        ("OFFPEAK_HOME", ""),
        ("OFFPEAK_HOME", "  "),
        ("OFFPEAK_MARKET", ""),
        ("OFFPEAK_CURRENCY", ""),
        ("OFFPEAK_HOST", ""),
        ("OFFPEAK_DEMO", ""),
        ("OFFPEAK_FEE_PPM", ""),
        ("OFFPEAK_BURST_BUDGET", ""),
        ("OFFPEAK_BURST_CLOUD", ""),
        ("EVENTSTORE_URL", ""),
        # What a copied line brings along.
        ("DATABASE_URL", "postgresql://u@localhost/x\n"),
        ("OFFPEAK_CURRENCY", " EUR"),
        ("OFFPEAK_SECRET_KEY", "x" * 40 + "\n"),
        ("OFFPEAK_SECRET_KEY", "short"),
        # Addresses.
        ("OFFPEAK_HOST", "localhost:8000"),
        ("OFFPEAK_HOST", "http://localhost"),
        ("OFFPEAK_HOST", "10.0.0.256"),
        ("OFFPEAK_ALLOWED_HOSTS", "https://gpu.example"),
        ("OFFPEAK_ALLOWED_HOSTS", "gpu.example:443"),
        ("OFFPEAK_ALLOWED_HOSTS", "gpu.example/x"),
        ("OFFPEAK_ALLOWED_HOSTS", "gpu.example,*"),
        ("OFFPEAK_OIDC_ISSUER_URL", "id.example"),
        ("OFFPEAK_OIDC_ISSUER_URL", "https://id.example/?realm=x"),
        ("OFFPEAK_EC2_ENDPOINT_URL", "localhost:5000"),
        ("OFFPEAK_EC2_IMAGE_ID", "my-image"),
        ("OFFPEAK_EC2_REGION", "Frankfurt"),
    ],
)
def test_a_wrong_value_names_its_variable(variable: str, text: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        read_env({variable: text})

    assert str(stopped.value).startswith(f"{variable} must be "), stopped.value


def test_the_site_does_not_start_with_a_wrong_value() -> None:
    ended = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=ROOT,
        env={**os.environ, "PORT": "eighty"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode != 0
    assert ended.stderr.strip() == "PORT must be a whole number, not 'eighty'"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("OFFPEAK_BURST_BUGDET", "OFFPEAK_BURST_BUDGET"),
        ("OFFPEAK_FEE_PPMM", "OFFPEAK_FEE_PPM"),
        ("OFFPEAK_SERCET_KEY", "OFFPEAK_SECRET_KEY"),
        ("OFFPEAK_BASEURL", "OFFPEAK_BASE_URL"),
        ("OFFPEAK_DATABASE_URL", "DATABASE_URL"),
        ("OFFPEAK_PORT", "PORT"),
        ("OFFPEAK_AGENT_TOKN", "OFFPEAK_AGENT_TOKEN"),
        ("offpeak_home", "OFFPEAK_HOME"),
        ("OFFPEAK-HOME", "OFFPEAK_HOME"),
        ("OFFPEAKHOME", "OFFPEAK_HOME"),
        ("OFPEAK_BASE_URL", "OFFPEAK_BASE_URL"),
        ("DATABASE_ULR", "DATABASE_URL"),
        ("DATABASE_URI", "DATABASE_URL"),
        ("REDIS_URI", "REDIS_URL"),
    ],
)
def test_a_name_that_nobody_reads_is_told_with_the_nearest_one(name: str, meant: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        read_env({name: "5"})

    assert str(stopped.value) == f"{name} is not a setting; did you mean {meant}?"


@pytest.mark.parametrize("name", ["OFFPEAK_LEASE_MAX_SECONDS", "OFFPEAK_", "OFFPEAK", "OFFPEAK_ZZ"])
def test_a_name_like_no_other_is_refused_too(name: str) -> None:
    with pytest.raises(SystemExit, match=re.escape(f"{name} is not a setting")):
        read_env({name: "60"})


@pytest.mark.parametrize(
    "name",
    ["PATH", "HOME", "LANG", "POST", "HOSTNAME", "DATABASE_URL_OLD", "REDIS_HOST", "database_uri"],
)
def test_what_others_read_is_no_mistake(name: str) -> None:
    assert read_env({name: "x"}) == Env()


def test_a_name_like_ours_is_left_to_others_where_ours_is_set() -> None:
    ours = {"DATABASE_URL": "postgresql://localhost/x"}

    assert read_env({**ours, "DATABASE_URI": "y"}) == read_env(ours)


@pytest.mark.parametrize("name", ["OFFPEAK_SERVER", "OFFPEAK_TOKEN", "OFFPEAK_AGENT_TOKEN"])
def test_the_clients_and_the_agents_own_names_are_known(name: str) -> None:
    assert read_env({name: "x"}) == Env()


def test_every_name_that_the_project_uses_is_known() -> None:
    """A name that only the agent, the client, a unit or a test reads belongs into OTHERS."""
    known = {variable_of(name) for name in Env.__dataclass_fields__} | OTHERS
    used = set()
    for path in tracked():
        if path.suffix in TEXTS or path.name == "Makefile":
            used |= set(re.findall(r"\bOFFPEAK_[A-Z0-9]+(?:_[A-Z0-9]+)*\b", path.read_text()))

    assert used - known - MADE_UP == set()


def tracked() -> list[Path]:
    command = ["git", "ls-files", "-z", "--", ".", ":!tests/config/test_env.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("command", ["check", "web", "doctor", "up"])
def test_no_command_starts_with_a_misspelt_setting(command: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "manage.py", command],
        cwd=ROOT,
        env={**os.environ, "OFFPEAK_HOME": str(tmp_path), "OFFPEAK_FEE_PPMM": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 1
    assert (
        ended.stderr.strip() == "OFFPEAK_FEE_PPMM is not a setting; did you mean OFFPEAK_FEE_PPM?"
    )
    assert list(tmp_path.iterdir()) == []


ISSUER = {"OFFPEAK_OIDC_ISSUER_URL": "https://id.example"}
EC2 = {"OFFPEAK_BURST_CLOUD": "ec2"}
IMAGE = {"OFFPEAK_EC2_IMAGE_ID": "ami-00000000"}


@pytest.mark.parametrize(
    ("environ", "lacking"),
    [
        (ISSUER, "OFFPEAK_OIDC_CLIENT_ID and OFFPEAK_OIDC_CLIENT_SECRET"),
        ({**ISSUER, "OFFPEAK_OIDC_CLIENT_ID": "a"}, "OFFPEAK_OIDC_CLIENT_SECRET"),
        ({"OFFPEAK_OIDC_CLIENT_SECRET": "s"}, "OFFPEAK_OIDC_ISSUER_URL"),
        (EC2, "OFFPEAK_EC2_IMAGE_ID"),
        ({**EC2, **IMAGE}, "OFFPEAK_BASE_URL"),
    ],
)
def test_what_cannot_work_together_is_refused(environ: dict[str, str], lacking: str) -> None:
    with pytest.raises(SystemExit, match=f"needs .*{lacking}"):
        read_env(environ)


def test_a_private_cloud_may_reach_a_market_on_loopback() -> None:
    env = read_env({**EC2, **IMAGE, "OFFPEAK_EC2_ENDPOINT_URL": "http://127.0.0.1:5000/"})

    assert env.ec2_endpoint_url == "http://127.0.0.1:5000"


def test_empty_is_taken_for_unset_where_nothing_is_the_default() -> None:
    empty = dict.fromkeys(("DATABASE_URL", "REDIS_URL", "OFFPEAK_BASE_URL"), "")

    assert read_env(empty) == Env()


def test_to_trust_no_proxy_is_a_choice() -> None:
    assert read_env({"OFFPEAK_TRUSTED_PROXIES": ""}).trusted_proxies == ""


def test_a_demo_is_quick_unless_told_otherwise() -> None:
    env = read_env({"OFFPEAK_DEMO": "1", "OFFPEAK_ROUND_SECONDS": "45"})

    assert env.demo
    assert env.round_seconds == 45
    assert env.usage_window_seconds == DEMO_DEFAULTS["usage_window_seconds"]


def test_every_field_has_a_variable_of_its_own() -> None:
    names = [variable_of(name) for name in Env.__dataclass_fields__]

    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("given", "lacking"),
    [
        ({"OFFPEAK_MAIL_HOST": "m.example"}, "OFFPEAK_MAIL_FROM"),
        ({"OFFPEAK_STRIPE_KEY": "sk_test_1"}, "OFFPEAK_STRIPE_WEBHOOK_SECRET"),
        ({"OFFPEAK_STRIPE_WEBHOOK_SECRET": "whsec_1"}, "OFFPEAK_STRIPE_KEY"),
        ({"OFFPEAK_MAIL_FROM": "a@m.example"}, "OFFPEAK_MAIL_HOST"),
        (
            {
                "OFFPEAK_MAIL_HOST": "m.example",
                "OFFPEAK_MAIL_FROM": "a@m.example",
                "OFFPEAK_MAIL_USER": "u",
            },
            "OFFPEAK_MAIL_PASSWORD",
        ),
        (
            {
                "OFFPEAK_MAIL_HOST": "m.example",
                "OFFPEAK_MAIL_FROM": "a@m.example",
                "OFFPEAK_MAIL_PASSWORD": "p",
            },
            "OFFPEAK_MAIL_USER",
        ),
    ],
)
def test_half_a_mail_server_stops_the_start_and_names_the_other_half(
    given: dict[str, str], lacking: str
) -> None:
    with pytest.raises(SystemExit, match=f"needs {lacking} beside it"):
        read_env(given)


def test_a_mail_server_needs_nobody_that_it_knows_us_as() -> None:
    env = read_env({"OFFPEAK_MAIL_HOST": "m.example", "OFFPEAK_MAIL_FROM": "a@m.example"})

    assert (env.mail_host, env.mail_user, env.mail_security) == ("m.example", "", "starttls")


@pytest.mark.parametrize("variable", ["PORT", "OFFPEAK_FEE_PPM"])
@pytest.mark.parametrize("text", ["9" * 5_000, "0" * 5_000 + "1"])
def test_a_number_of_thousands_of_digits_is_refused_in_a_short_sentence(
    variable: str, text: str
) -> None:
    with pytest.raises(SystemExit, match=f"{variable} must be between") as refused:
        read_env({variable: text})
    assert len(str(refused.value)) < 200
