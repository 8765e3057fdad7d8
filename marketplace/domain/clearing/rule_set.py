"""The rules of a market that can be put differently, as one value: the present ones by default.

The market itself runs under `PRESENT`. The policy lab runs the same engine over the same facts
under others, to see what they would have made of it. Which grants are made does not depend on the
price rule: it divides what a grant is worth, between floor and limit, and nothing else.

A trade of the instant lane takes place at the price of the side that was in the book first. A bid
that comes to offers pays their floor (the highest one's, for a gang); an offer that comes to
waiting bids earns the limit of the bid that it serves. An offer made for one bid alone trades at
its floor: it is the answer to that bid. A bid that its own tenant's offers serve pays nothing
(`own_supply_first`). What a round's grants cost is in `batch_clearing`.

In both lanes the price lies between the floor and the limit, so nobody is worse off than without
the trade; and buyers pay exactly what owners and platform share, so nothing has to be made up.
Neither rule is strategy-proof: no rule that also balances can be (Myerson, Satterthwaite 1983).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from marketplace.domain.clearing.fills import Clearing, Fill
from marketplace.domain.index.own_supply import is_own
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import Placement

PriceRule = Literal["market", "floor", "midpoint", "limit"]

PRICE_RULES: dict[str, str] = {
    "market": "as the market does: first come sets it at once, the round's price in rounds",
    "floor": "the highest floor among the offers: all of the gain goes to the bidder",
    "midpoint": "half way between floor and limit: a double auction with k = ½",
    "limit": "pay as bid: all of the gain goes to the owner",
}
"""Every price rule and how it reads."""

assert tuple(PRICE_RULES) == get_args(PriceRule)


@dataclass(frozen=True, slots=True)
class Rules:
    """What the engine goes by. price: how a grant's price is set between floor and limit.

    preemption: whether leases are interrupted for firm bids and for what is within nominal quota.
    """

    price: PriceRule = "market"
    preemption: bool = True

    def priced(self, clearing: Clearing) -> Clearing:
        """Return a clearing with the prices that these rules set."""
        if self.price == "market":
            return clearing
        fills = tuple(replace(fill, price=self._price(fill)) for fill in clearing.fills)
        return replace(clearing, fills=fills)

    def _price(self, fill: Fill) -> int:
        if fill.own or fill.cuts:
            return fill.price  # what a cut costs has to be covered
        floor, limit = fill.placement.floor, fill.bid.limit
        match self.price:
            case "floor":
                return floor
            case "limit":
                return limit
            case "midpoint":
                return (floor + limit) // 2
            case "market":
                return fill.price


PRESENT = Rules()


def instant_price(bid: OpenBid, placement: Placement) -> int:
    """Return the price of a trade of the instant lane, in nano-units per GPU-hour."""
    if is_own(bid, placement):
        return 0
    for listed, _ in placement.gpus:
        if listed.since > bid.since and listed.terms.reserved_for is None:
            return bid.limit
    return placement.floor
