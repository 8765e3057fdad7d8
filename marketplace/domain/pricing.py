"""What a lease costs: the price rules, and why both sides can live with them.

Instant lane: a trade takes place at the price of the side that was in the book first. A bid that
comes to offers pays their floor (the highest one's, for a gang); an offer that comes to waiting
bids earns the limit of the bid that it serves. An offer made for one bid alone trades at its floor:
it is the answer to that bid.

Rounds: every grant pays the highest of
  * the floors of its offers, and
  * the highest limit among the bids of the round that were refused only for want of that very
    capacity: they would be placed if this grant, and nothing else, were undone;
and never more than its own limit.

In both lanes the price lies between the floor and the limit, so nobody is worse off than without
the trade; and buyers pay exactly what owners and platform share, so nothing has to be made up.
Neither rule is strategy-proof: no rule that also balances can be (Myerson, Satterthwaite 1983).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from marketplace.domain.demand import OpenBid
from marketplace.domain.packing import Placement

RIVALS_MAX = 100
"""Refused bids that are tried against one grant, from the highest limit down."""


def instant_price(bid: OpenBid, placement: Placement) -> int:
    """Return the price of a trade of the instant lane, in nano-units per GPU-hour."""
    offer_came_later = any(
        listed.since > bid.since and listed.terms.reserved_for is None
        for listed, _ in placement.gpus
    )
    return bid.limit if offer_came_later else placement.floor


def round_price(
    bid: OpenBid,
    placement: Placement,
    refused: Iterable[OpenBid],
    would_fit: Callable[[OpenBid], bool],
) -> int:
    """Return the price of a grant of a round, in nano-units per GPU-hour.

    Args:
        refused: the bids that got nothing, highest limit first.
        would_fit: tells if a bid could be placed if this grant alone were undone.
    """
    for tried, rival in enumerate(refused):
        if rival.limit <= placement.floor or tried == RIVALS_MAX:
            break
        if would_fit(rival):
            return min(rival.limit, bid.limit)
    return placement.floor
