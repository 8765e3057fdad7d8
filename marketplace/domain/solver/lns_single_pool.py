"""Local search of larger rounds without quotas: moves as in `lns`, made several times as fast.

Only bids that lie in one pool are moved, and only into one pool, even where they might spread; and
only in pools that no card is divided in; so what is free is all that changes while a move is made.
What a bid gains at most at the scarcity prices is known, so what it gains less is lost for good: a
move that has lost more than the grants and the idle capacity that it took out had lost is given up
at once, most of them half-way.
"""

from __future__ import annotations

from marketplace.domain.kernels.jit import compiled, woven_in
from marketplace.domain.solver.arrays import Layout
from marketplace.domain.solver.destroy import (
    CROWD_MAX,
    HOPEFUL,
    Desk,
    choose,
    entry_of,
)
from marketplace.domain.solver.insertion import FAR, SNUG
from marketplace.domain.solver.lns_scratch import (
    TRIED,
    Tray,
    assess,
    keep,
    list_sorry,
    price_of,
    take,
    undo,
    worth_of,
)
from marketplace.domain.solver.problem import Floats, Ints
from marketplace.domain.solver.repair_order import rank
from marketplace.domain.solver.rng import below, share
from marketplace.domain.solver.scratch import Bench
from marketplace.domain.solver.state import State

POOLS = 3
"""Pools of a move at most."""
SIDED = 0.97
"""How many moves are made for the sake of a bid that could gain more."""
LOOKED_AT = 11
"""Of so many pools that it may use, that with the most idle capacity is chosen."""
LIKED = 0.1
"""How many of these are of the few that it likes best at the scarcity prices."""
FIRSTLY = 0.5
"""How many of these moves find that bid a place before all others."""
NARROW = 0.5
"""How many moves take out the grants of some hours only."""
SCARCE = 0.3
"""Scarcity prices count for so much at least where a place is chosen."""
RENEWED = 256
"""Moves until it is listed again who could gain more."""


@woven_in
def _sorriest(desk: Desk, tray: Tray, dice: Ints, sorry: int) -> int:
    i: int = desk.sorry[below(dice, sorry)]
    for _ in range(2):
        other = desk.sorry[below(dice, sorry)]
        if tray.regret[other] > tray.regret[i]:
            i = other
    return i


@woven_in
def _pool_for(q: Layout, desk: Desk, dice: Ints, i: int) -> int:
    """Return an entry of the bid's list at random, or one that it likes, or -1."""
    if share(dice) < LIKED:
        liked: int = desk.short[i, below(dice, 1 + below(dice, desk.short.shape[1]))]
        return liked
    begin = q.list_at[q.listed[i]]
    return begin + below(dice, q.list_at[q.listed[i] + 1] - begin)  # type: ignore[no-any-return]


@woven_in
def _side_with(q: Layout, st: State, desk: Desk, tray: Tray, dice: Ints, i: int) -> int:
    """Choose the pools of a move for one bid's sake: where it is, and idle ones that it may use."""
    move = desk.moves[0]
    count = 0
    if st.start[i] >= 0:
        p = q.pool[st.entry[q.piece_at[i]]]
        desk.chosen[0] = p
        desk.near[p] = move
        count = 1
    wanted = count + 1 + below(dice, POOLS - count)
    for _ in range(wanted * 2):
        if count >= wanted:
            break
        chosen = -1
        for _ in range(LOOKED_AT):
            j = _pool_for(q, desk, dice, i)
            if j < 0 or q.floor[j] > q.limit[i]:
                continue
            p = q.pool[j]
            idler = chosen < 0 or tray.idle[p] > tray.idle[chosen]
            usable = desk.open[p] and q.opens[p] <= q.last[i] and q.closes[p] > q.first[i]
            usable = usable and q.most[p] >= q.gpus[i] * q.units[j]
            if idler and usable and desk.near[p] != move:
                chosen = p
        if chosen >= 0:
            desk.chosen[count] = chosen
            desk.near[chosen] = move
            count += 1
    return count


@woven_in
def _lift(q: Layout, st: State, desk: Desk, count: int, low: int, high: int, sided: int) -> int:
    """Take in hand the grants of the chosen pools that touch slots [low, high), and one bid."""
    crowd = 0
    if sided >= 0:
        desk.held[sided] = desk.moves[0]
        desk.crowd[0] = sided
        crowd = 1
    for c in range(count):
        m = st.head[desk.chosen[c]]
        while m >= 0:
            i = st.owner[m]
            s = st.start[i]
            inside = s < high and q.ends[q.row[i], s] > low and st.parts[i] == 1
            if inside and crowd < CROWD_MAX and desk.held[i] != desk.moves[0]:
                desk.held[i] = desk.moves[0]
                desk.crowd[crowd] = i
                crowd += 1
            m = st.after[m]
    return crowd


@woven_in
def _invite(
    q: Layout, st: State, desk: Desk, least: Floats, dice: Ints, count: int, crowd: int
) -> int:
    """Take in hand some bids that wait for one of the chosen pools."""
    for _ in range(TRIED):
        p = desk.chosen[below(dice, count)]
        lists = q.lists_at[p + 1] - q.lists_at[p]
        if lists == 0:
            continue
        chosen = -1
        most = 0.0
        for _ in range(HOPEFUL):
            held = q.lists[q.lists_at[p] + below(dice, lists)]
            if st.waits[held] == 0:
                continue
            i = st.waiting[st.waiting_at[held] + below(dice, st.waits[held])]
            hoped = (q.worth[i] - least[i]) * q.gpus[i] * q.hours[i]
            if chosen < 0 or hoped > most:
                chosen = i
                most = hoped
        if chosen >= 0 and desk.held[chosen] != desk.moves[0]:
            desk.held[chosen] = desk.moves[0]
            desk.crowd[crowd] = chosen
            crowd += 1
    return crowd


