"""Hosts that are heard or not, what their agents say, and the watch over them."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

import listings.projections
import marketplace.projections
from ledger.domain.ids import LeaseId, OfferId
from ledger.domain.money import Rate
from ledger.domain.span import Window
from ledger.domain.uptime import Uptime
from ledger.eventstore.port import load
from ledger.following import follow_projections
from listings import commands
from listings.domain.hosts import Host
from listings.domain.terms import OfferTerms
from marketplace.commands.leases import lease_started
from marketplace.domain.leases.lease import Lease
from metering.agent.wire import Health, HealthKind
from metering.models import AgentContact
from metering.watching import Watch
from tests.conftest import NOON, SOMEBODY
from tests.listings.conftest import gpu
from tests.metering.world import BOOT, HOST, LEASE, OTHER_HOST, OWNER, World, share

ROWS = (*listings.projections.PROJECTIONS, *marketplace.projections.PROJECTIONS)
STEP, STRIDE = timedelta(seconds=5), timedelta(seconds=25)
POLL = 2
NEXT_BOOT = UUID(int=62)


class Hosts:
    """Hosts with an offer each, agents that are heard or not, and the watch over them."""

    def __init__(self, world: World) -> None:
        self.world, self.now = world, NOON
        self.alive: set[UUID] = {HOST, OTHER_HOST}
        self.uptime = Uptime()
        self.watch = self.new_watch()
        self.seq = 0
        for number, host_id in enumerate((HOST, OTHER_HOST)):
            who = {"host_id": host_id, "by": SOMEBODY, "now": NOON}
            commands.register_host(
                world.store,
                tenant_id=OWNER,
                title=f"rack {number}",
                market="main",
                region="eu-west",
                **who,  # type: ignore[arg-type]
            )
            found = [gpu(f"GPU-{number}a"), gpu(f"GPU-{number}b")]
            commands.report_inventory(world.store, gpus=found, **who)  # type: ignore[arg-type]
            terms = OfferTerms(
                gpu_uuids=(f"GPU-{number}a", f"GPU-{number}b"),
                windows=(Window(NOON, NOON + timedelta(days=2)),),
                floor=Rate(1_000_000_000),
            )
            commands.publish_offer(
                world.store,
                offer_id=OfferId(UUID(int=900 + number)),
                terms=terms,
                **who,  # type: ignore[arg-type]
            )
        self.register(BOOT)
        self.follow()

    def new_watch(self) -> Watch:
        return Watch(poll_seconds=POLL, uptime=lambda now: self.uptime)

    def register(self, boot_id: UUID) -> None:
        """Let the agent of HOST start: a run of its own."""
        self.world.seen(self.now)
        AgentContact.objects.filter(host_id=HOST).update(boot_id=boot_id, registered_at=self.now)

    def say(
        self, kind: HealthKind, uuid: str | None = "GPU-0a", detail: str = "", boot: UUID = BOOT
    ) -> None:
        self.seq += 1
        told = Health(seq=self.seq, gpu_uuid=uuid, kind=kind, at=self.now, detail=detail)
        self.world.send(health=(told,), boot_id=boot, now=self.now)

    def follow(self) -> None:
        while follow_projections(self.world.store, ROWS):
            pass

    def step(self, length: timedelta = STEP) -> None:
        """Let a little time pass: agents are heard, the watch looks."""
        self.now += length
        for host_id in self.alive:
            self.world.seen(self.now, host_id=host_id)  # type: ignore[arg-type]
        if self.watch.run_once(self.world.store, now=self.now):
            self.follow()

    def wait(self, *, until: timedelta) -> None:
        """Let more time pass; where there is much of it, with fewer looks."""
        ends = self.now + until
        while self.now < ends:
            far = ends - self.now > timedelta(minutes=2)
            self.step(STRIDE if far else STEP)

    def host(self, host_id: UUID = HOST) -> Host:
        found = load(self.world.store, Host, host_id)
        assert found is not None
        return found

    @property
    def silent(self) -> list[bool]:
        return [self.host(host_id).is_silent for host_id in (HOST, OTHER_HOST)]

    @property
    def unfit(self) -> dict[str, str]:
        return {uuid: fault.reason for uuid, fault in self.host().unfit.items()}


@pytest.fixture
def hosts(world: World) -> Hosts:
    found = Hosts(world)
    found.step()
    return found


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def running_lease(hosts: Hosts) -> LeaseId:
    """Let a lease run on HOST for three hours."""
    store, now = hosts.world.store, hosts.now
    hosts.world.schedule(share(HOST, OWNER, "GPU-0a"), starts_at=now, minutes=180)
    lease_started(store, lease_id=LEASE, host_id=HOST, by=SOMEBODY, now=now)
    hosts.follow()
    return LEASE


def ending_reason(hosts: Hosts) -> int | None:
    lease = load(hosts.world.store, Lease, LEASE)
    assert lease is not None
    return lease.ending_reason
