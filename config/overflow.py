"""What bursting works with here: the cloud that is configured, its rules, its machines' tokens."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from uuid import UUID, uuid5

from django.conf import settings

from bursting import reaper
from bursting.clouds.fake import FakeCloud, catalogue_of
from bursting.clouds.port import CloudProvider
from bursting.clouds.prices import read_price_list
from bursting.commands.spilling import Overflow
from bursting.domain.events import BurstLost, BurstRefused, BurstTerminated, InstanceId
from bursting.domain.home_moves import HomeRules
from bursting.domain.instances import FINAL, BurstInstance, host_of
from bursting.domain.spill import SpillRules
from bursting.homecoming import Homecoming
from bursting.loops import Overflowing
from bursting.models import BurstInstanceRow
from config.address import address_on_this_machine
from config.env import Env
from config.processes.loops import Loop
from ledger.commands.tokens import issue_host_token, revoke_token
from ledger.domain import tokens
from ledger.domain.ids import HostId, TokenId
from ledger.domain.money import Money, nanos_of
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.tokens import Token
from ledger.eventstore.port import EventStore, Meta, Recorded, load
from ledger.following import Policy, names_of
from ledger.models import TokenRow
from listings.domain.events import HostRegistered

TOKEN_SPARE = timedelta(hours=1)
"""How long after a machine's own timer its agent's token still works at most."""
SWEEP_MAX = 1_000
SWEEP = Meta(actor="loop:burst-tokens")
DEMO_REGION, DEMO_ZONE = "cloud", "cloud-a"


def overflow_of(env: Env) -> Overflow:
    """Return the cloud that `burst_cloud` names, and how it may be used."""
    clouds: dict[str, CloudProvider] = {}
    match env.burst_cloud:
        case "fake":
            clouds["fake"] = _fake()
        case "ec2":
            # Amazon's client is a sixteenth of what a process imports; most markets rent nothing.
            from bursting.clouds.ec2 import Ec2Cloud, Ec2Settings

            clouds["ec2"] = Ec2Cloud(
                Ec2Settings(
                    image_id=env.ec2_image_id,
                    region=env.ec2_region,
                    endpoint_url=env.ec2_endpoint_url or None,
                    boot_script=env.ec2_boot_script,
                )
            )
        case other:
            raise SystemExit(f"OFFPEAK_BURST_CLOUD must be none, fake or ec2, not {other!r}")
    return Overflow(
        clouds=clouds,
        rules=SpillRules(
            wait_seconds=env.burst_wait_seconds,
            idle_seconds_max=env.burst_idle_seconds,
            drain_seconds=env.burst_drain_seconds,
            driver=env.burst_driver,
        ),
        owner_id=PLATFORM_ID,
        budget=Money(nanos_of(env.burst_budget), env.currency),
        environment_of=lambda instance_id: environment_of(env, instance_id),
        home=HomeRules(
            is_on=env.burst_home == "on",
            margin_ppm=env.burst_home_margin_percent * 10_000,
            lead_seconds=env.burst_home_lead_seconds,
            move_seconds=env.burst_home_move_seconds,
            again_seconds=env.burst_home_again_seconds,
            egress_nanos_per_gib=nanos_of(env.burst_egress_price),
        ),
    )


def overflow_loops(env: Env) -> tuple[Loop, ...]:
    """Return what rents, brings home and gives back; the clouds are asked for when it is."""
    overflow = cache(lambda: overflow_of(env))
    overflowing = cache(lambda: Overflowing(overflow()))
    homecoming = cache(lambda: Homecoming(overflow()))
    return (
        Loop("bursting", 1.0, lambda store, now: overflowing().run_once(store, now=now)),
        Loop("homecoming", 2.0, lambda store, now: homecoming().run_once(store, now=now)),
        Loop(
            "reaper",
            30.0,
            lambda store, now: reaper.run_once(store, overflow=overflow(), now=now),
        ),
    )


def _fake() -> FakeCloud:
    """Return a cloud in memory with EC2's types and prices."""
    catalogue = catalogue_of(read_price_list(), region=DEMO_REGION, zones=(DEMO_ZONE,))
    return FakeCloud(
        catalogue=catalogue, clock=lambda: datetime.now(UTC), remembers=timedelta(hours=1)
    )


