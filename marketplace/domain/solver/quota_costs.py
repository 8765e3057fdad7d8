"""What quotas allow a bid, and what they cost it: the prices of quotas lie on the bench.

A counted GPU costs `tolls` while it is held, where the group has a quota of GPUs at once, and
`levy` for each hour that counts, where it has one of GPU-time.
"""

from __future__ import annotations

from marketplace.domain.kernels.jit import compiled, woven_in
from marketplace.domain.solver.arrays import Layout
from marketplace.domain.solver.problem import MILLIS_PER_HOUR
from marketplace.domain.solver.scratch import Bench
from marketplace.domain.solver.state import State, counts_ms

HOURS_PER_MS = 1.0 / MILLIS_PER_HOUR


@compiled
def bar(q: Layout, st: State, i: int, bench: Bench) -> bool:
    """Mark the slots in which the bid's quotas have too little for sure; False if all have.

    What its quotas cost is worked out too.
    """
    for t in range(q.slots):
        bench.barred[t] = 0
    for g in range(q.group_at[i], q.group_at[i + 1]):
        group = q.group[g]
        units = q.gpus[i] * q.share[g] * q.least_counted[group]
        if not q.picky[i] and st.gpu_ms[group] < units * st.duration[i]:
            return False
        for t in range(q.slots):
            if st.concurrent[group, t] < units:
                bench.barred[t] = 1
        if bench.tolled[0]:
            _assess(q, st, i, g, bench)
    return True


@compiled
def _assess(q: Layout, st: State, i: int, g: int, bench: Bench) -> None:
    """Work out what a GPU costs in one of the bid's quotas, by the slot the bid starts in."""
    group = q.group[g]
    at = g - q.group_at[i]
    for s in range(q.first[i], q.last[i] + 1):
        cost = bench.tolls[group, q.ends[q.row[i], s]] - bench.tolls[group, s]
        if bench.levy[group] > 0.0:
            cost += bench.levy[group] * counts_ms(q, st, i, s, group) * HOURS_PER_MS
        bench.due[at, s] = q.share[g] * cost


@woven_in
def dues(q: Layout, bench: Bench, i: int, p: int, s: int) -> float:
    """Return what the bid's quotas cost for a GPU in a pool from slot `s`."""
    cost = 0.0
    for g in range(q.group_at[i], q.group_at[i + 1]):
        cost += q.counted[q.group[g], p] * bench.due[g - q.group_at[i], s]
    return cost


@compiled
def dues_of(q: Layout, st: State, bench: Bench, i: int) -> float:
    """Return what the quotas of a bid's grant cost."""
    cost = 0.0
    if bench.tolled[0]:
        s = st.start[i]
        for g in range(q.group_at[i], q.group_at[i + 1]):
            group = q.group[g]
            _assess(q, st, i, g, bench)
            for m in range(q.piece_at[i], q.piece_at[i] + st.parts[i]):
                units = q.counted[group, q.pool[st.entry[m]]] * st.gpus[m]
                cost += units * bench.due[g - q.group_at[i], s]
    return cost


@compiled
def allowed(q: Layout, st: State, i: int, p: int, s: int, k: int) -> int:
    """Return how many GPUs, `k` at most, a picky bid's quotas allow in a pool from slot `s`."""
    e = q.ends[q.row[i], s]
    most = k
    for g in range(q.group_at[i], q.group_at[i + 1]):
        group = q.group[g]
        units = q.share[g] * q.counted[group, p]
        if units == 0:
            continue
        ms = counts_ms(q, st, i, s, group)
        if ms > 0:
            most = min(most, st.gpu_ms[group] // (units * ms))
        for t in range(s, e):
            most = min(most, st.concurrent[group, t] // units)
    return max(0, most)
