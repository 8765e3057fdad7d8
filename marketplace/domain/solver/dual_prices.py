"""Scarcity prices by tatonnement: bids are asked one by one, and prices answer at once.

For any prices, what bidders would gain at most at them, plus what all capacity would earn at them,
is at least what any clearing is worth (Lagrange; Geoffrion 1974). The closer wants are to capacity,
the tighter is this bound, and the better prices guide the placing.

What a bid likes best gets dearer by the share of the capacity it wants; all prices fall steadily;
both by less with every step (stochastic subgradients). That the next bid sees the prices the last
one left keeps like bids from running to the same pool. Only one bid in `TURN` looks at all of its
list, the others at the `SHORT` pools they liked best when they last looked; the bound looks at all.

Quotas have prices that answer in the same way: for GPUs at once in each slot, and for GPU-time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from marketplace.domain.kernels.jit import compiled, compiled_later, woven_in
from marketplace.domain.solver.arrays import Layout
from marketplace.domain.solver.insertion import (
    FAR,
    NOTHING,
    NOWHERE,
    best_start,
    find_gang,
    on_host,
)
from marketplace.domain.solver.problem import ONE_HOST, ONE_POOL, Floats, Ints
from marketplace.domain.solver.quota_costs import bar
from marketplace.domain.solver.quota_prices import fee_scale, raise_fees
from marketplace.domain.solver.scratch import Bench
from marketplace.domain.solver.state import State

SHORT = 12
TURN = 6
STEP_FIRST, STEP_HALF = 0.3, 6.0
"""Prices fall by this share of their scale while all bids are asked; half of it after so many."""
EASED = 24
"""Steps that a warm start replaces."""
MEMORY = 0.2
"""How much of the last step enters the mean of prices."""
BLOCKS = 32
"""Falls of prices in a step."""
LOOK_WORK, LOOK_WORK_PLAIN = 1_000_000, 10_000
"""Steps of the innermost loop, about, until it is asked again if it is enough: compiled, and as
Python."""


class Wants(NamedTuple):
    """What each bid likes best at the current prices; see `Layout` for the letters."""

    short: Ints
    """[N, SHORT] entries, best when last looked at in full; -1 where there are no more."""
    gain: Floats
    """[N] what the bid gains at most, not below 0."""
    least: Floats
    """[N] the lowest floor plus price it could get, nano-units per GPU-hour; FAR if none."""


class Prices(NamedTuple):
    """Prices on their way to balance: [P, T], nano-units per unit-hour."""

    live: Floats
    mean: Floats
    scale: Floats
    """[P] what prices are measured by."""
    paid: Floats
    """[P, T+1] see `insertion`."""
    tolls: Floats
    tolls_mean: Floats
    levy_mean: Floats
    """[G, T] and [G] of quotas: see `Fees`. What they are now is on the bench, but for `tolls`."""
    fee_scale: Floats
    """[G] what prices of quotas are measured by."""


def open_prices(q: Layout) -> Prices:
    """Return prices of zero."""
    shape = (q.pools, q.slots)
    listed = np.maximum(1, np.bincount(q.pool, minlength=q.pools))
    floors = np.bincount(q.pool, q.floor / q.units, minlength=q.pools) / listed
    ordinary = float(q.worth.mean()) if q.worth.size else 1.0
    groups = len(q.since)
    return Prices(
        live=np.zeros(shape),
        mean=np.zeros(shape),
        scale=np.maximum(floors, 0.1 * ordinary),
        paid=np.zeros((q.pools, q.slots + 1)),
        tolls=np.zeros((groups, q.slots)),
        tolls_mean=np.zeros((groups, q.slots)),
        levy_mean=np.zeros(groups),
        fee_scale=fee_scale(q),
    )


@woven_in
def _best_start(
    q: Layout, st: State, paid: Floats, bench: Bench, i: int, j: int
) -> tuple[float, int]:
    """Return the lowest price, and slot, of the bid in one pool that is empty but for the book."""
    p = q.pool[j]
    if not q.solid[p] or q.group_at[i] < q.group_at[i + 1]:
        cost, start = best_start(q, st, paid, bench, i, j, 1.0, 0.0, 0.0, FAR)
        return cost - q.floor[j] * q.gpus[i] * q.hours[i], start
    row = q.row[i]
    closes = q.closes[p]
    best = FAR
    start = -1
    for s in range(max(q.first[i], q.opens[p]), q.last[i] + 1):
        e = q.ends[row, s]
        if e > closes:
            break
        cost = paid[p, e] - paid[p, s]
        if cost < best:
            best = cost
            start = s
    return best * (q.gpus[i] * q.units[j]), start


@woven_in
def _keep(wants: Wants, kept: Floats, i: int, j: int, n: int, gain: float) -> int:
    """Put an entry among the bid's `n` best, by its gain; return how many there are then."""
    width = wants.short.shape[1]
    if n == width and gain <= kept[n - 1]:
        return n
    at = min(n, width - 1)
    while at > 0 and kept[at - 1] < gain:
        kept[at] = kept[at - 1]
        wants.short[i, at] = wants.short[i, at - 1]
        at -= 1
    kept[at] = gain
    wants.short[i, at] = j
    return min(n + 1, width)  # type: ignore[no-any-return]


