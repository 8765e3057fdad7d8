"""What maintenance of a host does to a lease that would run into it.

Its consumer is told as soon as the window is announced, and the lease goes on. The capacity is
taken back when the least notice that was agreed has to begin, for the start of the window, as by a
reclaim with all the notice since the announcement: so cancelling it before costs nothing and
changes nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from ledger.domain.ids import HostId, MaintenanceId
from marketplace.domain.facts.events import (
    LeaseEvent,
    MaintenanceNoticed,
    MaintenanceNoticeWithdrawn,
    ReclaimRequested,
)
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.reclaim_schedule import least_notice

AHEAD = timedelta(seconds=60)
"""So much sooner than it must, the capacity is taken back: whoever looks may be late."""


def notice(
    lease: Lease,
    *,
    host_id: HostId,
    maintenance_id: MaintenanceId,
    starts_at: datetime,
    reason: str,
    now: datetime,
) -> list[LeaseEvent]:
    """Tell a lease of maintenance of a host of it; once, and again where it is at another time.

    Of one that was put off the notice counts from when it was told first.
    """
    if lease.over or lease.state == "ending" or host_id not in lease.hosts:
        return []
    known = lease.told_of_maintenance(host_id, maintenance_id)
    if known is not None and (known.starts_at, known.reason) == (starts_at, reason):
        return []
    announced_at = now if known is None or starts_at < known.starts_at else known.announced_at
    return [
        MaintenanceNoticed(
            lease_id=lease.terms.lease_id,
            market=lease.terms.market,
            host_id=host_id,
            maintenance_id=maintenance_id,
            starts_at=starts_at,
            reason=reason,
            announced_at=announced_at,
            at=now,
        )
    ]


def withdraw_notice(
    lease: Lease, *, host_id: HostId, maintenance_id: MaintenanceId, now: datetime
) -> list[LeaseEvent]:
    """Tell a lease that there is no such maintenance; what was taken back already stays so."""
    if lease.over or lease.told_of_maintenance(host_id, maintenance_id) is None:
        return []
    return [
        MaintenanceNoticeWithdrawn(
            lease_id=lease.terms.lease_id, host_id=host_id, maintenance_id=maintenance_id, at=now
        )
    ]


def take_for_maintenance(
    lease: Lease, *, host_id: HostId, maintenance_id: MaintenanceId, now: datetime
) -> list[LeaseEvent]:
    """Take a lease's capacity back for maintenance, when it is time to.

    It stops when the window starts, or when the least notice is over, where that is later. Nothing,
    where it stops by then anyway.
    """
    told = lease.told_of_maintenance(host_id, maintenance_id)
    mine = [share for share in lease.terms.shares if share.host_id == host_id]
    if told is None or not mine or lease.over or lease.state == "ending":
        return []
    owner_id = mine[0].owner_id
    least = least_notice(share for share in lease.terms.shares if share.owner_id == owner_id)
    if now < told.starts_at - least - AHEAD:
        return []
    stop_at = max(told.starts_at, now + least)
    if stop_at >= lease.due_at:
        return []
    return [
        ReclaimRequested(
            lease_id=lease.terms.lease_id,
            owner_id=owner_id,
            stop_at=stop_at,
            at=now,
            compensation=lease.compensation(owner_id, asked_at=told.announced_at, stop_at=stop_at),
            maintenance_id=maintenance_id,
        )
    ]
