"""Which bids a move of the local search takes in hand: neighbours in pools, hours and quotas."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from marketplace.domain.kernels.jit import compiled, woven_in
from marketplace.domain.solver.arrays import Layout
from marketplace.domain.solver.problem import Floats, Ints
from marketplace.domain.solver.quota_costs import dues_of
from marketplace.domain.solver.rng import below
from marketplace.domain.solver.scratch import Bench
from marketplace.domain.solver.state import State, value

POOLS_MAX, POOLS_FEW = 4, 2
"""Pools of a move at most: in small rounds, and in large ones."""
TRIED = 10
"""Bids that wait, tried in each move."""
HOPEFUL = 3
"""Of so many, the one that hopes for most."""
CROWD_MAX = 400
"""Bids moved at once."""
MATES_MAX = 12
"""Bids taken in hand for sharing a quota, or at random."""


class Desk(NamedTuple):
    """Room for one move. C: bids moved."""

    chosen: Ints
    """[POOLS_MAX] the pools of the move."""
    open: Ints
    """[P] 1 for the pools that moves may use."""
    near: Ints
    """[P] the number of the move in which a pool was last chosen."""
    crowd: Ints
    key: Floats
    order: Ints
    """[C] bids in hand, what they are sorted by, and their order."""
    held: Ints
    """[N] the number of the move in which a bid was last in hand."""
    start: Ints
    parts: Ints
    entry: Ints
    gpus: Ints
    mask: Ints
    """Grants as they were; as in `State`."""
    moves: Ints
    """[1] number of the move."""
    short: Ints
    """[N, S] the pools each bid likes best at the scarcity prices, as entries."""
    regret: Floats
    sorry: Ints
    """[N] what each bid could gain more than it does, and those who could."""


def desk_for(q: Layout, short: Ints) -> Desk:
    """Return a desk for any move."""
    bids, pieces = len(q.row), int(q.piece_at[-1])
    return Desk(
        chosen=np.zeros(POOLS_MAX, np.int64),
        open=np.ones(q.pools, np.int64),
        near=np.zeros(q.pools, np.int64),
        crowd=np.zeros(CROWD_MAX + TRIED + MATES_MAX + 1, np.int64),
        key=np.zeros(CROWD_MAX + TRIED + MATES_MAX + 1),
        order=np.zeros(CROWD_MAX + TRIED + MATES_MAX + 1, np.int64),
        held=np.zeros(bids, np.int64),
        start=np.zeros(bids, np.int64),
        parts=np.zeros(bids, np.int64),
        entry=np.zeros(pieces, np.int64),
        gpus=np.zeros(pieces, np.int64),
        mask=np.zeros(pieces, np.int64),
        moves=np.zeros(1, np.int64),
        short=short,
        regret=np.zeros(bids),
        sorry=np.zeros(bids, np.int64),
    )


@woven_in
def entry_of(q: Layout, held: int, p: int) -> int:
    """Return the entry of a pool in a list, or -1."""
    if q.dense.shape[0] > 0:
        entry: int = q.dense[held, p]
        return entry
    low = q.list_at[held]
    high = q.list_at[held + 1]
    while low < high:
        mid = (low + high) // 2
        if q.pool[q.by_pool[mid]] < p:
            low = mid + 1
        else:
            high = mid
    if low < q.list_at[held + 1] and q.pool[q.by_pool[low]] == p:
        found: int = q.by_pool[low]
        return found
    return -1


@woven_in
def hope(q: Layout, least: Floats, i: int) -> float:
    """Return what a bid would gain at the scarcity prices, in nano-units."""
    gain: float = (q.worth[i] - least[i]) * q.gpus[i] * q.hours[i]
    return gain


@compiled
def choose(q: Layout, st: State, desk: Desk, dice: Ints, most: int) -> int:
    """Choose the pools of a move: one at random and others that like bids may use."""
    move = desk.moves[0]
    first = below(dice, q.pools)
    while not desk.open[first]:
        first = below(dice, q.pools)
    desk.chosen[0] = first
    desk.near[first] = move
    count = 1
    wanted = 1 + below(dice, most)
    for _ in range(wanted * 4):
        if count >= wanted:
            break
        lists = q.lists_at[first + 1] - q.lists_at[first]
        beside = q.beside_at[first + 1] - q.beside_at[first]
        if beside > 1 and below(dice, 4) == 0:
            p = q.beside[q.beside_at[first] + below(dice, beside)]
        elif lists > 0 and below(dice, 8) > 0:
            held = q.lists[q.lists_at[first] + below(dice, lists)]
            size = q.list_at[held + 1] - q.list_at[held]
            p = q.pool[q.list_at[held] + below(dice, size)]
        else:
            p = below(dice, q.pools)
        if not desk.open[p] or desk.near[p] == move:
            continue
        if q.opens[p] >= q.closes[first] or q.closes[p] <= q.opens[first]:
            continue
        desk.chosen[count] = p
        desk.near[p] = move
        count += 1
    return count


@compiled
def regrets(q: Layout, st: State, paid: Floats, bench: Bench, desk: Desk, least: Floats) -> int:
    """Work out who could gain more at the scarcity prices; return how many could."""
    count = 0
    for i in range(q.row.size):
        desk.regret[i] = 0.0
        if st.start[i] < 0 and st.seat[i] < 0:
            continue
        regret = max(0.0, hope(q, least, i))
        if st.start[i] >= 0:
            s = st.start[i]
            e = q.ends[q.row[i], s]
            regret += dues_of(q, st, bench, i) - value(q, st, i)
            for m in range(q.piece_at[i], q.piece_at[i] + st.parts[i]):
                j = st.entry[m]
                p = q.pool[j]
                regret += st.gpus[m] * q.units[j] * (paid[p, e] - paid[p, s])
        if regret > 0.0:
            desk.regret[i] = regret
            desk.sorry[count] = i
            count += 1
    return count


@compiled
def sorriest(desk: Desk, dice: Ints, sorry: int) -> int:
    """Return one of three of those who could gain more, the one that could gain most."""
    i: int = desk.sorry[below(dice, sorry)]
    for _ in range(2):
        other = desk.sorry[below(dice, sorry)]
        if desk.regret[other] > desk.regret[i]:
            i = other
    return i


@compiled
def side_with(q: Layout, st: State, desk: Desk, dice: Ints, i: int, most: int) -> int:
    """Choose the pools of a move for one bid's sake: where it is, and where it would rather be."""
    move = desk.moves[0]
    count = 0
    if st.start[i] >= 0:
        p = q.pool[st.entry[q.piece_at[i]]]
        desk.chosen[0] = p
        desk.near[p] = move
        count = 1
    wanted = count + 1 + below(dice, most - count)
    for _ in range(wanted * 2):
        if count >= wanted:
            break
        j = desk.short[i, below(dice, 1 + below(dice, desk.short.shape[1]))]
        if j < 0 or not desk.open[q.pool[j]] or desk.near[q.pool[j]] == move:
            continue
        desk.chosen[count] = q.pool[j]
        desk.near[q.pool[j]] = move
        count += 1
    return count


