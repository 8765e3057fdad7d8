"""Bids of several GPUs lie where a plain search over all starts and pools would put them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from marketplace.domain.solver import (
    ANYWHERE,
    ONE_HOST,
    ONE_POOL,
    Ask,
    Entry,
    Pool,
    Problem,
    Quota,
    pose,
)
from marketplace.domain.solver.arrays import Layout, lay_out
from marketplace.domain.solver.dual_prices import SHORT, add_up, gains
from marketplace.domain.solver.greedy import place_all
from marketplace.domain.solver.insertion import find_gang, slices
from marketplace.domain.solver.pricing import Pricing
from marketplace.domain.solver.problem import Floats
from marketplace.domain.solver.quota_costs import bar
from marketplace.domain.solver.scratch import bench_for
from marketplace.domain.solver.state import State, begin
from tests.marketplace.solver.markets import CENT, HOUR, PROFILES

Found = tuple[float, int]
ROUNDS, SLOTS = 40, 12


def round_of_gangs(seed: int) -> Problem:
    """Return a round in which hosts have GPUs that are free at different times, and many tie."""
    chance = Random(seed)
    grid = [0]
    for _ in range(SLOTS):
        grid.append(grid[-1] + chance.choice([HOUR, HOUR, HOUR // 2]))
    pools, floors = list[Pool](), list[int]()
    for host in range(6):
        floor = chance.choice([20, 30, 40]) * CENT
        for _ in range(chance.choice([1, 1, 2, 3, 4])):
            if chance.random() < 0.1:
                pools.append(Pool(host, (1,) * SLOTS, divided=True))
            else:
                opens, gpus = chance.choice([0, 0, 0, 2, 5]), chance.choice([1, 1, 2, 4])
                free = [gpus if slot >= opens else 0 for slot in range(SLOTS)]
                if chance.random() < 0.2:
                    free[chance.randrange(SLOTS)] = 0
                pools.append(Pool(host, tuple(free)))
            floors.append(floor if chance.random() < 0.7 else chance.choice([20, 30, 40]) * CENT)
    quota = Quota(concurrent=tuple(chance.choice([2, 8, 8, 8]) for _ in range(SLOTS)))
    return pose(grid, pools, [_ask(pools, floors, chance) for _ in range(60)], [quota])


def _ask(pools: list[Pool], floors: list[int], chance: Random) -> Ask:
    small = chance.random() < 0.1
    masks = PROFILES[chance.choice(["1g.10gb", "3g.40gb"]) if small else "7g.80gb"]
    entries = tuple(
        Entry(pool, floor, units=1, masks=masks if held.divided else ())
        for pool, (held, floor) in enumerate(zip(pools, floors, strict=True))
        if chance.random() < 0.8 and (held.divided or not small)
    )
    duration, earliest = chance.randint(1, 8) * HOUR // 2, chance.randrange(0, 4 * HOUR, HOUR // 4)
    return Ask(
        gpus=chance.choice([2, 2, 3, 4, 6]),
        duration=duration,
        earliest=earliest,
        deadline=earliest + duration + chance.choice([0, 2, 5]) * HOUR,
        limit=chance.randint(25, 90) * CENT,
        entries=entries,
        spread=chance.choice([ONE_HOST, ONE_HOST, ANYWHERE]),
        groups=(0,) if chance.random() < 0.2 else (),
    )


def plain_gang(
    q: Layout, st: State, paid: Floats, barred: set[int], i: int, alpha: float
) -> Found | None:
    """Return the cost and slot of the cheapest place of a bid, of equals the earliest."""
    entries = [
        j
        for j in range(q.list_at[q.listed[i]], q.list_at[q.listed[i] + 1])
        if q.floor[j] <= q.limit[i]
    ]
    hosts = sorted({int(q.host[j]) for j in entries})
    apart = [entries] if q.spread[i] == ANYWHERE else [
        [j for j in entries if q.host[j] == host] for host in hosts
    ]  # fmt: skip
    found = []
    for s in range(int(q.first[i]), int(q.last[i]) + 1):
        e = int(q.ends[q.row[i], s])
        if barred & set(range(s, e)):
            continue
        for together in apart:
            rates = []
            for j in together:
                fit = int(st.free[q.pool[j], s:e].min()) // int(q.units[j])
                fit = min(fit, int(q.gpus[i]))
                if fit and q.divided[q.pool[j]]:
                    fit = int(slices(q, st, j, s, e, fit, 0)[0])
                price = paid[q.pool[j], e] - paid[q.pool[j], s]
                rates.append((q.floor[j] * q.hours[i] + alpha * q.units[j] * price, fit))
            left, cost = int(q.gpus[i]), 0.0
            for rate, fit in sorted(rates):
                cost += rate * min(left, fit)
                left -= min(left, fit)
            if left == 0:
                found.append((float(cost), s))
    return min(found, default=None)


def partly_leased(problem: Problem, layout: Layout, chance: Random) -> tuple[State, Floats]:
    """Return a state in which some bids sit, and prices in whole nano-units, which add exactly."""
    state, bench = begin(problem, layout), bench_for(layout)
    some = chance.sample(range(problem.bids), problem.bids // 4)
    free = np.zeros((problem.pools, problem.slots + 1))
    place_all(layout, state, free, bench, np.array(some, np.int64), 0.0, 0.0)
    steps = [
        [0] + [chance.choice([0, 0, 1, 2, 5]) * 10_000_000 for _ in range(problem.slots)]
        for _ in range(problem.pools)
    ]
    return state, np.cumsum(np.array(steps, np.float64), axis=1)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_gang_lies_where_it_is_cheapest_and_of_equals_earliest(seed: int) -> None:
    chance = Random(seed)
    problem = round_of_gangs(seed)
    layout = lay_out(problem)
    state, paid = partly_leased(problem, layout, chance)
    bench = bench_for(layout)
    for i in np.flatnonzero((layout.spread != ONE_POOL) & (state.seat >= 0)).tolist():
        alpha = chance.choice([0.0, 0.5, 1.0])
        if not bar(layout, state, i, bench):
            continue
        entries = range(layout.list_at[layout.listed[i]], layout.list_at[layout.listed[i] + 1])
        at_hand = [j for j in entries if layout.floor[j] <= layout.limit[i]]
        bench.among[: len(at_hand)] = at_hand

        cost, start = find_gang(layout, state, paid, bench, i, len(at_hand), alpha)

        plain = plain_gang(
            layout, state, paid, set(np.flatnonzero(bench.barred).tolist()), i, alpha
        )
        assert ((cost, start) if start >= 0 else None) == plain
        if start >= 0:
            pieces = range(layout.piece_at[i], layout.piece_at[i] + state.parts[i])
            assert sum(state.gpus[m] for m in pieces) == layout.gpus[i]
            end = layout.ends[layout.row[i], start]
            for m in pieces:
                free = state.free[layout.pool[state.entry[m]], start:end].min()
                assert state.gpus[m] * layout.units[state.entry[m]] <= free


@pytest.mark.parametrize("seed", range(10))
def test_what_a_bid_for_one_host_could_gain_is_what_a_plain_search_finds(seed: int) -> None:
    problem = round_of_gangs(seed)
    layout = lay_out(problem)
    pricing = Pricing(problem, layout, 1)
    for _ in range(3):
        pricing.step()
    paid = np.zeros((problem.pools, problem.slots + 1))
    add_up(layout, pricing.prices.live, paid)
    bench = bench_for(layout)

    gains(layout, pricing.empty, paid, bench, pricing.wants, np.zeros(SHORT), 0, problem.bids, 0.0)

    waits = pricing.empty.seat >= 0
    for i in np.flatnonzero((layout.spread == ONE_HOST) & waits).tolist():
        if not bar(layout, pricing.empty, i, bench):
            continue
        barred = set(np.flatnonzero(bench.barred).tolist())
        plain = plain_gang(layout, pricing.empty, paid, barred, i, 1.0)
        worth = layout.worth[i] * layout.gpus[i] * layout.hours[i]
        gain = 0.0 if plain is None else max(0.0, worth - plain[0])
        assert pricing.wants.gain[i] == pytest.approx(gain)