@compiled
def _look(
    q: Layout, st: State, paid: Floats, bench: Bench, wants: Wants, kept: Floats, i: int
) -> None:
    """Price the bid's whole list; keep the best as its short list."""
    held = q.listed[i]
    size = q.gpus[i] * q.hours[i]
    width = wants.short.shape[1]
    n = NOTHING
    best = 0.0
    least = FAR
    for j in range(q.list_at[held], q.list_at[held + 1]):
        base = (q.worth[i] - q.floor[j]) * size
        if q.floor[j] > q.limit[i] or (n == width and base <= kept[n - 1]):
            break
        cost, s = _best_start(q, st, paid, bench, i, j)
        if s < 0:
            continue
        gain = base - cost
        best = max(best, gain)
        least = min(least, q.worth[i] - gain / size)
        n = _keep(wants, kept, i, j, n, gain)
    for at in range(n, width):
        wants.short[i, at] = -1
    wants.gain[i] = best
    wants.least[i] = least


@woven_in
def _lay_host(q: Layout, bench: Bench, i: int, j: int) -> int:
    """Lay the pools of a host at hand that the bid affords, from entry `j` on; return how many."""
    end = q.list_at[q.listed[i] + 1]
    host = q.host[j]
    count = NOTHING
    while j < end and q.host[j] == host and q.floor[j] <= q.limit[i]:
        bench.among[count] = j
        bench.low_at[count] = -1
        count += 1
        j += 1
    return count


@compiled
def _look_at_hosts(
    q: Layout, st: State, paid: Floats, bench: Bench, wants: Wants, kept: Floats, i: int
) -> None:
    """Price all hosts that a bid for one may use; keep the best, by the first entry of each."""
    size = q.gpus[i] * q.hours[i]
    worth = q.worth[i] * size
    width = wants.short.shape[1]
    n = NOTHING
    low = FAR
    j = q.list_at[q.listed[i]]
    end = q.list_at[q.listed[i] + 1]
    while j < end:
        high = worth - kept[n - 1] if n == width else FAR
        count = _lay_host(q, bench, i, j) if q.floor[j] * size <= high else NOTHING
        if count > 0:
            cost, s = on_host(q, st, paid, bench, i, NOTHING, count, 1.0, high, NOWHERE)
            if s >= 0:
                low = min(low, cost)
                n = _keep(wants, kept, i, j, n, worth - cost)
        host = q.host[j]
        while j < end and q.host[j] == host:
            j += 1
    for at in range(n, width):
        wants.short[i, at] = -1
    wants.gain[i] = max(0.0, worth - low)
    wants.least[i] = low / size if n > 0 else FAR


