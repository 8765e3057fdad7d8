"""Room for the moves of `lns_single_pool`: what bids gain and lose, grants before and after."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from marketplace.domain.kernels.jit import compiled, woven_in
from marketplace.domain.solver.arrays import Layout
from marketplace.domain.solver.destroy import CROWD_MAX, Desk, hope
from marketplace.domain.solver.problem import Floats, Ints
from marketplace.domain.solver.state import State, admit, link, unlink, wait

TRIED = 4
"""Bids that wait, tried in each move."""


class Tray(NamedTuple):
    """Room for quick moves. C: bids moved."""

    gain: Floats
    """[N] what each bid gains at most at the scarcity prices."""
    regret: Floats
    """[N] how much less it gains now."""
    idle: Floats
    """[P] what the free capacity of each pool costs."""
    old_entry: Ints
    old_start: Ints
    new_entry: Ints
    new_start: Ints
    """[C] grants before and after; start -1 for none."""


def tray_for(q: Layout) -> Tray:
    """Return a tray for any move."""
    bids, crowd = len(q.row), CROWD_MAX + TRIED + 1
    return Tray(
        gain=np.zeros(bids),
        regret=np.zeros(bids),
        idle=np.zeros(q.pools),
        old_entry=np.zeros(crowd, np.int64),
        old_start=np.zeros(crowd, np.int64),
        new_entry=np.zeros(crowd, np.int64),
        new_start=np.zeros(crowd, np.int64),
    )


@woven_in
def worth_of(q: Layout, i: int, j: int) -> float:
    return (q.worth[i] - q.floor[j]) * q.gpus[i] * q.hours[i]  # type: ignore[no-any-return]


@woven_in
def price_of(q: Layout, paid: Floats, i: int, j: int, s: int) -> float:
    p = q.pool[j]
    units = q.gpus[i] * q.units[j]
    return units * (paid[p, q.ends[q.row[i], s]] - paid[p, s])  # type: ignore[no-any-return]


@woven_in
def take(q: Layout, st: State, i: int, j: int, s: int, sign: int) -> None:
    """Take the capacity of a grant, or give it back."""
    p = q.pool[j]
    units = sign * q.gpus[i] * q.units[j]
    for t in range(s, q.ends[q.row[i], s]):
        st.free[p, t] -= units


@compiled
def assess(q: Layout, st: State, paid: Floats, desk: Desk, tray: Tray, least: Floats) -> None:
    """Work out gains, regrets and idle capacity."""
    for p in range(q.pools):
        idle = 0.0
        if desk.open[p]:
            for t in range(q.slots):
                idle += st.free[p, t] * (paid[p, t + 1] - paid[p, t])
        tray.idle[p] = idle
    for i in range(q.row.size):
        gain = max(0.0, hope(q, least, i))
        tray.gain[i] = gain
        if st.start[i] >= 0 and st.parts[i] == 1:
            j = st.entry[q.piece_at[i]]
            gain -= worth_of(q, i, j) - price_of(q, paid, i, j, st.start[i])
        tray.regret[i] = gain


@compiled
def list_sorry(q: Layout, st: State, desk: Desk, tray: Tray) -> int:
    """List who could gain more, among those that may be moved; return how many."""
    count = 0
    for i in range(q.row.size):
        if tray.regret[i] <= 0.0:
            continue
        single = st.start[i] >= 0 and st.parts[i] == 1
        seated = single and desk.open[q.pool[st.entry[q.piece_at[i]]]]
        if seated or st.seat[i] >= 0:
            desk.sorry[count] = i
            count += 1
    return count


@woven_in
def undo(q: Layout, st: State, desk: Desk, tray: Tray, crowd: int) -> None:
    """Give every bid in hand the capacity it had."""
    for c in range(crowd):
        if tray.new_start[c] >= 0:
            take(q, st, desk.crowd[c], tray.new_entry[c], tray.new_start[c], -1)
    for c in range(crowd):
        if tray.old_start[c] >= 0:
            take(q, st, desk.crowd[c], tray.old_entry[c], tray.old_start[c], 1)


@compiled
def keep(q: Layout, st: State, paid: Floats, desk: Desk, tray: Tray, crowd: int) -> None:
    """Write down who sits where now, and who waits."""
    for c in range(crowd):
        i = desk.crowd[c]
        m = q.piece_at[i]
        old = tray.old_start[c]
        s = tray.new_start[c]
        j = tray.new_entry[c]
        if old == s and (s < 0 or tray.old_entry[c] == j):
            continue
        if old >= 0:
            p = q.pool[tray.old_entry[c]]
            tray.idle[p] += price_of(q, paid, i, tray.old_entry[c], old)
            unlink(st, m, p)
            if s < 0:
                wait(q, st, i)
        tray.regret[i] = tray.gain[i]
        st.start[i] = s
        if s >= 0:
            if old < 0:
                admit(q, st, i)
            st.parts[i] = 1
            st.entry[m] = j
            st.gpus[m] = q.gpus[i]
            st.mask[m] = 0
            link(q, st, m)
            price = price_of(q, paid, i, j, s)
            tray.idle[q.pool[j]] -= price
            tray.regret[i] -= worth_of(q, i, j) - price
