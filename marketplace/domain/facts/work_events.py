"""What becomes of leased work on its way: on lease-<lease_id>, beside `WorkStarted` and others."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.event import Event
from ledger.domain.ids import HostId, LeaseId


class WorkSaved(Event, name="marketplace.work-saved"):
    """The work can go on from where it was at `safe_at`: a checkpoint.

    host_id: whose agent reported it, of its part of the work; None: the consumer said so, of all.
    """

    lease_id: LeaseId
    host_id: HostId | None
    safe_at: datetime
    at: datetime
