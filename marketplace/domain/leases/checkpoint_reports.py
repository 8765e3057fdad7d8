"""A checkpoint is reported: whether it can be, and whether it is news."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.ids import HostId
from marketplace.domain.facts.events import LeaseEvent, WorkSaved
from marketplace.domain.leases.actions import CheckpointOutOfLease, need
from marketplace.domain.leases.lease import Lease


def save(
    lease: Lease, *, host_id: HostId | None, safe_at: datetime, now: datetime
) -> list[LeaseEvent]:
    """Take note of a checkpoint; one that is not later than the last changes nothing.

    A host reports late and by another clock: what it says counts as far as it can be.

    Args:
        host_id: None: the consumer says so.

    Raises: LeaseOver, CheckpointOutOfLease; neither of them where a host reports.
    """
    if host_id is None:
        need("checkpoint", lease, tenant_id=lease.terms.tenant_id, now=now)
        if not lease.starts_at <= safe_at <= now:
            raise CheckpointOutOfLease(since=lease.starts_at, until=now)
    elif lease.over or host_id not in lease.started or safe_at < lease.starts_at:
        return []
    safe_at = min(safe_at, now)
    if not lease.progress.is_news(host_id, safe_at):
        return []
    return [WorkSaved(lease_id=lease.terms.lease_id, host_id=host_id, safe_at=safe_at, at=now)]
