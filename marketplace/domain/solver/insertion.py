"""Find a place for one bid in what is free: the cheapest at floors plus scarcity prices.

Prices come as `paid`, [P, T+1]: what one unit costs from the first slot up to each, in nano-units.
Quotas have prices too; these lie on the bench.
A bid's pieces are written to its places in the state; the caller enters it.
"""

from __future__ import annotations

import numpy as np

from marketplace.domain.kernels.jit import compiled, woven_in
from marketplace.domain.solver.arrays import Layout
from marketplace.domain.solver.problem import ONE_HOST, Floats
from marketplace.domain.solver.quota_costs import allowed, dues
from marketplace.domain.solver.rng import share as dice_share
from marketplace.domain.solver.scratch import Bench
from marketplace.domain.solver.state import State, counts_ms

FAR = 1e300
SNUG = 0.03
"""A gap left beside other grants counts as so much of the limit."""
NOTHING: int = np.int64(0)  # type: ignore[assignment]
NOWHERE: int = np.int64(-1)  # type: ignore[assignment]  # 0 and -1 are compiled for apart
SURELY = 1.0 - 1e-9
"""A sum of costs may come out lower than it is by less than this, rounded."""


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


@woven_in
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


@woven_in
def _keep(st: State, bench: Bench, m: int, n: int, k: int) -> None:
    """Write the pools lined up as pieces; the dearest takes what is left."""
    left = k
    for at in range(n):
        st.entry[m + at] = bench.entry[at]
        st.gpus[m + at] = min(left, bench.room[at])
        left -= st.gpus[m + at]


@woven_in
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


@woven_in
def forget(bench: Bench, count: int) -> None:
    """Begin anew to slide along the pools at hand."""
    for a in range(count):
        bench.low_at[a] = -1


@woven_in
def _least_free(st: State, bench: Bench, a: int, p: int, s: int, e: int) -> int:
    """Return the fewest units free in a pool in slots [s, e), of which neither may fall.

    a: of the pool among those at hand, for which it is kept where the fewest are: it is counted
    anew only when the window has left that slot behind.
    """
    at = bench.low_at[a]
    t = bench.low_to[a]
    if at < s:
        at = s
        t = s + 1
    low = st.free[p, at]
    while t < e:
        if st.free[p, t] <= low:
            low = st.free[p, t]
            at = t
        t += 1
    bench.low_at[a] = at
    bench.low_to[a] = t
    return low  # type: ignore[no-any-return]


