"""Search a large round in two halves at once: each has half of the pools and of those that wait.

The halves share nothing, so two threads work on them, and one after the other gives the same. After
some moves they are joined, and the round is divided anew, at random.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from marketplace.domain.kernels.jit import compiled
from marketplace.domain.solver.arrays import Layout
from marketplace.domain.solver.lns_choice import Mover
from marketplace.domain.solver.problem import Floats, Ints
from marketplace.domain.solver.rng import mixed
from marketplace.domain.solver.state import State, link, wait
from marketplace.domain.solver.threads import both


@compiled
def _half_of(q: Layout, st: State, halves: Ints, i: int) -> int:
    """Return the half that all pools of a grant lie in, or -1."""
    half: int = halves[q.pool[st.entry[q.piece_at[i]]]]
    for m in range(q.piece_at[i] + 1, q.piece_at[i] + st.parts[i]):
        if halves[q.pool[st.entry[m]]] != half:
            return -1
    return half


@compiled
def _divide(halves: Ints, salt: int) -> None:
    """Give every pool a half."""
    for p in range(halves.size):
        halves[p] = mixed(salt, p) >> 8 & 1


@compiled
def _clear(st: State) -> None:
    """Link no grant to its pools, and let nobody wait."""
    for p in range(st.head.size):
        st.head[p] = -1
    for held in range(st.waits.size):
        st.waits[held] = 0
    for i in range(st.seat.size):
        st.seat[i] = -1


@compiled
def _take_half(q: Layout, st: State, part: State, halves: Ints, half: int, seed: int) -> None:
    """Write one half of a round into `part`: its pools, who sits in them only, and who waits."""
    _clear(part)
    for p in range(q.pools):
        for t in range(q.slots):
            part.free[p, t] = st.free[p, t] if halves[p] == half else 0
            part.taken[p, t] = st.taken[p, t]
    for i in range(q.row.size):
        part.start[i] = -1
        if st.start[i] >= 0 and _half_of(q, st, halves, i) == half:
            part.start[i] = st.start[i]
            part.parts[i] = st.parts[i]
            for m in range(q.piece_at[i], q.piece_at[i] + st.parts[i]):
                part.entry[m] = st.entry[m]
                part.gpus[m] = st.gpus[m]
                part.mask[m] = st.mask[m]
                link(q, part, m)
        elif st.seat[i] >= 0 and mixed(seed, i) & 1 == half:
            wait(q, part, i)


@compiled
def _give_back(q: Layout, st: State, part: State, halves: Ints, half: int) -> None:
    """Write what became of one half into the round; who sits and who waits is linked later."""
    for p in range(q.pools):
        if halves[p] == half:
            for t in range(q.slots):
                st.free[p, t] = part.free[p, t]
                st.taken[p, t] = part.taken[p, t]
    for i in range(q.row.size):
        if part.start[i] < 0 and part.seat[i] < 0:
            continue
        st.start[i] = part.start[i]
        st.parts[i] = part.parts[i]
        for m in range(q.piece_at[i], q.piece_at[i] + part.parts[i]):
            st.entry[m] = part.entry[m]
            st.gpus[m] = part.gpus[m]
            st.mask[m] = part.mask[m]


@compiled
def _join(q: Layout, st: State, first: State, second: State) -> None:
    """Link who sits and who waits in either half, and who sat in both, as one round again."""
    for p in range(q.pools):
        st.head[p] = -1
    for held in range(st.waits.size):
        st.waits[held] = 0
    for i in range(q.row.size):
        st.seat[i] = -1
        if st.start[i] >= 0:
            for m in range(q.piece_at[i], q.piece_at[i] + st.parts[i]):
                link(q, st, m)
        elif first.seat[i] >= 0 or second.seat[i] >= 0:
            wait(q, st, i)


class Halves:
    """A large round that is searched in two halves."""

    def __init__(self, layout: Layout, state: State, short: Ints, seed: int) -> None:
        self.layout, self.state, self.seed = layout, state, seed & 0x7FFFFFFF
        self.parts = [_copy(state), _copy(state)]
        self.movers = [
            Mover(layout, part, short, seed + half) for half, part in enumerate(self.parts)
        ]
        self.times = 0
        self.halves = np.zeros(layout.pools, np.int64)

    def search(self, paid: Floats, least: Floats, moves: int, heat: float) -> float:
        """Make so many moves in each half; return how much more the round is worth."""
        q, state = self.layout, self.state
        salt = mixed(self.seed, self.times)
        halves = self.halves
        _divide(halves, salt)
        for half, (part, mover) in enumerate(zip(self.parts, self.movers, strict=True)):
            _take_half(q, state, part, halves, half, salt)
            np.equal(halves, half, out=mover.desk.open)
        each = [partial(self._search, half, paid, least, moves, heat) for half in (0, 1)]
        gained = sum(both(*each))
        for half, part in enumerate(self.parts):
            _give_back(q, state, part, halves, half)
        _join(q, state, *self.parts)
        self.times += 1
        return gained

    def _search(self, half: int, paid: Floats, least: Floats, moves: int, heat: float) -> float:
        mover = self.movers[half]
        if not mover.desk.open.any():
            return 0.0
        return mover.make(paid, least, moves, 0.0, heat)


def _copy(state: State) -> State:
    return state._replace(**{name: column.copy() for name, column in state._asdict().items()})
