"""Who ends a lease before its time: an owner, or the market for a firm bid.

An owner takes capacity back always, after the notice that was agreed. The market interrupts for a
firm bid, which the engine has decided already: here it is taken up. What ends a lease because a
host or a GPU fell away is in `losses`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from ledger.domain.ids import HostId, LeaseId, TenantId
from ledger.domain.refusal import Invalid
from marketplace.domain.facts.events import (
    Compensation,
    LeaseEvent,
    LeaseInterrupted,
    ReclaimRequested,
    Share,
)
from marketplace.domain.facts.instants import ONE_SECOND
from marketplace.domain.leases.actions import (
    LeaseEndsSooner,
    LeaseOver,
    NotTheOwner,
    ReclaimUnderWay,
    need,
)
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.reclaim_schedule import Choice, choices, least_notice


class NoticeTooShort(Invalid):
    """A reclaim gives at least the notice that was agreed: `notice_seconds_min`."""


def reclaim(
    lease: Lease, *, owner_id: TenantId, now: datetime, notice: timedelta | None = None
) -> list[LeaseEvent]:
    """Decide whether an owner takes the capacity back: always, after the agreed notice.

    A reclaim that is under way can be brought forward, by its owner or by another one: nobody
    waits for capacity longer than the notice they promised. It is then a new reclaim, at the fee
    of its own notice.

    Args:
        notice: more than the least that was agreed, which costs less; None: the least.

    Raises: LeaseOver, NotTheOwner, NoticeTooShort, ReclaimUnderWay, LeaseEndsSooner.
    """
    least = least_notice(_shares_of(lease, owner_id))
    notice = least if notice is None else notice
    if notice < least:
        raise NoticeTooShort(notice_seconds_min=least // ONE_SECOND)
    need("reclaim", lease, tenant_id=owner_id, now=now)
    stop_at = now + notice
    if lease.stop_at is not None and stop_at >= lease.stop_at:
        raise ReclaimUnderWay(lease_id=lease.terms.lease_id, stop_at=lease.stop_at)
    if stop_at >= lease.ends_at:
        raise LeaseEndsSooner(lease_id=lease.terms.lease_id, ends_at=lease.ends_at)
    return [
        ReclaimRequested(
            lease_id=lease.terms.lease_id,
            owner_id=owner_id,
            stop_at=stop_at,
            at=now,
            compensation=lease.compensation(owner_id, asked_at=now, stop_at=stop_at),
        )
    ]


def take_back_rented(
    lease: Lease, *, owner_id: TenantId, gone_at: datetime, now: datetime
) -> list[LeaseEvent]:
    """Take up that a cloud takes a rented machine back: its owner has no more time to give.

    The work has until the machine goes, and its grace in any case. Nothing, where the lease stops
    by then anyway.

    gone_at: when the machine goes, as far as its cloud says.
    """
    shares = _shares_of(lease, owner_id)
    agreed = now + least_notice(shares)
    stop_at = max(now + lease.grace, min(agreed, gone_at))
    if lease.due_at <= stop_at:
        return []
    return [
        ReclaimRequested(
            lease_id=lease.terms.lease_id,
            owner_id=owner_id,
            stop_at=stop_at,
            at=now,
            compensation=lease.compensation(owner_id, asked_at=now, stop_at=stop_at),
            rented=True,
        )
    ]


def take_at_once(lease: Lease, *, host_id: HostId, now: datetime) -> list[LeaseEvent]:
    """Take up that an owner's host has let the work of a lease go, or is about to: without notice.

    Owners come first, and pay for it as for the least notice that was agreed. Nothing, where the
    lease stops by now anyway.
    """
    mine = [share for share in lease.terms.shares if share.host_id == host_id]
    sooner = lease.due_at <= now or (lease.stop_at is not None and lease.stop_at <= now)
    if not mine or sooner or lease.over or lease.state == "ending":
        return []
    owner_id = mine[0].owner_id
    return [
        ReclaimRequested(
            lease_id=lease.terms.lease_id,
            owner_id=owner_id,
            stop_at=now,
            at=now,
            compensation=lease.compensation(owner_id, asked_at=now, stop_at=now),
        )
    ]


def quote(lease: Lease, *, owner_id: TenantId | None, now: datetime) -> tuple[Choice, ...]:
    """Return what a reclaim asked for now would cost, by its notice, the shortest first.

    Empty: the capacity comes back by itself before the shortest notice is over.

    Args:
        owner_id: None: as if all owners reclaimed together.

    Raises: LeaseOver, NotTheOwner.
    """
    return choices(
        _shares_of(lease, owner_id),
        lease.price_at(now),
        starts_at=lease.starts_at,
        ends_at=lease.ends_at,
        due_at=lease.due_at,
        now=now,
    )


def _shares_of(lease: Lease, owner_id: TenantId | None) -> list[Share]:
    mine = [share for share in lease.terms.shares if owner_id in (None, share.owner_id)]
    if not mine:
        raise NotTheOwner(lease_id=lease.terms.lease_id)
    if lease.over or lease.state == "ending":
        raise LeaseOver(lease_id=lease.terms.lease_id, state=lease.state)
    return mine


def interrupt(
    lease: Lease,
    *,
    in_favour_of: LeaseId,
    stop_at: datetime,
    now: datetime,
    pausing: bool = False,
) -> list[LeaseEvent]:
    """Take up that the engine gave a lease's capacity to another bid from `stop_at` on.

    The consumer is compensated by each owner as by a reclaim with that notice; where the work is
    paused it goes on later, as its bid allows, and nobody owes anything. A lease that is over, or
    stops by then because its owner wants it back, is left alone.
    """
    sooner = lease.stop_at is not None and lease.stop_at <= stop_at
    if sooner or lease.over or lease.state == "ending":
        return []
    owners = dict.fromkeys(share.owner_id for share in lease.terms.shares)
    owed = [
        Compensation(owner, lease.compensation(owner, asked_at=now, stop_at=stop_at))
        for owner in (() if pausing else owners)
    ]
    return [
        LeaseInterrupted(
            lease_id=lease.terms.lease_id,
            in_favour_of=in_favour_of,
            stop_at=stop_at,
            compensations=tuple(owed),
            at=now,
            pausing=pausing,
        )
    ]


def owner_was_first(lease: Lease) -> bool:
    """Tell if an owner had taken the capacity back before the market gave it to a firm bid.

    Then the firm lease does not stand: owners come first, also where the engine had not read of
    their reclaim yet.
    """
    if lease.rights.interrupted:
        return lease.rights.reclaimed_first
    return lease.stop_at is not None
