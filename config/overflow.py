"""What bursting works with here: the cloud that is configured, its rules, its machines' tokens."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid5

from django.conf import settings

from bursting.clouds.ec2 import Ec2Cloud, Ec2Settings
from bursting.clouds.fake import FakeCloud, catalogue_of
from bursting.clouds.port import CloudProvider
from bursting.clouds.prices import read_price_list
from bursting.commands.spilling import Overflow
from bursting.domain.events import InstanceId
from bursting.domain.instances import host_of
from bursting.domain.spill import SpillRules
from config.env import Env
from ledger.commands.tokens import issue_host_token
from ledger.domain import tokens
from ledger.domain.ids import TokenId
from ledger.domain.money import Money, nanos_of
from ledger.domain.parties import PLATFORM_ID
from ledger.eventstore.port import EventStore, Meta, Recorded
from ledger.following import Policy, names_of
from listings.domain.events import HostRegistered

TOKEN_LIFE = timedelta(days=30)
DEMO_REGION, DEMO_ZONE = "cloud", "cloud-a"


def overflow_of(env: Env) -> Overflow:
    """Return the cloud that `burst_cloud` names, and how it may be used."""
    clouds: dict[str, CloudProvider] = {}
    match env.burst_cloud:
        case "fake":
            clouds["fake"] = _fake()
        case "ec2":
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
    )


def _fake() -> FakeCloud:
    """Return a cloud in memory with EC2's types and prices."""
    catalogue = catalogue_of(read_price_list(), region=DEMO_REGION, zones=(DEMO_ZONE,))
    return FakeCloud(catalogue=catalogue, clock=lambda: datetime.now(UTC))


def environment_of(env: Env, instance_id: InstanceId) -> Mapping[str, str]:
    """Return what a rented machine finds set when it boots: where to report, and as whom."""
    address = env.base_url or f"http://{env.host}:{env.port}"
    return {"OFFPEAK_SERVER": address, "OFFPEAK_AGENT_TOKEN": token_of(host_of(instance_id))}


def token_of(host_id: UUID) -> str:
    """Return the token of a rented machine's agent.

    It follows from the installation's secret key, so that a launch that is repeated after a lost
    answer hands out the same one and nothing has to be kept.
    """
    key = settings.SECRET_KEY.encode()
    entropy = hmac.new(key, f"burst-agent:{host_id}".encode(), hashlib.sha256).digest()
    return tokens.write("host", entropy)


def admit_agent_when_machine_rented(recorded: Recorded, store: EventStore) -> None:
    """A rented machine is a host now: the token it was started with begins to work."""
    host = recorded.event
    assert isinstance(host, HostRegistered)
    if host.source != "burst":
        return
    issue_host_token(
        store,
        token_id=TokenId(uuid5(host.host_id, "burst-agent")),
        tenant_id=host.tenant_id,
        host_id=host.host_id,
        written=tokens.read(token_of(host.host_id)),
        title=f"Agent of {host.title}"[: tokens.TITLE_LENGTH_MAX],
        expires_at=host.at + TOKEN_LIFE,
        by=Meta.because(recorded, policy="admit-agent-when-machine-rented"),
        now=host.at,
    )


ADMIT_AGENT = Policy(
    name="config.admit-agent-when-machine-rented",
    react=admit_agent_when_machine_rented,
    on=names_of(HostRegistered),
)
