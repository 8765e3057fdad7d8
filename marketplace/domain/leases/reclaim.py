"""An owner takes capacity back: whether that may be, and what each way of doing it costs."""

from __future__ import annotations

from datetime import datetime, timedelta

from ledger.domain.ids import TenantId
from ledger.domain.refusal import Invalid
from marketplace.domain.facts.events import LeaseEvent, ReclaimRequested, Share
from marketplace.domain.leases.actions import (
    LeaseEndsSooner,
    LeaseOver,
    NotTheOwner,
    ReclaimUnderWay,
    need,
)
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.reclaim_schedule import ONE_SECOND, Choice, choices, least_notice


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


def quote(lease: Lease, *, owner_id: TenantId | None, now: datetime) -> tuple[Choice, ...]:
    """Return what a reclaim asked for now would cost, by its notice, the shortest first.

    Empty: the capacity comes back by itself before the shortest notice is over.

    Args:
        owner_id: None: as if all owners reclaimed together.

    Raises: LeaseOver, NotTheOwner.
    """
    return choices(
        _shares_of(lease, owner_id),
        lease.terms.price,
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
