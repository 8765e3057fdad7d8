"""Where rounds are far apart, one comes sooner for bids that could not wait for the next.

Twice a bid may be unable to wait: its latest start comes before the next round; or it could take
back what is its unit's own, and by the next round it would be too late to tell those that go.
"""

from __future__ import annotations

from marketplace.domain.book.book import Book
from marketplace.domain.facts.instants import from_above
from marketplace.domain.preemption.reclaim_quota import Standing, may_be_at_risk

APART_MIN = 60_000
"""Rounds that are no further apart than this, in milliseconds, come as they do."""
LAST_CALL = 60_000
"""How long before its latest start a bid is tried once more."""
AT_RISK_EVERY = 10 * 60_000
"""How often at least rounds come while a bid may have to take back its own. Within the half hour
in which each of those that go can still be told, there are two."""


def is_called(book: Book, *, since: int, now: int) -> bool:
    """Tell if a round has to come now although it is not time yet. since: of the last one.

    The cost is that of a look at each patient bid, and at each lease where there are quotas.
    """
    if now - since < APART_MIN:
        return False
    waiting = [bid for bid in book.patient() if now <= bid.least.latest_start]
    for bid in waiting:
        called_at = bid.least.latest_start - LAST_CALL
        # Called once: the round that hears it is not before that.
        if since < max(called_at, from_above(bid.terms.at)) <= now and called_at <= now:
            return True
    if book.quotas is None or now - since < AT_RISK_EVERY:
        return False
    return bool(may_be_at_risk(Standing(book, book.calendar, book.quotas, now), waiting))
