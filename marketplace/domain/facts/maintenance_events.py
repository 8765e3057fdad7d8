"""What a lease is told of maintenance of its hosts."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.event import Event
from ledger.domain.ids import HostId, LeaseId, MaintenanceId


class MaintenanceNoticed(Event, name="marketplace.maintenance-noticed"):
    """A host of the lease goes into maintenance while it would still run: it ends by `starts_at`.

    Or when the least notice that was agreed is over, where that is later. announced_at: from when
    the notice counts, by which the owner pays.
    """

    lease_id: LeaseId
    market: str
    host_id: HostId
    maintenance_id: MaintenanceId
    starts_at: datetime
    reason: str
    announced_at: datetime
    at: datetime


class MaintenanceNoticeWithdrawn(Event, name="marketplace.maintenance-notice-withdrawn"):
    """The maintenance was cancelled, or is at another time: the lease goes on as before."""

    lease_id: LeaseId
    host_id: HostId
    maintenance_id: MaintenanceId
    at: datetime
