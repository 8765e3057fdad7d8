"""Work that moves: a lease gives way to another one of the same work, which begins as it ends.

The other one is secured first: it is granted for a bid that says that it moves
(`Continues.moves`), and becomes a lease in one append with the end of the first, or neither is
written. Until then, and where the other one falls away before it begins, the work stays where it
is. Time, and with it money, goes on without gap or overlap: the right to the first lease ends at
the moment at which the right to the other begins.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from ledger.domain.ids import LeaseId
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import CutWithdrawn, LeaseEvent, LeaseGranted, LeaseMoved
from marketplace.domain.leases.grant_checks import GrantUnfit, withdraw_cut
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.renewals import MOVES_WITHIN


def moving_from(bid: Bid) -> LeaseId | None:
    """Return the lease that gives way where this bid gets one; None: it is an ordinary bid."""
    link = bid.terms.continues
    return None if link is None or not link.moves else link.lease_id


def is_free(lease: Lease) -> bool:
    """Tell if the work of a lease runs, and nobody takes anything from it: then it may move."""
    rights = lease.rights
    claimed = rights.stop_at is not None or rights.shortened or rights.resale
    return lease.state == "active" and not claimed


def give_way(
    lease: Lease | None, *, granted: LeaseGranted, bid: Bid, now: datetime
) -> list[LeaseEvent]:
    """Decide whether a lease gives way to the grant that its work moves to, and say so; once.

    now: by the clock of whoever takes the grant up. The work has its grace before it has to stop.

    Raises: GrantUnfit: one that is over, ends anyway, or is claimed by others does not move; nor
        does anything move at the cost of another's work.
    """
    if lease is None or granted.cuts:
        raise GrantUnfit("lease-changed")
    moved = lease.rights.moved
    if moved is not None and moved.in_favour_of == granted.lease_id:
        return []
    lease_id, stop_at = lease.terms.lease_id, granted.window.starts_at
    if not is_free(lease) or stop_at >= lease.ends_at:
        raise GrantUnfit("lease-changed", lease_id=str(lease_id))
    if stop_at < now + lease.grace or stop_at > bid.terms.earliest_start + MOVES_WITHIN:
        raise GrantUnfit("too-late", decided_at=granted.at)
    return [
        LeaseMoved(
            lease_id=lease_id,
            market=lease.terms.market,
            in_favour_of=granted.lease_id,
            bid_id=granted.bid_id,
            stop_at=stop_at,
            at=granted.at,
        )
    ]


def stay(lease: Lease | None, *, in_favour_of: LeaseId, now: datetime) -> list[CutWithdrawn]:
    """Let a lease go on whose work was to move to one that fell away; one that ends, ends."""
    if lease is None or lease.over or lease.state == "ending":
        return []
    if lease.rights.moved is None or lease.rights.moved.in_favour_of != in_favour_of:
        return []
    return [
        each
        for each in withdraw_cut(lease, in_favour_of, now=now)
        if isinstance(each, CutWithdrawn)
    ]


def goes_on_elsewhere(lease: Lease) -> bool:
    """Tell if the work of a lease that is over goes on in the lease that it moves to.

    Not where it was done, failed by itself, or its consumer wanted no more of it.
    """
    return lease.rights.moved is not None and lease.ending_reason in close_reasons.CUT_SHORT


def taker_of(lease: Lease) -> Literal["owner", "market", "budget", "cloud", "move"]:
    """Return who cuts a lease short, by the claim that is due first."""
    rights = lease.rights
    if rights.interrupted:
        return "budget" if rights.for_budget else "market"
    if rights.taken_back:
        return "cloud"
    return "move" if rights.moves_first else "owner"
