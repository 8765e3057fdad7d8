"""The market interrupts a lease for a firm bid: decided already, here it is taken up."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.ids import LeaseId
from marketplace.domain.facts.events import Compensation, LeaseEvent, LeaseInterrupted
from marketplace.domain.leases.lease import Lease


def interrupt(
    lease: Lease, *, in_favour_of: LeaseId, stop_at: datetime, now: datetime
) -> list[LeaseEvent]:
    """Take up that the engine gave a lease's capacity to a firm bid from `stop_at` on.

    The consumer is compensated by each owner as by a reclaim with that notice. A lease that is
    over, or stops by then because its owner wants it back, is left alone.
    """
    sooner = lease.stop_at is not None and lease.stop_at <= stop_at
    if sooner or lease.over or lease.state == "ending":
        return []
    owners = dict.fromkeys(share.owner_id for share in lease.terms.shares)
    owed = [
        Compensation(owner, lease.compensation(owner, asked_at=now, stop_at=stop_at))
        for owner in owners
    ]
    return [
        LeaseInterrupted(
            lease_id=lease.terms.lease_id,
            in_favour_of=in_favour_of,
            stop_at=stop_at,
            compensations=tuple(owed),
            at=now,
        )
    ]


def owner_was_first(lease: Lease) -> bool:
    """Tell if an owner had taken the capacity back before the market gave it to a firm bid.

    Then the firm lease does not stand: owners come first, also where the engine had not read of
    their reclaim yet.
    """
    if lease.rights.interrupted:
        return lease.rights.reclaimed_first
    return lease.stop_at is not None
