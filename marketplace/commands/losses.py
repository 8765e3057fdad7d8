"""Ends leases whose hosts are not heard any more, whose hardware failed, or who can do less now.

Free of Django.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ledger.domain.ids import HostId, LeaseId
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from listings.domain.hosts import Host
from listings.domain.sandboxes import AgentSays
from marketplace.commands.leases import decide_on
from marketplace.domain.bids.abilities import Lacked
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import LeaseEvent
from marketplace.domain.leases.falling_short import falls_short
from marketplace.domain.leases.lease import Lease, LeaseUnknown
from marketplace.domain.leases.losses import lose_hardware, lose_host, lose_machine


def end_for_silence(
    store: EventStore,
    *,
    lease_id: LeaseId,
    host_id: HostId,
    heard_at: datetime,
    by: Meta,
    now: datetime,
) -> Position:
    """End a lease that a host has not been heard of for too long. Harmless when repeated.

    Raises: LeaseUnknown.
    """
    return decide_on(
        store,
        lease_id,
        lambda lease: lose_host(lease, host_id=host_id, heard_at=heard_at, now=now),
        by,
    )


def end_for_hardware(
    store: EventStore,
    *,
    lease_id: LeaseId,
    host_id: HostId,
    reason: int,
    gpu_uuid: str = "",
    detail: str,
    failed_at: datetime,
    by: Meta,
    now: datetime,
) -> Position:
    """End a lease under whose work a GPU failed, or whose host was restarted. Harmless repeated.

    reason: one of `close_reasons.HARDWARE`. failed_at: from then on nothing is charged.

    Raises: LeaseUnknown.
    """
    return decide_on(
        store,
        lease_id,
        lambda lease: lose_hardware(
            lease,
            host_id=host_id,
            reason=reason,
            gpu_uuid=gpu_uuid,
            detail=detail,
            failed_at=failed_at,
            now=now,
        ),
        by,
    )


def end_for_machine(
    store: EventStore,
    *,
    lease_id: LeaseId,
    host_id: HostId,
    gone_at: datetime,
    by: Meta,
    now: datetime,
) -> Position:
    """End a lease whose rented machine its cloud has no more. Harmless when repeated.

    Raises: LeaseUnknown.
    """
    return decide_on(
        store,
        lease_id,
        lambda lease: lose_machine(lease, host_id=host_id, gone_at=gone_at, now=now),
        by,
    )


def end_if_falling_short(
    store: EventStore, *, lease_id: LeaseId, host_id: HostId, by: Meta, now: datetime
) -> Lacked | None:
    """End a lease whose work has not begun on a host that cannot do now what it needs.

    Harmless when repeated. Returns: what the host lacks; None: nothing, and the lease stays.
    Raises: LeaseUnknown.
    """
    host, found = load(store, Host, host_id), load(store, Lease, lease_id)
    if found is None:
        raise LeaseUnknown(lease_id=lease_id)
    bid = load(store, Bid, found.terms.bid_id)
    if host is None or host.said is None or bid is None:
        return None  # it never said what it can do, and so says no less now
    request, says = bid.wanted.request, AgentSays.of(host.said)
    lacked = falls_short(found, request, host_id=host_id, says=says)
    if lacked is None:
        return None

    def decide(lease: Lease | None) -> Sequence[LeaseEvent]:
        assert lease is not None, "it was there"
        if falls_short(lease, request, host_id=host_id, says=says) is None:
            return []
        return lease.abandon(now=now, reason=close_reasons.HOST_FALLS_SHORT)

    record(store, Lease, lease_id, decide, by=by)
    return lacked
