"""Ask for the next step of a lease that goes on by itself."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.accounts import FundsInsufficient
from ledger.domain.ids import LeaseId
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta, load
from marketplace.commands.leases import refuse_extension, request_extension
from marketplace.domain.bids.bid import Bid
from marketplace.domain.bids.money_waits import goes_on_with_money
from marketplace.domain.leases.lease import Lease, LeaseUnknown
from marketplace.domain.leases.renewals import BudgetSpent, need_budget, next_end
from marketplace.domain.spending.budget import BudgetUsedUp

WAITS_FOR = (FundsInsufficient, BudgetUsedUp)
"""Work that saves itself is paused where its next step is refused for these, and goes on later."""


def extend_when_due(store: EventStore, *, lease_id: LeaseId, by: Meta, now: datetime) -> bool:
    """Ask for a lease's next step if it is time for it; tell if that was so.

    Each step is asked for once, however often this is called. A step that is refused is noted on
    the lease with the reason, once, and can be asked for again.

    Raises: LeaseUnknown, FundsInsufficient and the other refusals of
        `request_extension`.
    """
    lease = load(store, Lease, lease_id)
    if lease is None:
        raise LeaseUnknown(lease_id=lease_id)
    bid = load(store, Bid, lease.terms.bid_id)
    assert bid is not None, "a lease comes from a bid"
    ends_at = next_end(bid.terms, lease, now=now)
    if ends_at is None:
        return False
    try:
        need_budget(bid.terms, lease, ends_at=ends_at)
        request_extension(store, lease_id=lease_id, ends_at=ends_at, by=by, now=now)
    except Refusal as refusal:
        refuse_extension(
            store,
            lease_id=lease_id,
            ends_at=ends_at,
            reason=refusal.code,
            pausing=isinstance(refusal, WAITS_FOR) and goes_on_with_money(bid),
            by=by.step(f"refused:{refusal.code}:{ends_at.isoformat()}"),
            now=now,
        )
        if isinstance(refusal, BudgetSpent):
            return False  # the bid itself said how far it goes
        raise
    return True