def environment_of(env: Env, instance_id: InstanceId) -> Mapping[str, str]:
    """Return what a rented machine finds set when it boots: where to report, and as whom."""
    address = env.base_url or address_on_this_machine(env.host, env.port)
    return {"OFFPEAK_SERVER": address, "OFFPEAK_AGENT_TOKEN": token_of(host_of(instance_id))}


def token_of(host_id: UUID) -> str:
    """Return the token of a rented machine's agent.

    It follows from the installation's secret key, so that a launch that is repeated after a lost
    answer hands out the same one and nothing has to be kept.
    """
    key = settings.SECRET_KEY.encode()
    entropy = hmac.new(key, f"burst-agent:{host_id}".encode(), hashlib.sha256).digest()
    return tokens.write("host", entropy)


def follow_machine(recorded: Recorded, store: EventStore) -> None:
    """The token that a rented machine was started with works while the machine does.

    One policy for its beginning and its end, since two might overtake each other.
    """
    match recorded.event:
        case HostRegistered() as host if host.source == "burst":
            _admit_agent(host, recorded, store)
        case BurstRefused() | BurstTerminated() | BurstLost() as over:
            by = Meta.because(recorded, policy="dismiss-agent-when-machine-over")
            dismiss_agent(store, host_id=host_of(over.instance_id), by=by, now=over.at)


def _admit_agent(host: HostRegistered, recorded: Recorded, store: EventStore) -> None:
    instance = load(store, BurstInstance, host.host_id)
    if instance is None or instance.is_final:
        return
    issue_host_token(
        store,
        token_id=agent_token_of(host.host_id),
        tenant_id=host.tenant_id,
        host_id=host.host_id,
        written=tokens.read(token_of(host.host_id)),
        title=f"Agent of {host.title}"[: tokens.TITLE_LENGTH_MAX],
        expires_at=max(instance.ends_at, host.at) + TOKEN_SPARE,
        by=Meta.because(recorded, policy="admit-agent-when-machine-rented"),
        now=host.at,
    )


def agent_token_of(host_id: HostId) -> TokenId:
    """Return the id of the token of a rented machine's agent."""
    return TokenId(uuid5(host_id, "burst-agent"))


def dismiss_agent(store: EventStore, *, host_id: HostId, by: Meta, now: datetime) -> None:
    """Stop the token of a rented machine's agent, if it ever had one."""
    token = load(store, Token, agent_token_of(host_id))
    if token is not None:
        revoke_token(
            store,
            token_id=token.issued.token_id,
            tenant_id=token.issued.tenant_id,
            user_id=None,
            by=by,
            now=now,
        )


def sweep_tokens(store: EventStore, *, now: datetime) -> int:
    """Stop what still works of machines that are over, and return how many that were.

    Machines of before tokens ended with them, and whatever slipped through since.
    """
    working = TokenRow.objects.filter(revoked_at=None, expires_at__gt=now).exclude(host_id=None)
    ended = BurstInstanceRow.objects.filter(
        state__in=FINAL, instance_id__in=working.values("host_id")
    )
    hosts = [HostId(key) for key in ended.order_by("pk").values_list("pk", flat=True)[:SWEEP_MAX]]
    for host_id in hosts:
        dismiss_agent(store, host_id=host_id, by=SWEEP, now=now)
    return len(hosts)


ADMIT_AGENT = Policy(
    name="config.admit-agent-when-machine-rented",
    react=follow_machine,
    on=names_of(HostRegistered, BurstRefused, BurstTerminated, BurstLost),
)
