"""Find a place for one bid in what is free: the cheapest at floors plus scarcity prices.

Prices come as `paid`, [P, T+1]: what one unit costs from the first slot up to each, in nano-units.
Quotas have prices too; these lie on the bench.
A bid's pieces are written to its places in the state; the caller enters it.
"""

from __future__ import annotations

from marketplace.domain.kernels.jit import compiled, woven_in
from marketplace.domain.solver.arrays import Layout
from marketplace.domain.solver.problem import ONE_HOST, ONE_POOL, Floats, Ints
from marketplace.domain.solver.quota_costs import allowed, bar, dues
from marketplace.domain.solver.rng import share as dice_share
from marketplace.domain.solver.scratch import Bench
from marketplace.domain.solver.state import State, counts_ms, enter

FAR = 1e300
SNUG = 0.03
"""A gap left beside other grants counts as so much of the limit."""


@compiled
def slices(q: Layout, st: State, j: int, s: int, e: int, k: int, turn: int) -> tuple[int, int]:
    """Return how many of `k` profiles fit in the card in slots [s, e), and their slices.

    turn: the legal placements are tried in their order, from this one on.
    """
    p = q.pool[j]
    busy = 0
    for t in range(s, e):
        busy |= st.taken[p, t]
    begin = q.profile_at[q.profile[j]]
    legal = q.profile_at[q.profile[j] + 1] - begin
    found = 0
    union = 0
    for n in range(legal):
        mask = q.mask[begin + (n + turn) % legal]
        if found < k and not busy & mask:
            busy |= mask
            union |= mask
            found += 1
    return found, union


@woven_in
def best_start(
    q: Layout, st: State, paid: Floats, bench: Bench, i: int, j: int, alpha: float,
    snug: float, noise: float, best: float,
) -> tuple[float, int]:  # fmt: skip
    """Return the cost and slot of the bid's cheapest start in one pool that costs less than `best`.

    snug: what a gap left beside other grants costs. noise: by how much costs are blurred.
    """
    p = q.pool[j]
    k = q.gpus[i]
    need = k * q.units[j]
    row = q.row[i]
    base = q.floor[j] * k * q.hours[i]
    opens = q.opens[p]
    closes = q.closes[p]
    start = -1
    full = -1
    t = max(q.first[i], opens)
    for s in range(t, q.last[i] + 1):
        e = q.ends[row, s]
        if e > closes:
            break
        while t < e:
            if st.free[p, t] < need or bench.barred[t]:
                full = t
            t += 1
        if full >= s:
            continue
        cost = base + alpha * need * (paid[p, e] - paid[p, s])
        if bench.tolled[0]:
            cost += alpha * k * dues(q, bench, i, p, s)
        if snug > 0.0:
            if s > opens and st.free[p, s - 1] >= need:
                cost += snug
            if e < closes and st.free[p, e] >= need:
                cost += snug
        if noise > 0.0:
            cost *= 1.0 + noise * dice_share(bench.dice)
        if (
            cost < best
            and (not q.picky[i] or allowed(q, st, i, p, s, k) == k)
            and (not q.divided[p] or slices(q, st, j, s, e, k, 0)[0] == k)
        ):
            best = cost
            start = s
            if snug == 0.0 and cost <= base:
                break
    return best, start


@compiled
def seat(q: Layout, st: State, i: int, j: int, s: int, turn: int) -> None:
    """Write the one piece of a bid that keeps to one pool."""
    m = q.piece_at[i]
    st.parts[i] = 1
    st.entry[m] = j
    st.gpus[m] = q.gpus[i]
    st.mask[m] = 0
    if q.divided[q.pool[j]]:
        fit, union = slices(q, st, j, s, q.ends[q.row[i], s], q.gpus[i], turn)
        if fit < q.gpus[i]:
            fit, union = slices(q, st, j, s, q.ends[q.row[i], s], q.gpus[i], 0)
        st.mask[m] = union


@compiled
def find_single(q: Layout, st: State, paid: Floats, bench: Bench, i: int, alpha: float) -> int:
    """Return the start of the cheapest place in one pool, -1 if there is none."""
    best = FAR
    start = -1
    chosen = -1
    size = q.gpus[i] * q.hours[i]
    snug = SNUG * q.limit[i] * size if alpha > 0.0 else 0.0
    held = q.listed[i]
    for j in range(q.list_at[held], q.list_at[held + 1]):
        base = q.floor[j] * size
        if q.floor[j] > q.limit[i] or base >= best:
            break
        cost, s = best_start(q, st, paid, bench, i, j, alpha, snug, 0.0, best)
        if s >= 0:
            best = cost
            start = s
            chosen = j
    if start >= 0:
        seat(q, st, i, chosen, start, 0)
    return start


@compiled
def _line_up(
    bench: Bench, n: int, total: int, k: int, rate: float, j: int, fit: int
) -> tuple[int, int]:
    """Put a pool among the cheapest that together hold `k`; return how many, and their GPUs."""
    if total >= k and rate >= bench.rate[n - 1]:
        return n, total
    at = n
    while at > 0 and bench.rate[at - 1] > rate:
        bench.rate[at] = bench.rate[at - 1]
        bench.entry[at] = bench.entry[at - 1]
        bench.room[at] = bench.room[at - 1]
        at -= 1
    bench.rate[at] = rate
    bench.entry[at] = j
    bench.room[at] = fit
    n += 1
    total += fit
    while total - bench.room[n - 1] >= k:
        total -= bench.room[n - 1]
        n -= 1
    return n, total


