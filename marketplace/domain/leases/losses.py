"""What ends a lease because a host of it fell away, or a GPU under its work.

Silence of a host up to a limit changes nothing: a line that is down for a quarter of an hour ends
no lease. Beyond it, and when hardware fails, the lease ends as the host's fault, so that its work
goes on elsewhere. Its owner pays as for a reclaim without notice: else pulling a plug would be
the cheapest reclaim.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ledger.domain.ids import HostId, TenantId
from ledger.domain.money import Money
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import (
    LeaseEnding,
    LeaseEvent,
    LeaseHardwareFailed,
    LeaseHostLost,
)
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.reclaim_schedule import compensation

DETAIL_CHARS_MAX = 500


def lose_host(
    lease: Lease, *, host_id: HostId, heard_at: datetime, now: datetime
) -> list[LeaseEvent]:
    """Decide that a lease ends because a host of it is not heard any more; once.

    Also one that has not begun: then it is over at once, and its owner pays by the notice that is
    left until its start. Nothing, where that host has nothing of it to run any more.
    """
    waits = lease.state == "scheduled" and host_id in lease.hosts
    if not waits and not _runs_on(lease, host_id, now):
        return []
    lost = LeaseHostLost(
        lease_id=lease.terms.lease_id,
        market=lease.terms.market,
        host_id=host_id,
        owner_id=_owner_of(lease, host_id),
        heard_at=heard_at,
        compensation=_owed(lease, host_id, now),
        at=now,
    )
    ending = Lease.evolve(lease, lost).abandon(now=now, reason=close_reasons.HOST_SILENT)
    return [lost, *ending]


def lose_hardware(
    lease: Lease,
    *,
    host_id: HostId,
    reason: int,
    gpu_uuid: str = "",
    detail: str,
    failed_at: datetime,
    now: datetime,
) -> list[LeaseEvent]:
    """Decide that a lease ends because a GPU of it failed, or its host was restarted; once.

    Nothing, where that host has nothing of it to run.

    Args:
        reason: one of `close_reasons.HARDWARE`.
        gpu_uuid: the GPU, or the card that it is a part of; empty: the whole host.
        failed_at: nothing after it is charged; taken as far as it lies within the lease so far.
    """
    assert reason in close_reasons.HARDWARE
    if not _runs_on(lease, host_id, now):
        return []
    lease_id = lease.terms.lease_id
    return [
        LeaseHardwareFailed(
            lease_id=lease_id,
            market=lease.terms.market,
            host_id=host_id,
            owner_id=_owner_of(lease, host_id),
            reason=reason,
            gpu_uuid=gpu_uuid,
            detail=detail[:DETAIL_CHARS_MAX],
            failed_at=min(now, max(lease.starts_at, failed_at)),
            compensation=_owed(lease, host_id, now),
            at=now,
        ),
        LeaseEnding(lease_id=lease_id, reason=reason, at=now),
    ]


def lose_machine(
    lease: Lease, *, host_id: HostId, gone_at: datetime, now: datetime
) -> Sequence[LeaseEvent]:
    """Decide that a lease ends because the rented machine under its work is gone; once.

    One that was told before that its cloud takes it back ends for that.
    """
    if lease.rights.taken_back and _runs_on(lease, host_id, now):
        return lease.abandon(now=now, reason=close_reasons.TAKEN_BACK)
    return lose_hardware(
        lease,
        host_id=host_id,
        reason=close_reasons.MACHINE_GONE,
        detail="its cloud has the machine no more",
        failed_at=gone_at,
        now=now,
    )


def _runs_on(lease: Lease, host_id: HostId, now: datetime) -> bool:
    if lease.state not in ("starting", "active", "reclaiming") or now >= lease.due_at:
        return False
    return host_id in lease.hosts and host_id not in lease.stopped


def _owner_of(lease: Lease, host_id: HostId) -> TenantId:
    return next(share.owner_id for share in lease.terms.shares if share.host_id == host_id)


def _owed(lease: Lease, host_id: HostId, now: datetime) -> Money:
    return compensation(
        [share for share in lease.terms.shares if share.host_id == host_id],
        lease.price_at(now),
        starts_at=lease.starts_at,
        ends_at=lease.due_at,
        asked_at=now,
        stop_at=now,
    )
