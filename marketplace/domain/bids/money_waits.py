"""Work whose next step its account does not cover: who waits for money, for what, and how long."""

from __future__ import annotations

from datetime import datetime, timedelta

from marketplace.domain.bids.bid import Bid, hold_of, shortest
from marketplace.domain.bids.pausing import saves_itself
from marketplace.domain.facts.events import BidAwaitsMoney, BidPlaced
from marketplace.domain.spending.budget import BudgetUsedUp

WAIT_MAX = timedelta(days=7)
"""So long work waits for money at most; then nothing follows."""
AFTER_OPENING = timedelta(days=1)
"""Work that waits for a budget waits for its next period at least, and so much longer."""


def goes_on_with_money(bid: Bid) -> bool:
    """Tell if work pauses where its next step is not covered, and goes on once it is.

    Work that saves nothing would begin anew each time: it ends when its granted time is over.
    """
    return bid.terms.resume and not bid.chain_ended and saves_itself(bid.terms.workload)


def wait_for_money(
    bid: Bid, following: BidPlaced, *, now: datetime, refused: BudgetUsedUp | None = None
) -> list[BidAwaitsMoney]:
    """Decide that what is to follow a bid waits for money; once, and from its first wait on.

    Nothing where the chain is over, or where it would be too late already (`is_too_late`).

    Args:
        following: what would be placed now, had its account the money.
        refused: the budget that has no room for it; None: the account has not the money.
    """
    budget, opens_at = "", None
    if refused is not None:
        budget, opens_at = refused.budget, refused.opens_at
    if bid.chain_ended or bid.awaits is not None or is_too_late(following, now=now):
        return []
    return [
        BidAwaitsMoney(
            bid_id=bid.terms.bid_id,
            account_id=following.account_id,
            needs=hold_of(following, following.limit),
            until=_until(following, now, opens_at),
            at=now,
            budget=budget,
            opens_at=opens_at,
        )
    ]


def is_too_late(following: BidPlaced, *, now: datetime) -> bool:
    """Tell if what follows could not be done in time any more, whenever money came."""
    return _until(following, now) <= now


def _until(following: BidPlaced, now: datetime, opens_at: datetime | None = None) -> datetime:
    """Return until when money may come: the rest has to be done by its deadline."""
    longest = now + WAIT_MAX
    if opens_at is not None:
        longest = max(longest, opens_at + AFTER_OPENING)
    return min(following.deadline - shortest(following), longest)