@woven_in
def _take_out(
    q: Layout, st: State, desk: Desk, tray: Tray, count: int, crowd: int
) -> tuple[float, float]:
    """End the grants in hand; return what they were worth, and what was lost with them at most."""
    worth = 0.0
    lost = 0.0
    for c in range(count):
        lost += tray.idle[desk.chosen[c]]
    for c in range(crowd):
        i = desk.crowd[c]
        j = st.entry[q.piece_at[i]]
        tray.old_start[c] = st.start[i]
        tray.old_entry[c] = j
        tray.new_start[c] = -1
        lost += tray.regret[i]
        if st.start[i] >= 0:
            worth += worth_of(q, i, j)
            take(q, st, i, j, st.start[i], -1)
    return worth, lost


@woven_in
def _best_start(
    q: Layout, st: State, paid: Floats, dice: Ints, i: int, j: int, alpha: float,
    snug: float, noise: float, best: float,
) -> tuple[float, int]:  # fmt: skip
    """Return the cost and slot of the bid's cheapest start in a pool: `insertion.best_start`."""
    p = q.pool[j]
    need = q.gpus[i] * q.units[j]
    row = q.row[i]
    base = q.floor[j] * q.gpus[i] * q.hours[i]
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
            if st.free[p, t] < need:
                full = t
            t += 1
        if full >= s:
            continue
        cost = base + alpha * need * (paid[p, e] - paid[p, s])
        if s > opens and st.free[p, s - 1] >= need:
            cost += snug
        if e < closes and st.free[p, e] >= need:
            cost += snug
        if cost < best:
            cost *= 1.0 + noise * share(dice)
            if cost < best:
                best = cost
                start = s
    return best, start


@woven_in
def _put_in(
    q: Layout, st: State, paid: Floats, dice: Ints, desk: Desk, tray: Tray,
    count: int, crowd: int, alpha: float, lost: float,
) -> float:  # fmt: skip
    """Give the bids in hand places in their order; return what these are worth.

    Given up once more is lost than `lost`; then -FAR is returned.
    """
    noise = 0.02 if below(dice, 4) else 0.1
    worth = 0.0
    for d in range(crowd):
        c = desk.order[d]
        i = desk.crowd[c]
        size = q.gpus[i] * q.hours[i]
        snug = SNUG * q.limit[i] * size
        held = q.listed[i]
        best = FAR
        start = -1
        entry = -1
        for a in range(count):
            j = entry_of(q, held, desk.chosen[a])
            if j < 0 or q.floor[j] > q.limit[i] or q.floor[j] * size >= best:
                continue
            if q.most[desk.chosen[a]] < q.gpus[i] * q.units[j]:
                continue
            cost, s = _best_start(q, st, paid, dice, i, j, alpha, snug, noise, best)
            if s >= 0:
                best = cost
                start = s
                entry = j
        lost -= tray.gain[i]
        if start >= 0:
            take(q, st, i, entry, start, 1)
            tray.new_start[c] = start
            tray.new_entry[c] = entry
            gained = worth_of(q, i, entry)
            worth += gained
            lost += gained - price_of(q, paid, i, entry, start)
        if lost < 0.0:
            return -FAR
    return worth


@compiled
def search_quickly(
    q: Layout, st: State, paid: Floats, bench: Bench, desk: Desk, tray: Tray, least: Floats,
    moves: int, heat: float,
) -> float:  # fmt: skip
    """Make so many moves; return how much more the clearing is worth; see `lns.search`."""
    dice = bench.dice
    gained = 0.0
    sorry = 0
    assess(q, st, paid, desk, tray, least)
    for n in range(moves):
        if n % RENEWED == 0:
            sorry = list_sorry(q, st, desk, tray)
        desk.moves[0] += 1
        count = 0
        sided = -1
        low = 0
        high = q.slots
        if sorry > 0 and share(dice) < SIDED:
            sided = _sorriest(desk, tray, dice, sorry)
            count = _side_with(q, st, desk, tray, dice, sided)
            low = q.first[sided]
            high = q.ends[q.row[sided], q.last[sided]]
        if count == 0:
            count = choose(q, st, desk, dice, POOLS)
        if share(dice) < NARROW:
            centre = low + below(dice, high - low)
            half = 1 + below(dice, max(1, (high - low) // 2))
            low = centre - half
            high = centre + half
        crowd = _lift(q, st, desk, count, low, high, sided)
        crowd = _invite(q, st, desk, least, dice, count, crowd)
        before, lost = _take_out(q, st, desk, tray, count, crowd)
        alpha = SCARCE + (1.0 - SCARCE) * share(dice)
        rank(q, desk, least, dice, crowd, alpha)
        if sided >= 0 and share(dice) < FIRSTLY:
            _put_first(desk)
        luck = share(dice)
        loss = 3.0 * heat * luck * luck
        after = _put_in(q, st, paid, dice, desk, tray, count, crowd, alpha, lost + loss)
        if after >= before - loss:
            gained += after - before
            keep(q, st, paid, desk, tray, crowd)
        else:
            undo(q, st, desk, tray, crowd)
    return gained


@woven_in
def _put_first(desk: Desk) -> None:
    """Put the first of the bids in hand at the head of their order."""
    at = 0
    while desk.order[at] != 0:
        at += 1
    while at > 0:
        desk.order[at] = desk.order[at - 1]
        at -= 1
    desk.order[0] = 0