@compiled
def lift(q: Layout, st: State, desk: Desk, count: int, low: int, high: int, sided: int) -> int:
    """Take in hand the grants of the chosen pools that touch slots [low, high), and one bid."""
    crowd = 0
    if sided >= 0:
        desk.held[sided] = desk.moves[0]
        desk.crowd[0] = sided
        crowd = 1
    for c in range(count):
        piece = st.head[desk.chosen[c]]
        while piece >= 0:
            i = st.owner[piece]
            s = st.start[i]
            inside = s < high and q.ends[q.row[i], s] > low
            if inside and crowd < CROWD_MAX and desk.held[i] != desk.moves[0]:
                desk.held[i] = desk.moves[0]
                desk.crowd[crowd] = i
                crowd += 1
            piece = st.after[piece]
    return crowd


@compiled
def invite(
    q: Layout, st: State, desk: Desk, least: Floats, dice: Ints, count: int, crowd: int
) -> int:
    """Take in hand some bids that wait for one of the chosen pools."""
    for _ in range(TRIED):
        p = desk.chosen[below(dice, count)]
        lists = q.lists_at[p + 1] - q.lists_at[p]
        if lists == 0:
            continue
        chosen = -1
        for _ in range(HOPEFUL):
            held = q.lists[q.lists_at[p] + below(dice, lists)]
            if st.waits[held] == 0:
                continue
            i = st.waiting[st.waiting_at[held] + below(dice, st.waits[held])]
            if chosen < 0 or hope(q, least, i) > hope(q, least, chosen):
                chosen = i
        if chosen >= 0 and desk.held[chosen] != desk.moves[0]:
            desk.held[chosen] = desk.moves[0]
            desk.crowd[crowd] = chosen
            crowd += 1
    return crowd


@compiled
def gather(q: Layout, st: State, desk: Desk, dice: Ints, crowd: int, near: int) -> int:
    """Take in hand a few bids wherever they are: those that share a quota with `near`, or any."""
    group = -1
    quotas = q.group_at[near + 1] - q.group_at[near]
    if quotas > 0 and below(dice, 4) > 0:
        group = q.group[q.group_at[near] + below(dice, quotas)]
        begin = q.member_at[group]
        size = q.member_at[group + 1] - begin
    else:
        begin = 0
        size = q.row.size
    wanted = 2 + below(dice, MATES_MAX - 1)
    for _ in range(2 * wanted):
        i = q.member[begin + below(dice, size)] if group >= 0 else below(dice, size)
        idle = st.start[i] < 0 and st.seat[i] < 0
        if wanted > 0 and not idle and desk.held[i] != desk.moves[0]:
            desk.held[i] = desk.moves[0]
            desk.crowd[crowd] = i
            crowd += 1
            wanted -= 1
    return crowd
