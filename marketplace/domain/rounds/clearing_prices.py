"""What the grants of a round pay, from the dual prices that the search found.

A dual price says what one more GPU of a pool would be worth in a slot. The search moves prices
towards where demand meets supply and stops somewhere near; here they are lowered, pool by pool, as
far as they go without any refused bid wanting in. So nobody pays for a scarcity that is not there,
and where one bid kept another out it pays about what the other would have paid.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.domain.clearing.work_budget import Tries
from marketplace.domain.kernels.cheapest_start import cheapest_start
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.rounds.pools import Pool
from marketplace.domain.solver.problem import Floats, Ints

RIVALS_MAX = 500
"""Refused bids that are heard on the prices, from the highest limit down."""

TICK = 1_000_000
"""Prices that come out of a search are whole thousandths: finer would be noise."""

Usable = Callable[[OpenBid], Ints]


class Prices:
    """The prices of one service class of a round.

    duals: [P, T], nano-units per GPU-hour on top of the floors. usable: the numbers of the pools
    that a bid may use at its limit, and that are large enough for it.
    """

    def __init__(
        self, grid: Sequence[int], pools: Sequence[Pool], duals: Ints, usable: Usable
    ) -> None:
        self._instants, self._grid = grid, np.array(grid, np.int64)
        self._pools = pools
        self._floors = np.array([pool.listed.floor for pool in pools], np.int64)
        self._duals = duals.astype(np.float64)
        self._usable = usable
        most = max((len(pool.spans) for pool in pools), default=0)
        # Of pools with fewer spans than others the rest are empty: nothing fits into them.
        self._opens = np.full((len(pools), most), np.iinfo(np.int64).max)
        self._closes = np.zeros((len(pools), most), np.int64)
        for number, pool in enumerate(pools):
            for place, (opens, closes) in enumerate(pool.spans):
                self._opens[number, place], self._closes[number, place] = opens, closes

    def lower(self, refused: Iterable[OpenBid], tries: Tries) -> None:
        """Lower the prices of each pool to where the first of the refused bids would want in.

        Those for whom there is no time are not heard.
        """
        keep = np.zeros(len(self._pools))
        paid = self._paid()
        rivals = sorted(refused, key=lambda bid: bid.price_time)[:RIVALS_MAX]
        for bid in rivals:
            if not tries.more():
                break
            numbers = self._usable(bid)
            cheapest = self._cheapest(bid, numbers, paid)
            wants = (cheapest > 0) & np.isfinite(cheapest)
            numbers = numbers[wants]
            gain = (bid.limit - self._floors[numbers]) / cheapest[wants]
            keep[numbers] = np.maximum(keep[numbers], np.minimum(1.0, gain))
        self._duals *= keep[:, None]

    def of(self, bid: OpenBid, counts: Mapping[int, int], starts: int) -> int:
        """Return the mean of floor plus dual over a grant's GPU-time, down to a whole tick.

        counts: GPUs by pool number. In nano-units per GPU-hour; floor and limit are not heeded.
        """
        ends, total = starts + bid.duration, 0.0
        inside = np.minimum(self._grid[1:], ends) - np.maximum(self._grid[:-1], starts)
        held = np.maximum(inside, 0) / bid.duration
        for number, gpus in counts.items():
            dual = float((self._duals[number] * held).sum())
            total += gpus * (self._pools[number].listed.floor + dual)
        return int(total / sum(counts.values())) // TICK * TICK

    def regrets(self, refused: Iterable[OpenBid], tries: Tries) -> tuple[int, int]:
        """Return how many refused bids would have gained at these prices, and how much in all.

        Each GPU is counted at the cheapest pool and start that the bid could use, so the figures
        are rather too high than too low; but who is not come to in time is not counted.
        """
        paid = self._paid()
        count, worth = 0, 0
        for bid in refused:
            if not tries.more():
                break
            numbers = self._usable(bid)
            gains = bid.limit - self._floors[numbers] - self._cheapest(bid, numbers, paid)
            most = float(gains.max(initial=0.0))
            gain = int(most) * bid.gpus * bid.duration // MILLIS_PER_HOUR
            if gain > 0:
                count, worth = count + 1, worth + gain
        return count, worth

    def _paid(self) -> Floats:
        """Return dual price × time up to each point of the grid."""
        steps = np.cumsum(self._duals * np.diff(self._grid), axis=1)
        return np.concatenate([np.zeros((len(self._pools), 1)), steps], axis=1)

    def _cheapest(self, bid: OpenBid, numbers: Ints, paid: Floats) -> Floats:
        """Return the mean dual at the cheapest start in each pool; infinite where it cannot run."""
        grid = self._grid
        first = bisect_left(self._instants, bid.earliest)
        end = bisect_right(self._instants, bid.latest_start)
        if first >= end or not numbers.size:
            return np.full(len(numbers), np.inf)
        least = np.zeros(len(numbers))
        cheapest_start(
            grid, paid, self._opens, self._closes, numbers, first, end, bid.duration, least
        )
        return least