@compiled
def _raise(q: Layout, prices: Prices, i: int, j: int, s: int, gpus: float, step: float) -> None:
    """Make dearer what a bid wants, by its share of the capacity."""
    p = q.pool[j]
    units = gpus * q.units[j] * step * prices.scale[p]
    for t in range(s, q.ends[q.row[i], s]):
        prices.live[p, t] += units / q.capacity[p, t]
    for t in range(s, q.slots):
        prices.paid[p, t + 1] = prices.paid[p, t] + prices.live[p, t] * q.slot_hours[t]


@compiled
def _want(
    q: Layout, st: State, bench: Bench, prices: Prices, wants: Wants, i: int, step: float
) -> None:
    """Raise the prices of what the bid likes best of its short list."""
    size = q.gpus[i] * q.hours[i]
    chosen = start = -1
    high = 0.0
    for at in range(wants.short.shape[1]):
        j = wants.short[i, at]
        if j < 0:
            break
        base = (q.worth[i] - q.floor[j]) * size
        if base <= high:
            continue
        cost, s = _best_start(q, st, prices.paid, bench, i, j)
        if s >= 0 and base - cost > high:
            high = base - cost
            chosen = j
            start = s
    if chosen >= 0:
        _raise(q, prices, i, chosen, start, q.gpus[i], step)
        raise_fees(
            q, st, bench, prices.tolls, prices.fee_scale, i, q.pool[chosen], start, q.gpus[i], step
        )


@compiled
def _want_host(
    q: Layout, st: State, bench: Bench, prices: Prices, wants: Wants, i: int, step: float
) -> None:
    """Raise the prices of what the bid likes best on the hosts of its short list."""
    best = q.worth[i] * q.gpus[i] * q.hours[i]
    start = NOWHERE
    for at in range(wants.short.shape[1]):
        j = wants.short[i, at]
        if j < 0:
            break
        count = _lay_host(q, bench, i, j)
        cost, s = on_host(q, st, prices.paid, bench, i, NOTHING, count, 1.0, best, start)
        if s >= 0:
            best = cost
            start = s
    if start >= 0:
        _raise_pieces(q, st, bench, prices, i, start, step)


@compiled
def _raise_pieces(
    q: Layout, st: State, bench: Bench, prices: Prices, i: int, s: int, step: float
) -> None:
    """Raise the prices of all pieces of what a bid wants."""
    for m in range(q.piece_at[i], q.piece_at[i] + st.parts[i]):
        _raise(q, prices, i, st.entry[m], s, st.gpus[m], step)
        p = q.pool[st.entry[m]]
        raise_fees(q, st, bench, prices.tolls, prices.fee_scale, i, p, s, st.gpus[m], step)


@compiled
def _gang(q: Layout, st: State, paid: Floats, bench: Bench, wants: Wants, i: int) -> int:
    """Price a bid that may spread; return the slot from which it wants its pieces, or -1."""
    wants.gain[i] = 0.0
    wants.least[i] = FAR
    count = NOTHING
    for j in range(q.list_at[q.listed[i]], q.list_at[q.listed[i] + 1]):
        if q.floor[j] <= q.limit[i]:
            bench.among[count] = j
            count += 1
    cost, s = find_gang(q, st, paid, bench, i, count, 1.0)
    size = q.gpus[i] * q.hours[i]
    if s < 0:
        return -1
    wants.gain[i] = max(0.0, q.worth[i] * size - cost)
    wants.least[i] = cost / size
    return s if wants.gain[i] > 0.0 else -1


@compiled
def gains(
    q: Layout, st: State, paid: Floats, bench: Bench, wants: Wants, kept: Floats,
    since: int, until: int, total: float,
) -> float:  # fmt: skip
    """Ask the bids [since, until) for what they would gain at most; add that to `total`."""
    for i in range(since, until):
        if st.seat[i] < 0 or not bar(q, st, i, bench):
            continue
        if q.spread[i] == ONE_POOL:
            _look(q, st, paid, bench, wants, kept, i)
        elif q.spread[i] == ONE_HOST and not q.picky[i]:
            _look_at_hosts(q, st, paid, bench, wants, kept, i)
        else:
            _gang(q, st, paid, bench, wants, i)
        total += wants.gain[i]
    return total