@compiled
def _keep(st: State, bench: Bench, m: int, n: int, k: int) -> None:
    """Write the pools lined up as pieces; the dearest takes what is left."""
    left = k
    for at in range(n):
        st.entry[m + at] = bench.entry[at]
        st.gpus[m + at] = min(left, bench.room[at])
        left -= st.gpus[m + at]


@compiled
def _cost(bench: Bench, n: int, k: int) -> float:
    left = k
    total = 0.0
    for at in range(n):
        total += bench.rate[at] * min(left, bench.room[at])
        left -= min(left, bench.room[at])
    return total


@compiled
def _in_quotas(q: Layout, st: State, bench: Bench, n: int, i: int, s: int) -> bool:
    """Tell if a picky bid's quotas allow the pools lined up, together, from slot `s`."""
    e = q.ends[q.row[i], s]
    for g in range(q.group_at[i], q.group_at[i + 1]):
        group = q.group[g]
        units = 0
        left = q.gpus[i]
        for at in range(n):
            units += q.counted[group, q.pool[bench.entry[at]]] * min(left, bench.room[at])
            left -= min(left, bench.room[at])
        units *= q.share[g]
        if st.gpu_ms[group] < units * counts_ms(q, st, i, s, group):
            return False
        for t in range(s, e):
            if st.concurrent[group, t] < units:
                return False
    return True


@compiled
def gang_at(
    q: Layout,
    st: State,
    paid: Floats,
    bench: Bench,
    i: int,
    s: int,
    count: int,
    alpha: float,
    best: float,
    careful: bool,
) -> float:
    """Return the cost of the gang's cheapest pools from slot `s` if below `best`, else `best`.

    The pools are chosen among the first `count` of `bench.among`, and written as its pieces.
    careful: only among those in which quotas would allow the whole gang.
    """
    e = q.ends[q.row[i], s]
    k = q.gpus[i]
    m = q.piece_at[i]
    n = total = 0
    for a in range(count):
        j = bench.among[a]
        p = q.pool[j]
        if q.spread[i] == ONE_HOST and a > 0 and q.host[j] != q.host[bench.among[a - 1]]:
            n = total = 0
        fit = k * q.units[j]
        for t in range(s, e):
            fit = min(fit, st.free[p, t])
        fit //= q.units[j]
        if fit > 0 and q.divided[p]:
            fit = slices(q, st, j, s, e, fit, 0)[0]
        if fit > 0 and q.picky[i]:
            quota = allowed(q, st, i, p, s, k)
            fit = 0 if careful and quota < k else min(fit, quota)
        if fit == 0:
            continue
        rate = q.floor[j] * q.hours[i] + alpha * q.units[j] * (paid[p, e] - paid[p, s])
        if bench.tolled[0]:
            rate += alpha * dues(q, bench, i, p, s)
        n, total = _line_up(bench, n, total, k, rate, j, fit)
        if total >= k:
            cost = _cost(bench, n, k)
            if cost < best and (not q.picky[i] or _in_quotas(q, st, bench, n, i, s)):
                best = cost
                st.parts[i] = n
                _keep(st, bench, m, n, k)
    return best


@compiled
def find_gang(
    q: Layout, st: State, paid: Floats, bench: Bench, i: int, count: int, alpha: float
) -> tuple[float, int]:
    """Return the cost and start of the cheapest place over several pools, -1 if there is none."""
    best = FAR
    start = -1
    for s in range(q.first[i], q.last[i] + 1):
        barred = 0
        for t in range(s, q.ends[q.row[i], s]):
            barred |= bench.barred[t]
        if barred:
            continue
        cost = gang_at(q, st, paid, bench, i, s, count, alpha, best, False)
        if cost >= best and q.picky[i]:
            cost = gang_at(q, st, paid, bench, i, s, count, alpha, best, True)
        if cost < best:
            best = cost
            start = s
    if start >= 0:
        cut(q, st, i, start)
    return best, start


@compiled
def cut(q: Layout, st: State, i: int, s: int) -> None:
    """Choose the memory slices of the bid's pieces."""
    for m in range(q.piece_at[i], q.piece_at[i] + st.parts[i]):
        j = st.entry[m]
        st.mask[m] = 0
        if q.divided[q.pool[j]]:
            st.mask[m] = slices(q, st, j, s, q.ends[q.row[i], s], st.gpus[m], 0)[1]


@compiled
def place(q: Layout, st: State, paid: Floats, bench: Bench, i: int, alpha: float) -> bool:
    """Grant the bid the cheapest place there is; alpha: how much scarcity prices count."""
    if not bar(q, st, i, bench):
        return False
    if q.spread[i] == ONE_POOL:
        start = find_single(q, st, paid, bench, i, alpha)
    else:
        count = 0
        for j in range(q.list_at[q.listed[i]], q.list_at[q.listed[i] + 1]):
            if q.floor[j] <= q.limit[i]:
                bench.among[count] = j
                count += 1
        start = find_gang(q, st, paid, bench, i, count, alpha)[1]
    if start < 0:
        return False
    enter(q, st, i, start)
    return True


@compiled
def place_all(
    q: Layout, st: State, paid: Floats, bench: Bench, order: Ints, alpha: float, total: float
) -> float:
    """Grant the bids one after the other, those that still wait; add what it is worth to `total`.

    As numbers are added in the same order, it does not matter in how many calls bids are placed.
    """
    for n in range(order.size):
        i = order[n]
        if st.seat[i] >= 0 and place(q, st, paid, bench, i, alpha):
            for m in range(q.piece_at[i], q.piece_at[i] + st.parts[i]):
                total += (q.worth[i] - q.floor[st.entry[m]]) * st.gpus[m] * q.hours[i]
    return total
