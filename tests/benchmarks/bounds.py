"""Bounds that no clearing of a round of single hosts can pass, found with much work.

Any prices of bids prove one: what the bids gain at them, and what every pool, on its own, could
earn more than they gain. What a pool earns is a small mixed-integer program, whose own bound HiGHS
proves: so that eight GPUs let to a bid of eight cannot be let to three of one as well, which the
prices of GPUs alone cannot say (Dantzig and Wolfe 1960; Geoffrion 1974). Of 1,000 bids that lowers
the bound by 0.1 to 0.2 %; of 10,000, where small bids fill whatever is left, by nothing.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

from marketplace.domain.solver import Problem
from marketplace.domain.solver.arrays import Layout, lay_out
from marketplace.domain.solver.dual_prices import add_up
from marketplace.domain.solver.pricing import Pricing
from marketplace.domain.solver.problem import Floats

Ways = NDArray[Any]
WAY = np.dtype(
    [("pool", int), ("bid", int), ("gpus", int), ("first", int), ("end", int), ("more", float)]
)
SEED = 20261128
STEPS = 1_000
SECONDS = 80.0
BY_POOL_MAX = 2_000
"""Bids of a round whose pools are looked at."""
POOL_SECONDS = 1.0
NEAR = 0.02
"""Ways that cost a pool more than this share of what it earns are left out; it is then taken to
earn less by no more than that."""
UNIT = 1e9
"""Nano-units in what HiGHS reckons with."""


def bound_of(problem: Problem) -> tuple[float, float]:
    """Return the lowest bound found with much work, and how many seconds that took."""
    started = time.perf_counter()
    pricing = Pricing(problem, lay_out(problem), SEED)
    prices, lowest = pricing.prices.mean, inf
    for step in range(STEPS):
        pricing.step()
        late = time.perf_counter() - started > SECONDS
        if late or step % 100 == 99:
            bound = pricing.bound(pricing.prices.mean)
            if bound < lowest:
                lowest, prices = bound, pricing.prices.mean.copy()
        if late:
            break
    if problem.bids <= BY_POOL_MAX:
        lowest = min(lowest, by_pool(problem, pricing, prices))
    return lowest, time.perf_counter() - started


def by_pool(problem: Problem, pricing: Pricing, prices: Floats) -> float:
    """Return the bound of what bids gain, and of what each pool could earn more than that.

    Of a bid in a pool at some time, that is never more than its GPUs cost there and then.
    """
    q, paid = pricing.layout, np.zeros_like(pricing.prices.paid)
    add_up(q, prices, paid)
    pricing.bound(prices)
    gain = pricing.wants.gain
    earned = (prices * problem.capacity * q.slot_hours).sum(axis=1)
    ways = _ways(q, paid, gain, NEAR * earned)
    each = np.split(ways, np.searchsorted(ways["pool"], np.arange(1, q.pools)))
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        proven = np.array(list(threads.map(_proven, each, problem.capacity)))
    most = np.minimum(earned, np.maximum(proven, (1.0 - NEAR) * earned))
    return float(most.sum() + gain.sum()) * (1 + 1e-6) + 1.0


def _ways(q: Layout, paid: Floats, gain: Floats, near: Floats) -> Ways:
    """Return bids, slots and worth above what the bid gains, in the order of pools."""
    found = []
    for bid in range(len(q.row)):
        held = slice(q.list_at[q.listed[bid]], q.list_at[q.listed[bid] + 1])
        size = q.gpus[bid] * q.hours[bid]
        pool = q.pool[held][:, None]
        more = ((q.worth[bid] - q.floor[held]) * size - gain[bid])[:, None]
        first = np.arange(q.first[bid], q.last[bid] + 1)
        end = q.ends[q.row[bid], first]
        inside = (first >= q.opens[pool]) & (end <= q.closes[pool])
        cost = (paid[pool, end] - paid[pool, first]) * q.gpus[bid]
        kept = inside & (q.floor[held] <= q.limit[bid])[:, None] & (more > 0.0)
        entry, start = np.nonzero(kept & (cost - more <= near[pool]))
        way = np.zeros(len(entry), WAY)
        way["pool"], way["bid"], way["gpus"] = pool[entry, 0], bid, q.gpus[bid]
        way["first"], way["end"], way["more"] = first[start], end[start], more[entry, 0]
        found.append(way)
    ways = np.concatenate(found)
    return ways[np.argsort(ways["pool"], kind="stable")]


def _proven(ways: Ways, capacity: NDArray[np.int32]) -> float:
    """Return a bound on what these ways could be worth in one pool, each bid once at most."""
    if not len(ways):
        return 0.0
    solver = highspy.Highs()  # type: ignore[no-untyped-call]  # has no annotations
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("time_limit", POOL_SECONDS)
    solver.setOptionValue("mip_rel_gap", 1e-4)
    count = len(ways)
    which = np.arange(count, dtype=np.int32)
    solver.addVars(count, np.zeros(count), np.ones(count))
    solver.changeColsCost(count, which, -ways["more"] / UNIT)
    kinds = np.full(count, highspy.HighsVarType.kInteger)
    solver.changeColsIntegrality(count, which, kinds)
    for slot, most in enumerate(capacity):
        held = np.flatnonzero((ways["first"] <= slot) & (ways["end"] > slot)).astype(np.int32)
        if held.size:
            gpus = ways["gpus"][held].astype(float)
            solver.addRow(-inf, float(most), held.size, held, gpus)
    for bid, times in zip(*np.unique(ways["bid"], return_counts=True), strict=True):
        if times > 1:
            same = np.flatnonzero(ways["bid"] == bid).astype(np.int32)
            solver.addRow(-inf, 1.0, same.size, same, np.ones(same.size))
    solver.run()
    bound = -float(solver.getInfo().mip_dual_bound)
    return bound * UNIT if np.isfinite(bound) else inf
