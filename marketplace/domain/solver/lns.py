"""Local search: take the grants of a few pools and hours out, put them back in another order.

A move keeps what it finds if that is worth at least as much as before, else everything goes back
to where it was (large-neighbourhood search; Shaw 1998). Bids that wait are put in along with those
taken out, the more gladly the more they would gain at the scarcity prices.
"""

from __future__ import annotations

from marketplace.domain.kernels.jit import compiled
from marketplace.domain.solver.arrays import Layout
from marketplace.domain.solver.destroy import (
    POOLS_FEW,
    POOLS_MAX,
    Desk,
    choose,
    entry_of,
    gather,
    invite,
    lift,
    regrets,
    side_with,
    sorriest,
)
from marketplace.domain.solver.insertion import FAR, NOTHING, SNUG, best_start, find_gang, seat
from marketplace.domain.solver.problem import ONE_POOL, Floats
from marketplace.domain.solver.quota_costs import bar
from marketplace.domain.solver.repair_order import rank
from marketplace.domain.solver.rng import below, share
from marketplace.domain.solver.scratch import Bench
from marketplace.domain.solver.state import State, enter, leave, value

SMALL_MAX = 256
"""In rounds of no more bids, any bids are moved together, whatever they share, and over more pools.

In larger ones a move is quick instead: there are always others to make."""
CHUNK_MOVES = 256
"""Moves until it is worked out again who could gain more."""
SIDED, SIDED_SMALL = 0.9, 0.5
"""How many moves are made for the sake of a bid that could gain more."""
SCATTERED, SCATTERED_SMALL = 0.6, 1 / 3
"""How many of these, and of all in small rounds, look beyond the pools of the move."""
SCARCE = 0.3
"""Scarcity prices count for so much at least where a place is chosen."""
GANG_POOLS_MAX = 256
"""A gang that may use no more pools than this looks at all of them, else at those of the move."""


@compiled
def _settle(
    q: Layout, st: State, paid: Floats, bench: Bench, desk: Desk,
    i: int, count: int, wide: int, alpha: float, noise: float,
) -> bool:  # fmt: skip
    """Grant the bid a place in the chosen pools or the first of its short list; say if it has."""
    if not bar(q, st, i, bench):
        return False
    dice = bench.dice
    held = q.listed[i]
    snug = SNUG * q.limit[i] * q.gpus[i] * q.hours[i]
    start = -1
    if q.spread[i] == ONE_POOL:
        best = FAR
        for c in range(count + wide):
            j = entry_of(q, held, desk.chosen[c]) if c < count else desk.short[i, c - count]
            if j < 0 or q.floor[j] > q.limit[i] or not desk.open[q.pool[j]]:
                continue
            cost, s = best_start(q, st, paid, bench, i, j, alpha, snug, noise, best)
            if s >= 0:
                best = cost
                start = s
                entry = j
        if start >= 0:
            turn = below(dice, 8) if q.divided[q.pool[entry]] else 0
            seat(q, st, i, entry, start, turn)
    else:
        start = _settle_gang(q, st, paid, bench, desk, i, alpha)
    if start < 0:
        return False
    enter(q, st, i, start)
    return True


@compiled
def _settle_gang(
    q: Layout, st: State, paid: Floats, bench: Bench, desk: Desk, i: int, alpha: float
) -> int:
    """Write pieces for a gang: of all its pools if they are few, else of those at hand."""
    dice = bench.dice
    begin = q.list_at[q.listed[i]]
    size = q.list_at[q.listed[i] + 1] - begin
    for m in range(q.piece_at[i], q.piece_at[i] + desk.parts[i]):
        desk.near[q.pool[desk.entry[m]]] = desk.moves[0]
    thin = below(dice, 4) == 0
    count = NOTHING
    for j in range(begin, begin + size):
        at_hand = size <= GANG_POOLS_MAX or desk.near[q.pool[j]] == desk.moves[0]
        if at_hand and q.floor[j] <= q.limit[i] and not (thin and below(dice, 3) == 0):
            bench.among[count] = j
            count += 1
    return find_gang(q, st, paid, bench, i, count, alpha)[1]


@compiled
def _note(q: Layout, st: State, desk: Desk, i: int) -> None:
    """Remember the bid's grant."""
    desk.start[i] = st.start[i]
    desk.parts[i] = st.parts[i] if st.start[i] >= 0 else 0
    for m in range(q.piece_at[i], q.piece_at[i] + desk.parts[i]):
        desk.entry[m] = st.entry[m]
        desk.gpus[m] = st.gpus[m]
        desk.mask[m] = st.mask[m]