@woven_in
def gang_at(
    q: Layout, st: State, paid: Floats, bench: Bench, i: int, s: int, since: int, until: int,
    alpha: float, best: float, start: int, careful: int,
) -> tuple[float, int]:  # fmt: skip
    """Return the cost of the gang's cheapest pools from slot `s`, and `s`, if that is better.

    Else `best` and `start` are: what was found before, and where. As much at an earlier slot is
    better. The pools are chosen among those of `bench.among` in [since, until), and written as the
    gang's pieces. careful: if not 0, only among those in which quotas allow the whole gang.
    """
    e = q.ends[q.row[i], s]
    k = q.gpus[i]
    m = q.piece_at[i]
    n = total = 0
    for a in range(since, until):
        j = bench.among[a]
        p = q.pool[j]
        if q.spread[i] == ONE_HOST and a > since and q.host[j] != q.host[bench.among[a - 1]]:
            n = total = 0
        if total >= k and q.floor[j] * q.hours[i] >= bench.rate[n - 1]:
            continue
        fit = min(k, _least_free(st, bench, a, p, s, e) // q.units[j])
        if fit > 0 and q.divided[p]:
            fit = slices(q, st, j, s, e, fit, 0)[0]
        if fit > 0 and q.picky[i]:
            quota = allowed(q, st, i, p, s, k)
            fit = 0 if careful > 0 and quota < k else min(fit, quota)
        if fit <= 0:
            continue
        rate = q.floor[j] * q.hours[i] + alpha * q.units[j] * (paid[p, e] - paid[p, s])
        if bench.tolled[0]:
            rate += alpha * dues(q, bench, i, p, s)
        n, total = _line_up(bench, n, total, k, rate, j, fit)
        if total >= k:
            cost = _cost(bench, n, k)
            better = cost < best or (cost == best and s < start)
            if better and (not q.picky[i] or _in_quotas(q, st, bench, n, i, s)):
                best = cost
                start = s
                st.parts[i] = n
                _keep(st, bench, m, n, k)
    return best, start


@woven_in
def _in_one_pool(
    q: Layout, st: State, paid: Floats, bench: Bench, i: int, j: int, alpha: float,
    best: float, start: int,
) -> tuple[float, int]:  # fmt: skip
    """Return the cost and slot of the gang's cheapest start in one pool, -1 if not below `best`.

    As `gang_at` would count it if there were no other pool.
    """
    p = q.pool[j]
    k = q.gpus[i]
    need = k * q.units[j]
    row = q.row[i]
    base = q.floor[j] * q.hours[i]
    closes = q.closes[p]
    last = q.last[i]
    if base * k >= best:
        last = min(last, start - 1)
    found = -1
    full = -1
    t = max(q.first[i], q.opens[p])
    for s in range(t, last + 1):
        e = q.ends[row, s]
        if e > closes:
            break
        while t < e:
            if st.free[p, t] < need or bench.barred[t]:
                full = t
            t += 1
        if full >= s:
            continue
        rate = base + alpha * q.units[j] * (paid[p, e] - paid[p, s])
        if bench.tolled[0]:
            rate += alpha * dues(q, bench, i, p, s)
        cost = rate * k
        better = cost < best or (cost == best and s < start)
        if better and (not q.divided[p] or slices(q, st, j, s, e, k, 0)[0] == k):
            best = cost
            start = found = s
            if rate <= base:
                break
    return best, found


@compiled
def on_host(
    q: Layout, st: State, paid: Floats, bench: Bench, i: int, since: int, until: int,
    alpha: float, best: float, start: int,
) -> tuple[float, int]:  # fmt: skip
    """Return the cost and slot of the gang's cheapest start on one host, -1 if not below `best`.

    The host's pools are those of `bench.among` in [since, until), the lowest floor first. start:
    slot of what costs `best`; as much at an earlier slot is better.
    """
    if until - since == 1:
        j = bench.among[since]
        cost, found = _in_one_pool(q, st, paid, bench, i, j, alpha, best, start)
        if found >= 0:
            m = q.piece_at[i]
            st.parts[i] = 1
            st.entry[m] = j
            st.gpus[m] = q.gpus[i]
        return cost, found
    found = -1
    if q.floor[bench.among[since]] * q.hours[i] * q.gpus[i] * SURELY > best:
        return best, found
    full = -1
    t = q.first[i]
    for s in range(q.first[i], q.last[i] + 1):
        e = q.ends[q.row[i], s]
        while t < e:
            if bench.barred[t]:
                full = t
            t += 1
        if full >= s or _costs_at_least(q, paid, bench, i, s, since, until, alpha) * SURELY > best:
            continue
        cost, at = gang_at(q, st, paid, bench, i, s, since, until, alpha, best, start, NOTHING)
        if cost < best or at != start:
            best = cost
            start = found = s
    return best, found


@woven_in
def _costs_at_least(
    q: Layout, paid: Floats, bench: Bench, i: int, s: int, since: int, until: int, alpha: float
) -> float:
    """Return what the gang would cost from slot `s` if it fitted in the cheapest pool at hand."""
    e = q.ends[q.row[i], s]
    low = FAR
    for a in range(since, until):
        j = bench.among[a]
        p = q.pool[j]
        rate = q.floor[j] * q.hours[i] + alpha * q.units[j] * (paid[p, e] - paid[p, s])
        low = min(low, rate)
    return low * q.gpus[i]  # type: ignore[no-any-return]


@woven_in
def host_until(q: Layout, bench: Bench, since: int, count: int) -> int:
    """Return where the pools at hand of another host begin."""
    until = since + 1
    while until < count and q.host[bench.among[until]] == q.host[bench.among[since]]:
        until += 1
    return until


@compiled
def _find_on_host(
    q: Layout, st: State, paid: Floats, bench: Bench, i: int, count: int, alpha: float
) -> tuple[float, int]:
    """Return the cost and start of the cheapest place on one host, -1 if there is none."""
    best = FAR
    start = NOWHERE
    since = NOTHING
    while since < count:
        until = host_until(q, bench, since, count)
        cost, found = on_host(q, st, paid, bench, i, since, until, alpha, best, start)
        if found >= 0:
            best = cost
            start = found
        since = until
    return best, start


@compiled
def find_gang(
    q: Layout, st: State, paid: Floats, bench: Bench, i: int, count: int, alpha: float
) -> tuple[float, int]:
    """Return the cost and start of the cheapest place over several pools, -1 if there is none.

    Of places that cost as much, the earliest.
    """
    forget(bench, count)
    best = FAR
    start = NOWHERE
    if q.spread[i] == ONE_HOST and not q.picky[i]:
        best, start = _find_on_host(q, st, paid, bench, i, count, alpha)
    else:
        full = -1
        t = q.first[i]
        for s in range(q.first[i], q.last[i] + 1):
            while t < q.ends[q.row[i], s]:
                if bench.barred[t]:
                    full = t
                t += 1
            if full >= s:
                continue
            before = best
            for careful in range(2 if q.picky[i] else 1):
                if best < before:
                    break
                best, start = gang_at(
                    q, st, paid, bench, i, s, NOTHING, count, alpha, best, start, careful
                )
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
