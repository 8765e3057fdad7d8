"""A lease on which nothing happens, minute by minute, and the loop that looks at it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from ledger.domain.ids import BidId
from marketplace.domain.facts.events import LeaseActivated, WorkStarted
from marketplace.domain.leases.lease import Lease
from marketplace.models.leases import LeaseRow
from metering.domain.idle_events import IdleTerms, RuleOf
from metering.idling import set_idle_rule, watch_idle_leases
from tests.conftest import NOON, SOMEBODY
from tests.metering.world import CONSUMER, HOST, LEASE, OWNER, UNIT, World, interval, minute, share

BID = BidId(UUID(int=53))
QUIET: dict[str, Any] = {"busy_ms": 0, "cpu_ms": 50, "io_bytes": 0, "net_bytes": 100}


def run_lease(world: World) -> LeaseRow:
    """A lease of one GPU that runs since noon, for six hours."""
    world.schedule(share(HOST, OWNER, "GPU-a"), minutes=360)
    world.tell(
        WorkStarted(lease_id=LEASE, host_id=HOST, at=NOON),
        LeaseActivated(lease_id=LEASE, at=NOON),
    )
    return LeaseRow.objects.create(
        lease_id=LEASE,
        bid_id=BID,
        market="main",
        tenant_id=CONSUMER,
        subscriber_id=UNIT,
        owner_ids=[OWNER],
        host_ids=[HOST],
        gpu_model="H100-80GB",
        gpu_uuids=["GPU-a"],
        gpus=1,
        state="active",
        starts_at=NOON,
        ends_at=NOON + timedelta(hours=6),
        due_at=NOON + timedelta(hours=6),
        price_nanos_per_gpu_hour=1,
        currency="USD",
        service_class="on-demand",
        workload_kind="train",
        cost_centre="",
        burst=False,
        notice_seconds=0,
        reclaim_fee_ppm=0,
        granted_at=NOON,
        work_began_at=NOON,
        version=1,
    )


def rule(world: World, minutes: int | None, *, of: RuleOf = "bid") -> None:
    set_idle_rule(
        world.store,
        rule_id=BID if of == "bid" else CONSUMER,
        of=of,
        tenant_id=CONSUMER,
        terms=None if minutes is None else IdleTerms(after_seconds=minutes * 60),
        by=SOMEBODY,
        now=NOON,
    )
    world.follow()


class Host:
    """The agent of the lease's host, which tells a minute at a time what was used."""

    def __init__(self, world: World) -> None:
        self._world, self._boot, self.seq = world, uuid4(), 0

    def tells(self, since: int, until: int, *, at: datetime | None = None, **used: Any) -> None:
        for number in range(since, until):
            self.seq += 1
            sent = interval(self.seq, number, number + 1, **(QUIET | used))
            self._world.send(sent, boot_id=self._boot, now=at or minute(number + 1))


def look(world: World, at_minute: float) -> int:
    found = watch_idle_leases(world.store, now=minute(at_minute))
    world.follow()
    return found


def state(world: World) -> tuple[str, int | None]:
    stream = list(world.store.read_stream(f"lease-{LEASE}"))
    found: Lease | None = None
    for each in stream:
        found = Lease.evolve(found, each.event)  # type: ignore[arg-type]  # the lease's
    assert found is not None
    return found.state, found.ending_reason
