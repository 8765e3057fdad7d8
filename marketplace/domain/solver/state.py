"""A clearing in the making: what is free, who sits where, who waits. Grants go in and out in O(1).

Pieces of grants are linked per pool, bids that wait are kept per list; taking a grant out and
putting it back leaves the same capacity to the unit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from marketplace.domain.kernels.jit import compiled, woven_in
from marketplace.domain.solver.arrays import Layout
from marketplace.domain.solver.problem import Ints, Narrow, Problem


class State(NamedTuple):
    """Arrays that the kernels change in place; see `Layout` for the letters. M: pieces."""

    free: Narrow
    """[P, T] units."""
    taken: Narrow
    """[P, T] bits of memory slices in use."""
    concurrent: Ints
    gpu_ms: Ints
    """What the quotas leave: [G, T] GPUs, [G] GPU-milliseconds."""
    start: Ints
    """[N] slot of the grant, or -1."""
    parts: Ints
    """[N] pieces of the grant."""
    entry: Ints
    gpus: Ints
    mask: Ints
    """[M] the pieces: entry in the bid's list, GPUs, memory slices."""
    owner: Ints
    head: Ints
    after: Ints
    before: Ints
    """Pieces in each pool, linked."""
    waiting: Ints
    waiting_at: Ints
    waits: Ints
    seat: Ints
    """Bids that wait: per list a segment, how many, and each bid's place in it or -1."""
    duration: Ints


def begin(problem: Problem, layout: Layout) -> State:
    """Return the state in which nobody has anything."""
    bids, pieces = problem.bids, int(layout.piece_at[-1])
    lists = len(layout.list_at) - 1
    waiting_at = np.concatenate(
        [np.zeros(1, np.int64), np.cumsum(np.bincount(layout.listed, minlength=lists))]
    ).astype(np.int64)
    state = State(
        free=problem.capacity.astype(np.int32),
        taken=problem.taken.astype(np.int32),
        concurrent=problem.concurrent.astype(np.int64),
        gpu_ms=problem.gpu_ms.astype(np.int64),
        start=np.full(bids, -1, np.int64),
        parts=np.zeros(bids, np.int64),
        entry=np.zeros(pieces, np.int64),
        gpus=np.zeros(pieces, np.int64),
        mask=np.zeros(pieces, np.int64),
        owner=np.repeat(np.arange(bids, dtype=np.int64), np.diff(layout.piece_at)),
        head=np.full(problem.pools, -1, np.int64),
        after=np.full(pieces, -1, np.int64),
        before=np.full(pieces, -1, np.int64),
        waiting=np.zeros(bids, np.int64),
        waiting_at=waiting_at,
        waits=np.zeros(lists, np.int64),
        seat=np.full(bids, -1, np.int64),
        duration=problem.duration.astype(np.int64),
    )
    _let_wait(layout, state)
    return state


@compiled
def _let_wait(q: Layout, st: State) -> None:
    """Let every bid wait that may start at all and affords a pool."""
    for i in range(q.row.size):
        held = q.listed[i]
        if q.last[i] < q.first[i]:
            continue
        for j in range(q.list_at[held], q.list_at[held + 1]):
            if q.floor[j] <= q.limit[i]:
                wait(q, st, i)
                break


@woven_in
def wait(q: Layout, st: State, i: int) -> None:
    """Add the bid to those that wait."""
    held = q.listed[i]
    st.waiting[st.waiting_at[held] + st.waits[held]] = i
    st.seat[i] = st.waits[held]
    st.waits[held] += 1


@woven_in
def admit(q: Layout, st: State, i: int) -> None:
    """Take the bid from those that wait."""
    held = q.listed[i]
    st.waits[held] -= 1
    moved = st.waiting[st.waiting_at[held] + st.waits[held]]
    st.waiting[st.waiting_at[held] + st.seat[i]] = moved
    st.seat[moved] = st.seat[i]
    st.seat[i] = -1


@compiled
def counts_ms(q: Layout, st: State, i: int, s: int, group: int) -> int:
    """Return how long the bid, if it starts in slot `s`, counts for a group's `gpu_ms`."""
    begins = max(q.earliest[i], q.grid[s])
    ends = begins + st.duration[i]
    ms: int = max(0, min(ends, q.until[group]) - max(begins, q.since[group]))
    return ms


@compiled
def _charge(q: Layout, st: State, i: int, sign: int) -> None:
    """Take the grant's GPUs from quotas, or give them back."""
    s = st.start[i]
    e = q.ends[q.row[i], s]
    for g in range(q.group_at[i], q.group_at[i + 1]):
        group = q.group[g]
        units = 0
        for m in range(q.piece_at[i], q.piece_at[i] + st.parts[i]):
            units += q.counted[group, q.pool[st.entry[m]]] * st.gpus[m]
        units *= sign * q.share[g]
        st.gpu_ms[group] -= units * counts_ms(q, st, i, s, group)
        for t in range(s, e):
            st.concurrent[group, t] -= units


@woven_in
def link(q: Layout, st: State, m: int) -> None:
    """Link a piece to its pool."""
    p = q.pool[st.entry[m]]
    st.before[m] = -1
    st.after[m] = st.head[p]
    if st.head[p] >= 0:
        st.before[st.head[p]] = m
    st.head[p] = m


@woven_in
def unlink(st: State, m: int, p: int) -> None:
    """Take a piece from the links of its pool."""
    if st.before[m] >= 0:
        st.after[st.before[m]] = st.after[m]
    else:
        st.head[p] = st.after[m]
    if st.after[m] >= 0:
        st.before[st.after[m]] = st.before[m]


@compiled
def enter(q: Layout, st: State, i: int, s: int) -> None:
    """Grant the bid from slot `s` the pieces that stand in its places."""
    admit(q, st, i)
    st.start[i] = s
    e = q.ends[q.row[i], s]
    for m in range(q.piece_at[i], q.piece_at[i] + st.parts[i]):
        j = st.entry[m]
        p = q.pool[j]
        units = q.units[j] * st.gpus[m]
        for t in range(s, e):
            st.free[p, t] -= units
        if st.mask[m]:
            for t in range(s, e):
                st.taken[p, t] |= st.mask[m]
        link(q, st, m)
    _charge(q, st, i, 1)


@compiled
def leave(q: Layout, st: State, i: int) -> None:
    """Take the bid's grant back; it waits again. Its pieces still stand in its places."""
    s = st.start[i]
    e = q.ends[q.row[i], s]
    for m in range(q.piece_at[i], q.piece_at[i] + st.parts[i]):
        j = st.entry[m]
        p = q.pool[j]
        units = q.units[j] * st.gpus[m]
        for t in range(s, e):
            st.free[p, t] += units
        if st.mask[m]:
            for t in range(s, e):
                st.taken[p, t] &= ~st.mask[m]
        unlink(st, m, p)
    _charge(q, st, i, -1)
    st.start[i] = -1
    wait(q, st, i)


@compiled
def value(q: Layout, st: State, i: int) -> float:
    """Return what the bid's grant is worth, in nano-units."""
    total: float = 0.0
    for m in range(q.piece_at[i], q.piece_at[i] + st.parts[i]):
        total += (q.worth[i] - q.floor[st.entry[m]]) * st.gpus[m]
    worth: float = total * q.hours[i]
    return worth
