"""What a trade of the instant lane costs, and why both sides can live with it.

It takes place at the price of the side that was in the book first. A bid that comes to offers
pays their floor (the highest one's, for a gang); an offer that comes to waiting bids earns the
limit of the bid that it serves. An offer made for one bid alone trades at its floor: it is the
answer to that bid. A bid that its own tenant's offers serve pays nothing (`own_supply_first`).
What a round's grants cost is in `batch_clearing`.

In both lanes the price lies between the floor and the limit, so nobody is worse off than without
the trade; and buyers pay exactly what owners and platform share, so nothing has to be made up.
Neither rule is strategy-proof: no rule that also balances can be (Myerson, Satterthwaite 1983).
"""

from __future__ import annotations

from marketplace.domain.index.own_supply import is_own
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import Placement


def instant_price(bid: OpenBid, placement: Placement) -> int:
    """Return the price of a trade of the instant lane, in nano-units per GPU-hour."""
    if is_own(bid, placement):
        return 0
    for listed, _ in placement.gpus:
        if listed.since > bid.since and listed.terms.reserved_for is None:
            return bid.limit
    return placement.floor
