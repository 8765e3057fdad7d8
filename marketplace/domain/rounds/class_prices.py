"""What the grants of one service class pay, and what those who got none regret."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from ledger.domain.ids import BidId
from marketplace.domain.clearing.fills import Fill
from marketplace.domain.clearing.work_budget import Tries
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import is_own
from marketplace.domain.rounds.ageing import weight_of
from marketplace.domain.rounds.class_problem import Part
from marketplace.domain.rounds.clearing_prices import RIVALS_MAX, Prices
from marketplace.domain.rounds.quota_constraints import kept_out
from marketplace.domain.rounds.realise import Given
from marketplace.domain.rounds.this_round import Round
from marketplace.domain.solver.problem import Ints


def heard(this: Round, part: Part, refused: Sequence[OpenBid]) -> Sequence[OpenBid]:
    """Return the refused bids that are heard on prices: not those that quotas keep out."""
    gate = this.gate
    if gate is None:
        return refused
    rivals, usable = [], part.usable
    for bid in sorted(refused, key=lambda bid: bid.price_time)[:RIVALS_MAX]:
        pools = [] if bid.bid_id in gate.reasons else usable(bid).tolist()
        bound = bid.bid_id in part.bounds.groups
        if pools and not (bound and kept_out(gate.quotas, bid, part.pools[pools[0]], now=this.at)):
            rivals.append(bid)
    return rivals


class Priced:
    """The prices of one service class. duals: of the search. rivals: who is heard on them."""

    def __init__(self, name: str, part: Part, duals: Ints, rivals: Sequence[OpenBid]) -> None:
        self.name = name
        self._part, self._rivals = part, rivals
        self._prices = Prices(part.grid, part.pools, duals, part.usable)

    def fills(self, this: Round, placed: Sequence[Given], tries: Tries) -> list[Fill]:
        """Return the grants with what they pay: between floor and limit, or nothing at home.

        What is within nominal quota pays the floor, however it came to be granted.
        """
        self._prices.lower(self._rivals, tries)
        pools = self._part.pools
        at = {(id(pool.listed), uuid): n for n, pool in enumerate(pools) for uuid in pool.uuids}
        found = []
        for bid, placement in placed:
            lease_id = this.lease_id(bid)
            if is_own(bid, placement):
                found.append(Fill(bid, lease_id, placement, 0))
                continue
            price = placement.floor
            if this.gate is None or lease_id not in this.gate.own:
                counts = Counter(at[id(listed), uuid] for listed, uuid in placement.gpus)
                dear = self._prices.of(bid, counts, placement.starts)
                price = min(bid.limit, max(price, dear))
            weight = weight_of(bid, now=this.at)
            found.append(Fill(bid, lease_id, placement, price, weight))
        return found

    def regrets(self, served: Collection[BidId], tries: Tries) -> tuple[int, int]:
        """Return how many refused bids would have gained at these prices, and how much in all.

        served: those that were, after all. Who is not come to any more is not counted.
        """
        left = [bid for bid in self._rivals if bid.bid_id not in served]
        return self._prices.regrets(left, tries)