@compiled
def _restore(q: Layout, st: State, desk: Desk, crowd: int) -> None:
    """Give every bid in hand the grant it had."""
    for c in range(crowd):
        if st.start[desk.crowd[c]] >= 0:
            leave(q, st, desk.crowd[c])
    for c in range(crowd):
        i = desk.crowd[c]
        if desk.start[i] < 0:
            continue
        st.parts[i] = desk.parts[i]
        for m in range(q.piece_at[i], q.piece_at[i] + desk.parts[i]):
            st.entry[m] = desk.entry[m]
            st.gpus[m] = desk.gpus[m]
            st.mask[m] = desk.mask[m]
        enter(q, st, i, desk.start[i])


@compiled
def search(
    q: Layout, st: State, paid: Floats, bench: Bench, desk: Desk, least: Floats,
    moves: int, loss: float, heat: float,
) -> float:  # fmt: skip
    """Make so many moves; return how much more the clearing is worth, in nano-units.

    loss: a move that makes it worth less by no more than this is kept too. heat: by how much more
    it may be on the mean, by chance.
    """
    dice = bench.dice
    gained = 0.0
    sorry = 0
    small = q.row.size <= SMALL_MAX
    most = POOLS_MAX if small else POOLS_FEW
    siding = SIDED_SMALL if small else SIDED
    scattering = SCATTERED_SMALL if small else SCATTERED
    for n in range(moves):
        if n % CHUNK_MOVES == 0:
            sorry = regrets(q, st, paid, bench, desk, least)
        desk.moves[0] += 1
        sided = sorriest(desk, dice, sorry) if sorry > 0 and share(dice) < siding else -1
        count = side_with(q, st, desk, dice, sided, most) if sided >= 0 else 0
        if count == 0:
            count = choose(q, st, desk, dice, most)
        low = 0 if sided < 0 else q.first[sided]
        high = q.slots if sided < 0 else q.ends[q.row[sided], q.last[sided]]
        if below(dice, 2 if small else 8) == 0:
            centre = low + below(dice, high - low)
            half = 1 + below(dice, max(1, (high - low) // 2))
            low = centre - half
            high = centre + half
        scattered = (sided >= 0 or small) and share(dice) < scattering
        if scattered and below(dice, 2) == 0:
            count = 0
        crowd = lift(q, st, desk, count, low, high, sided)
        if scattered and (small or q.group_at[sided] < q.group_at[sided + 1]):
            near = sided if sided >= 0 else below(dice, q.row.size)
            crowd = gather(q, st, desk, dice, crowd, near)
        if count > 0:
            crowd = invite(q, st, desk, least, dice, count, crowd)
        before = _take_out(q, st, desk, crowd)
        alpha = SCARCE + (1.0 - SCARCE) * share(dice)
        rank(q, desk, least, dice, crowd, alpha)
        after = _put_in(q, st, paid, bench, desk, crowd, count, alpha, small)
        luck = share(dice)
        if after >= before - loss - 3.0 * heat * luck * luck:
            gained += after - before
        else:
            _restore(q, st, desk, crowd)
    return gained


@compiled
def _take_out(q: Layout, st: State, desk: Desk, crowd: int) -> float:
    """Remember and end the grants in hand; return what they were worth."""
    worth = 0.0
    for c in range(crowd):
        i = desk.crowd[c]
        _note(q, st, desk, i)
        if st.start[i] >= 0:
            worth += value(q, st, i)
            leave(q, st, i)
    return worth


@compiled
def _put_in(
    q: Layout, st: State, paid: Floats, bench: Bench, desk: Desk,
    crowd: int, count: int, alpha: float, small: bool,
) -> float:  # fmt: skip
    """Give the bids in hand places in their order; return what these are worth."""
    dice = bench.dice
    noise = 0.02 if below(dice, 4) else 0.1
    wide = desk.short.shape[1]
    if count > 0:
        wide = 0 if not small or below(dice, 2) == 0 else below(dice, 1 + wide)
    worth = 0.0
    for c in range(crowd):
        i = desk.crowd[desk.order[c]]
        if _settle(q, st, paid, bench, desk, i, count, wide, alpha, noise):
            worth += value(q, st, i)
    return worth
