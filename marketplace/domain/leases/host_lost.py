"""What becomes of a lease whose host is not heard any more.

Silence up to a limit changes nothing: a line that is down for a quarter of an hour ends no lease.
Beyond it the lease ends as the host's fault, so that its work may go on elsewhere. Its owner pays
what a reclaim without notice would cost: the offer's reclaim fee of the value of the rest that the
consumer loses on that host, from then on. What was proved of its use until then is charged.
"""

from __future__ import annotations

from datetime import datetime

from ledger.domain.ids import HostId
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import LeaseEnding, LeaseEvent, LeaseHostLost
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.reclaim_schedule import compensation


def lose_host(
    lease: Lease, *, host_id: HostId, heard_at: datetime, now: datetime
) -> list[LeaseEvent]:
    """Decide that a lease ends because a host of it is not heard any more; once.

    Nothing, where that host has nothing of it to run: before its start, and after its work is gone.
    """
    if lease.state not in ("starting", "active", "reclaiming"):
        return []
    if host_id not in lease.hosts or host_id in lease.stopped or now >= lease.due_at:
        return []
    shares = [share for share in lease.terms.shares if share.host_id == host_id]
    owed = compensation(
        shares,
        lease.terms.price,
        starts_at=lease.starts_at,
        ends_at=lease.due_at,
        asked_at=now,
        stop_at=now,
    )
    lease_id = lease.terms.lease_id
    return [
        LeaseHostLost(
            lease_id=lease_id,
            market=lease.terms.market,
            host_id=host_id,
            owner_id=shares[0].owner_id,
            heard_at=heard_at,
            compensation=owed,
            at=now,
        ),
        LeaseEnding(lease_id=lease_id, reason=close_reasons.HOST_SILENT, at=now),
    ]
