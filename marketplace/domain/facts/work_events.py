"""What becomes of a lease's work: it began and ended, was saved, what it left, where it moved."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.event import Event
from ledger.domain.ids import BidId, HostId, LeaseId, TenantId
from ledger.domain.money import Money


class FilesAwaited(Event, name="marketplace.files-awaited"):
    """The work on one host waits for its files, or its image, to come; the host is at it."""

    lease_id: LeaseId
    host_id: HostId
    at: datetime


class WorkStarted(Event, name="marketplace.work-started", version=2, grown_from=1):
    """The agent of one host started its part of the work.

    commit: which one its source was resolved to there; empty: it has none. left_out: what of the
    source did not come, and why.
    """

    lease_id: LeaseId
    host_id: HostId
    at: datetime
    commit: str = ""
    left_out: tuple[str, ...] = ()


class WorkStopped(Event, name="marketplace.work-stopped"):
    """The work on one host is gone. exit_code: None where it was stopped or never ran."""

    lease_id: LeaseId
    host_id: HostId
    exit_code: int | None
    detail: str
    at: datetime


class WorkSaved(Event, name="marketplace.work-saved"):
    """The work can go on from where it was at `safe_at`: a checkpoint.

    host_id: whose agent reported it, of its part of the work; None: the consumer said so, of all.
    """

    lease_id: LeaseId
    host_id: HostId | None
    safe_at: datetime
    at: datetime


class OutputsFailed(Event, name="marketplace.outputs-failed", version=2, grown_from=1):
    """What the work on one host left could not be kept, all or in part: `reason` says what of it.

    final: it is not tried again. volume: of which it is the next version; empty: it is outputs.
    """

    lease_id: LeaseId
    host_id: HostId
    reason: str
    final: bool
    at: datetime
    volume: str = ""


class LeaseHardwareFailed(Event, name="marketplace.lease-hardware-failed"):
    """A GPU under the work, or its host, failed, so that the lease ends; `reason`: a close reason.

    gpu_uuid: as the host names it; empty: all of the host. failed_at: of which on nothing is
    charged, by the host's clock, which its samples bear too. detail: in the agent's words.
    compensation: by the owner, as of a reclaim without notice.
    """

    lease_id: LeaseId
    market: str
    host_id: HostId
    owner_id: TenantId
    reason: int
    gpu_uuid: str
    detail: str
    failed_at: datetime
    compensation: Money
    at: datetime


class LeaseMoved(Event, name="marketplace.lease-moved"):
    """The lease gives way at `stop_at` to one that the same work goes on in: its work moves there.

    in_favour_of: that lease, which begins then; bid_id: its bid.
    """

    lease_id: LeaseId
    market: str
    in_favour_of: LeaseId
    bid_id: BidId
    stop_at: datetime
    at: datetime
