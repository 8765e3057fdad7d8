"""What is done to leases because of maintenance of their hosts. Harmless when repeated."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.ids import HostId, LeaseId, MaintenanceId
from ledger.eventstore.port import EventStore, Meta, Position
from marketplace.commands.leases import decide_on
from marketplace.domain.leases import maintenance


def tell_of_maintenance(
    store: EventStore,
    *,
    lease_id: LeaseId,
    host_id: HostId,
    maintenance_id: MaintenanceId,
    starts_at: datetime,
    reason: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Tell a lease that would run into maintenance of a host. Raises: LeaseUnknown."""
    return decide_on(
        store,
        lease_id,
        lambda lease: maintenance.notice(
            lease,
            host_id=host_id,
            maintenance_id=maintenance_id,
            starts_at=starts_at,
            reason=reason,
            now=now,
        ),
        by,
    )


def tell_of_no_maintenance(
    store: EventStore,
    *,
    lease_id: LeaseId,
    host_id: HostId,
    maintenance_id: MaintenanceId,
    by: Meta,
    now: datetime,
) -> Position:
    """Tell a lease that there is no such maintenance after all. Raises: LeaseUnknown."""
    return decide_on(
        store,
        lease_id,
        lambda lease: maintenance.withdraw_notice(
            lease, host_id=host_id, maintenance_id=maintenance_id, now=now
        ),
        by,
    )


def end_for_maintenance(
    store: EventStore,
    *,
    lease_id: LeaseId,
    host_id: HostId,
    maintenance_id: MaintenanceId,
    by: Meta,
    now: datetime,
) -> Position:
    """Take a lease's capacity back for maintenance, when it is time to. Raises: LeaseUnknown."""
    return decide_on(
        store,
        lease_id,
        lambda lease: maintenance.take_for_maintenance(
            lease, host_id=host_id, maintenance_id=maintenance_id, now=now
        ),
        by,
    )
