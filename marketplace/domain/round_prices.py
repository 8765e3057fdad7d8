"""What the grants of a round pay, from the dual prices that the search found.

A dual price says what one more GPU of a pool would be worth in a slot. The search moves prices
towards where demand meets supply and stops somewhere near; here they are lowered, pool by pool, as
far as they go without any refused bid wanting in. So nobody pays for a scarcity that is not there,
and where one bid kept another out it pays about what the other would have paid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.domain.demand import OpenBid
from marketplace.domain.optimum.problem import Floats, Ints
from marketplace.domain.pools import Pool

RIVALS_MAX = 500
"""Refused bids that are heard on the prices, from the highest limit down."""

TICK = 1_000_000
"""Prices that come out of a search are whole thousandths: finer would be noise."""

Usable = Callable[[OpenBid], Sequence[int]]


class Prices:
    """The prices of one service class of a round.

    duals: [P, T], nano-units per GPU-hour on top of the floors. usable: the numbers of the pools
    that a bid may use at its limit, and that are large enough for it.
    """

    def __init__(
        self, grid: Sequence[int], pools: Sequence[Pool], duals: Ints, usable: Usable
    ) -> None:
        self._grid = np.array(grid, np.int64)
        self._pools = pools
        self._duals = duals.astype(np.float64)
        self._usable = usable

    def lower(self, refused: Iterable[OpenBid]) -> None:
        """Lower the prices of each pool to where the first of the refused bids would want in."""
        keep = np.zeros(len(self._pools))
        paid = self._paid()
        rivals = sorted(refused, key=lambda bid: bid.price_time)[:RIVALS_MAX]
        for bid in rivals:
            for number in self._usable(bid):
                cheapest = self._cheapest(bid, number, paid)
                if cheapest:
                    gain = bid.limit - self._pools[number].listed.floor
                    keep[number] = max(keep[number], min(1.0, gain / cheapest))
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

    def regrets(self, refused: Iterable[OpenBid]) -> tuple[int, int]:
        """Return how many refused bids would have gained at these prices, and how much in all.

        Each GPU is counted at the cheapest pool and start that the bid could use, so the figures
        are rather too high than too low.
        """
        paid = self._paid()
        count, worth = 0, 0
        for bid in refused:
            gains = [
                bid.limit - self._pools[number].listed.floor - cheapest
                for number in self._usable(bid)
                if (cheapest := self._cheapest(bid, number, paid)) is not None
            ]
            gain = int(max(gains, default=0.0)) * bid.gpus * bid.duration // MILLIS_PER_HOUR
            if gain > 0:
                count, worth = count + 1, worth + gain
        return count, worth

    def _paid(self) -> Floats:
        """Return dual price × time up to each point of the grid."""
        steps = np.cumsum(self._duals * np.diff(self._grid), axis=1)
        return np.concatenate([np.zeros((len(self._pools), 1)), steps], axis=1)

    def _cheapest(self, bid: OpenBid, number: int, paid: Floats) -> float | None:
        """Return the mean dual at the cheapest start in a pool; None if it cannot run there."""
        starts = self._grid[(self._grid >= bid.earliest) & (self._grid <= bid.latest_start)]
        ends = starts + bid.duration
        free = np.zeros(len(starts), bool)
        for opens, closes in self._pools[number].spans:
            free |= (opens <= starts) & (ends <= closes)
        starts, ends = starts[free], ends[free]
        if not starts.size:
            return None
        line = paid[number]
        spent = np.interp(ends, self._grid, line) - np.interp(starts, self._grid, line)
        return float(spent.min()) / bid.duration
