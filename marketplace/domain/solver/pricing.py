"""The prices of one round, step by step, and the bound that they prove: see `dual_prices`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import gcd

import numpy as np

from marketplace.domain.kernels.jit import compiles
from marketplace.domain.solver.arrays import Layout
from marketplace.domain.solver.dual_prices import (
    EASED,
    LOOK_WORK,
    LOOK_WORK_PLAIN,
    MEMORY,
    SHORT,
    STEP_FIRST,
    STEP_HALF,
    TURN,
    Wants,
    add_up,
    gains,
    open_prices,
    sweep,
)
from marketplace.domain.solver.insertion import FAR
from marketplace.domain.solver.problem import Floats, Problem
from marketplace.domain.solver.quota_prices import earned_by
from marketplace.domain.solver.rng import mixed
from marketplace.domain.solver.scratch import Bench, Fees, bench_for, lay_fees
from marketplace.domain.solver.state import begin
from marketplace.domain.solver.threads import both, is_large


class Pricing:
    """Prices, and the wants they are moved by, for one problem."""

    def __init__(self, problem: Problem, layout: Layout, seed: int) -> None:
        self.layout = layout
        self.empty = begin(problem, layout)
        self.bench = bench_for(layout)
        self.prices = open_prices(layout)
        bids = problem.bids
        self.wants = Wants(
            short=np.full((bids, SHORT), -1, np.int64),
            gain=np.zeros(bids),
            least=np.full(bids, FAR),
        )
        self.kept = np.zeros(SHORT)
        self.seed = seed
        self.steps = self.asked = self.bounded = self.eased = 0
        each = layout.slots * np.diff(layout.list_at)[layout.listed].mean() if bids else 0
        work = LOOK_WORK if compiles() else LOOK_WORK_PLAIN
        self.between = max(1, int(work / max(1.0, float(each))))

    def step(self, enough: Callable[[], bool] | None = None, until: int | None = None) -> bool:
        """Ask all bids, and move the prices; say if all were asked.

        enough: asked now and then; once true, no more bids are. until: so many are asked only.
        `asked` tells how many were, where not all.
        """
        at, bids = self.steps + self.eased, len(self.layout.row)
        self.bench.tolled[0] = len(self.bench.levy) > 0
        done, until = 0, bids if until is None else until
        while done < until:
            since, done = done, min(until, done + self.between)
            sweep(
                self.layout, self.empty, self.bench, self.prices, self.wants, self.kept,
                at, 1 if self.steps == 0 else TURN, STEP_FIRST / (1.0 + at / STEP_HALF),
                self._stride(), max(MEMORY, 1.0 / (at + 1)), since, done,
            )  # fmt: skip
            if done < until and enough is not None and enough():
                break
        if done < bids:
            self.asked = done
            return False
        self.steps += 1
        return True

    def start_at(self, prices: Floats, other: Pricing) -> None:
        """Start at these prices, and at what quotas cost in another pricing of the same round.

        Steps are as short as if `EASED` had been made already.
        """
        mine, theirs = self.prices, other.prices
        mine.live[:] = mine.mean[:] = prices
        np.cumsum(prices * self.layout.slot_hours, axis=1, out=mine.paid[:, 1:])
        mine.tolls[:], mine.tolls_mean[:] = theirs.tolls, theirs.tolls_mean
        mine.levy_mean[:] = theirs.levy_mean
        self.bench.tolls[:], self.bench.levy[:] = other.bench.tolls, other.bench.levy
        self.eased = EASED

    def fees(self) -> Fees:
        """Return what quotas cost on the mean."""
        return Fees(self.prices.tolls_mean.copy(), self.prices.levy_mean.copy())

    def bound(
        self,
        prices: Floats,
        fees: Fees | None = None,
        *,
        enough: Callable[[], bool] | None = None,
        until: int = 0,
    ) -> float:
        """Return the least bound on any clearing that these prices, [P, T], prove.

        fees: of quotas; none if not given. enough: asked now and then; once true, the other bids
        count with their whole worth, and `bounded` tells how many were asked, where not all. until:
        only so many are asked, where not 0.
        """
        q, bench = self.layout, self.bench
        if fees is None:
            fees = Fees(np.zeros_like(self.prices.tolls), np.zeros_like(bench.levy))
        tolls, levy = bench.tolls.copy(), bench.levy.copy()
        lay_fees(q, bench, fees)
        paid = np.zeros_like(self.prices.paid)
        earned = add_up(q, prices, paid) + earned_by(q, self.empty, fees)
        gained = self._gains(paid, enough, until)
        bench.tolls[:], bench.levy[:] = tolls, levy
        return (earned + gained) * (1 + 1e-9) + 1.0

    def _gains(self, paid: Floats, enough: Callable[[], bool] | None, most: int) -> float:
        """Ask bids what they would gain; those of a large round in two halves."""
        q, bids = self.layout, len(self.layout.row)
        middle = bids // 2 if is_large(q) else bids
        self.bounded = 0

        def ask(bench: Bench, since: int, until: int, gained: float = 0.0) -> float:
            kept = np.zeros_like(self.kept)
            return float(gains(q, self.empty, paid, bench, self.wants, kept, since, until, gained))

        if enough is not None or most:
            return self._gains_until(ask, middle, enough, most or bids)
        if middle == bids:
            return ask(self.bench, 0, bids)
        other = bench_for(q)
        other.tolls[:], other.levy[:] = self.bench.tolls, self.bench.levy
        other.tolled[:] = self.bench.tolled
        first, second = partial(ask, self.bench, 0), partial(ask, other, middle)
        return sum(both(partial(first, middle), partial(second, bids)))

    def _gains_until(
        self,
        ask: Callable[[Bench, int, int, float], float],
        middle: int,
        enough: Callable[[], bool] | None,
        most: int,
    ) -> float:
        """Ask bids until it is enough, at most so many; of the others, assume the most."""
        q, bids, done = self.layout, len(self.layout.row), 0
        gained = {middle: 0.0, bids: 0.0}
        while done < most:
            half = middle if done < middle else bids
            at, done = done, min(done + self.between, half, most)
            gained[half] = ask(self.bench, at, done, gained[half])
            if done < most and enough is not None and enough():
                break
        self.bounded = done if done < bids else 0
        worth = q.worth[done:] * q.gpus[done:] * q.hours[done:]
        return sum(gained.values()) + float(worth.sum())

    def _stride(self) -> int:
        """Return a stride that visits every bid, another in each step."""
        bids = max(1, len(self.layout.row))
        stride = mixed(self.seed & 0x7FFFFFFF, self.steps) % bids
        while gcd(stride, bids) > 1:
            stride += 1
        return stride