@compiled
def sweep(
    q: Layout, st: State, bench: Bench, prices: Prices, wants: Wants, kept: Floats,
    turn: int, every: int, step: float, stride: int, weight: float, since: int, until: int,
) -> None:  # fmt: skip
    """Ask bids in turn, each `every`th to look at its whole list, and move prices at once.

    While all bids are asked once, every price falls by `step` of its scale, in `BLOCKS` parts.
    since, until: of that, the bids [since, until) are asked now.
    """
    bids = q.row.size
    block = max(1, bids // BLOCKS)
    for n in range(since, until):
        i = n * stride % bids
        if st.seat[i] >= 0 and bar(q, st, i, bench):
            if q.spread[i] == ONE_POOL:
                if (i + turn) % every == 0:
                    _look(q, st, prices.paid, bench, wants, kept, i)
                _want(q, st, bench, prices, wants, i, step)
            elif q.spread[i] == ONE_HOST and not q.picky[i]:
                if (i + turn) % every == 0:
                    _look_at_hosts(q, st, prices.paid, bench, wants, kept, i)
                _want_host(q, st, bench, prices, wants, i, step)
            else:
                s = _gang(q, st, prices.paid, bench, wants, i)
                if s >= 0:
                    _raise_pieces(q, st, bench, prices, i, s, step)
        if (n + 1) % block == 0:
            fall(q, bench, prices, step * block / bids, weight * block / bids)


def _fall_by_slots(q: Layout, bench: Bench, prices: Prices, step: float, weight: float) -> None:
    """Let all prices fall, and enter them into their mean."""
    for p in range(q.pools):
        drop = step * prices.scale[p]
        for t in range(q.opens[p], q.closes[p]):
            prices.live[p, t] = max(0.0, prices.live[p, t] - drop)
            prices.mean[p, t] += weight * (prices.live[p, t] - prices.mean[p, t])
            prices.paid[p, t + 1] = prices.paid[p, t] + prices.live[p, t] * q.slot_hours[t]
        for t in range(q.closes[p], q.slots):
            prices.paid[p, t + 1] = prices.paid[p, t]
    for g in range(bench.levy.size):
        drop = step * prices.fee_scale[g]
        bench.levy[g] = max(0.0, bench.levy[g] - drop)
        prices.levy_mean[g] += weight * (bench.levy[g] - prices.levy_mean[g])
        for t in range(q.slots):
            prices.tolls[g, t] = max(0.0, prices.tolls[g, t] - drop)
            prices.tolls_mean[g, t] += weight * (prices.tolls[g, t] - prices.tolls_mean[g, t])
            bench.tolls[g, t + 1] = bench.tolls[g, t] + prices.tolls[g, t] * q.slot_hours[t]


def _fall_at_once(q: Layout, bench: Bench, prices: Prices, step: float, weight: float) -> None:
    """Do the same with whole arrays: outside a pool's own slots all prices are 0."""
    live, mean = prices.live, prices.mean
    np.maximum(0.0, live - (step * prices.scale)[:, None], out=live)
    mean += weight * (live - mean)
    np.cumsum(live * q.slot_hours, axis=1, out=prices.paid[:, 1:])
    drop = step * prices.fee_scale
    np.maximum(0.0, bench.levy - drop, out=bench.levy)
    np.add(prices.levy_mean, weight * (bench.levy - prices.levy_mean), out=prices.levy_mean)
    tolls, mean = prices.tolls, prices.tolls_mean
    np.maximum(0.0, tolls - drop[:, None], out=tolls)
    mean += weight * (tolls - mean)
    np.cumsum(tolls * q.slot_hours, axis=1, out=bench.tolls[:, 1:])


fall = compiled_later(_fall_by_slots, _fall_at_once)


@compiled
def add_up(q: Layout, now: Floats, paid: Floats) -> float:
    """Sum prices over slots into `paid`; return what all capacity earns at them."""
    total = 0.0
    for p in range(q.pools):
        for t in range(q.slots):
            cost = now[p, t] * q.slot_hours[t]
            paid[p, t + 1] = paid[p, t] + cost
            total += cost * q.capacity[p, t]
    return total
