"""Leases to write tests about: who owns what, from when, at what price."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from ledger.domain.ids import (
    AccountId,
    BidId,
    HoldId,
    HostId,
    LeaseId,
    OfferId,
    SubscriberId,
    TenantId,
)
from ledger.domain.money import Rate
from ledger.domain.span import Window
from listings.domain.events import ReclaimStep
from marketplace.domain.facts.events import LeaseEvent, LeaseScheduled, Share, Workload
from marketplace.domain.leases.lease import Lease
from tests.conftest import NOON

LEASE = LeaseId(UUID(int=1))
ADA, BOB, EVE = (TenantId(UUID(int=n)) for n in (11, 12, 13))
HOST_A, HOST_B = HostId(UUID(int=21)), HostId(UUID(int=22))
ONE_HOUR = timedelta(hours=1)
START_GRACE = timedelta(minutes=10)
STOP_GRACE = timedelta(seconds=30)


def share(
    host: HostId, owner: TenantId, gpus: int = 2, steps: tuple[ReclaimStep, ...] = ()
) -> Share:
    """Return what a host gives: fifteen minutes of notice, a tenth on a reclaim."""
    return Share(
        offer_id=OfferId(host),
        host_id=host,
        owner_id=owner,
        gpu_uuids=tuple(f"GPU-{host.int}-{index}" for index in range(gpus)),
        notice_seconds=900,
        reclaim_fee_ppm=100_000,
        source="local",
        reclaim_steps=steps,
    )


def scheduled(*shares: Share, hours: int = 4) -> LeaseScheduled:
    """Return a lease that starts in an hour, at 2.00 per GPU-hour."""
    return LeaseScheduled(
        lease_id=LEASE,
        bid_id=BidId(UUID(int=2)),
        tenant_id=EVE,
        subscriber_id=SubscriberId(UUID(int=3)),
        user_id=None,
        account_id=AccountId(UUID(int=4)),
        hold_id=HoldId(UUID(int=2)),
        market="main",
        shares=shares or (share(HOST_A, ADA),),
        gpu_model="H100",
        window=Window(NOON + ONE_HOUR, NOON + ONE_HOUR * (1 + hours)),
        price=Rate(2_000_000_000),
        fee_ppm=50_000,
        service_class="on-demand",
        workload=Workload(kind="training"),
        cost_centre="CC-1",
        at=NOON,
    )


def folded(*events: LeaseEvent) -> Lease:
    """Return what a lease stream adds up to."""
    lease: Lease | None = None
    for event in events:
        lease = Lease.evolve(lease, event)
    assert lease is not None
    return lease


def after(lease: Lease, events: Iterable[LeaseEvent]) -> Lease:
    """Return the lease after some more events."""
    for event in events:
        lease = Lease.evolve(lease, event)
    return lease


def active(*shares: Share) -> Lease:
    """Return a lease that runs since its start."""
    lease = folded(scheduled(*shares))
    lease = after(lease, lease.tick(now=NOON + ONE_HOUR, start_grace=START_GRACE))
    for host_id in sorted(lease.hosts):
        lease = after(lease, lease.work_started(host_id=host_id, now=NOON + ONE_HOUR))
    assert lease.state == "active"
    return lease


def kinds(events: Iterable[LeaseEvent]) -> list[type]:
    """Return what happened, without the figures."""
    return [type(event) for event in events]
