"""Ends leases whose hosts are not heard any more. Free of Django."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ledger.domain.ids import HostId, LeaseId
from ledger.eventstore.port import EventStore, Meta, Position, record
from marketplace.domain.facts.events import LeaseEvent
from marketplace.domain.leases.lease import Lease, LeaseUnknown
from marketplace.domain.leases.reclaim import lose_host


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

    def decide(lease: Lease | None) -> Sequence[LeaseEvent]:
        if lease is None:
            raise LeaseUnknown(lease_id=lease_id)
        return lose_host(lease, host_id=host_id, heard_at=heard_at, now=now)

    return record(store, Lease, lease_id, decide, by=by)
