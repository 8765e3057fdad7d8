"""Clear a round: greedy by price, prices from the dual, greedy by those prices, local search.

Each stage keeps the best clearing so far; how far the later ones go is `Effort`. Small rounds are
finished exactly, where that is asked for and HiGHS is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import ceil, inf
from operator import itemgetter

import numpy as np

from marketplace.domain.kernels.jit import compiles
from marketplace.domain.solver.arrays import Layout, lay_out
from marketplace.domain.solver.branch_and_bound import demand, finish, version
from marketplace.domain.solver.coarse import merged, spread_out
from marketplace.domain.solver.decomposition import Halves
from marketplace.domain.solver.dual_prices import Wants, add_up
from marketplace.domain.solver.greedy import place_some
from marketplace.domain.solver.lns import CHUNK_MOVES, SMALL_MAX
from marketplace.domain.solver.lns_choice import Mover
from marketplace.domain.solver.pricing import Pricing
from marketplace.domain.solver.problem import Floats, Ints, Problem
from marketplace.domain.solver.scratch import Fees, bench_for, lay_fees
from marketplace.domain.solver.solution import Effort, Piece, Placed, Solution, welfare_of
from marketplace.domain.solver.state import State, begin
from marketplace.domain.solver.threads import both, divisible, is_large

ALPHA = 0.95
"""How much prices count where bids are placed in the order of what they gain at them."""
CHUNKS = 32
"""Chunks of a large round between two looks, half of them in each half."""
PATIENCE = 3
"""Chunks in a small round until it leaps."""
LEAP, LEAP_MOVES = 0.02, 12
"""How much of the worth a move of a leap may lose, and how many moves it has."""
COLD, HEAT, HEAT_HALF = 5.0, 0.03, 20.0
"""After so many moves for each bid, a move in a larger round may lose so much of what a grant is
worth on the mean; and less and less, as if it halved after so many more."""
HEAT_AT_FIRST = 0.02
"""Where it is known when the search will be over, moves may lose so much of that from the first on,
and evenly less until then."""


def never() -> bool:
    """Say that there is time."""
    return False


def solve(
    problem: Problem, *, effort: Effort, seed: int, enough: Callable[[], bool] = never
) -> Solution:
    """Return the best clearing found with this effort, and a bound on any.

    enough: asked between chunks of work, true when time is up. What it cut off shows in `done`.
    Where it has a method `soon`, that is asked while prices are found: it is true earlier, so that
    there is time for a bound and for placing by prices.

    Raises: OtherSolver when the effort is of a round that another version of HiGHS finished.
    """
    if effort.highs:
        demand(effort.highs)
    layout = lay_out(problem)
    soon = getattr(enough, "soon", enough)
    # Compiled, what runs once takes a fraction of a second, and nobody asks meanwhile.
    hurried = None if compiles() or enough is never else enough
    pricing, state, worth, effort = _begun(problem, layout, effort, seed, hurried and soon)
    while pricing.steps < effort.dual and not soon():
        if not pricing.step(soon):
            break
    if effort.asked and pricing.steps == effort.dual:
        pricing.step(until=effort.asked)
    prices, fees = np.ceil(pricing.prices.mean), pricing.fees()
    bound = pricing.bound(prices, fees, enough=hurried, until=effort.bounded)
    paid = np.zeros((problem.pools, problem.slots + 1))
    add_up(layout, prices, paid)
    by_prices = _by_prices(problem, layout, paid, fees, pricing, effort, hurried)
    state, worth = max([(state, worth), *(each[:2] for each in by_prices)], key=itemgetter(1))
    climb = Climb(layout, state, paid, pricing.wants, seed, worth, effort.cooled)
    lay_fees(layout, climb.mover.bench, fees)
    searchable = problem.pools > 0 and problem.bids > 0
    while searchable and climb.chunks < effort.search and not enough():
        climb.step(effort.search)
    climb.end()
    exact = effort.exact if searchable else 0
    placed, welfare, least, finished = _finished(problem, layout, state, bound, exact, enough)
    return Solution(
        placed=placed,
        welfare_nanos=welfare,
        bound_nanos=max(least, welfare),
        prices=prices.astype(np.int64),
        done=Effort(
            dual=pricing.steps,
            search=climb.chunks,
            exact=exact if finished else 0,
            highs=version() if finished else 0,
            asked=pricing.asked,
            limits=effort.limits,
            bounded=pricing.bounded,
            gains=by_prices[0][2] if by_prices else 0,
            rates=by_prices[1][2] if by_prices else 0,
            opened=effort.opened,
            cooled=effort.cooled,
        ),
        seed=seed,
    )


def _finished(
    problem: Problem,
    layout: Layout,
    state: State,
    bound: float,
    nodes: int,
    enough: Callable[[], bool],
) -> tuple[tuple[Placed | None, ...], int, int, bool]:
    """Return the best clearing, its worth, the least bound; and if they are of an exact finish."""
    placed = read(problem, layout, state)
    welfare, least = welfare_of(problem, placed), ceil(bound)
    finished = finish(problem, layout, placed, nodes, enough) if nodes else None
    if finished is not None:
        least = min(least, finished.bound)
        if welfare_of(problem, finished.placed) > welfare:
            placed, welfare = finished.placed, welfare_of(problem, finished.placed)
    return placed, welfare, least, finished is not None


def _begun(
    problem: Problem,
    layout: Layout,
    effort: Effort,
    seed: int,
    soon: Callable[[], bool] | None,
) -> tuple[Pricing, State, float, Effort]:
    """Place bids by limit, and open prices; in a large round, these take a first step meanwhile.

    In thin markets, every bid that can be placed at all is then placed as well as it can be: all
    capacity is free of charge, and nothing is left to search.

    soon: asked now and then, and then what is placed goes before all else; prices start at zero.
    """
    state, pricing = begin(problem, layout), Pricing(problem, layout, seed)
    nothing, bench = np.zeros((problem.pools, problem.slots + 1)), bench_for(layout)
    early = effort.dual and is_large(layout)

    def by_limit() -> tuple[float, int]:
        order = by_price(layout)
        return place_some(
            layout, state, nothing, bench, order, 0.0, pricing.between, soon, effort.limits
        )

    def open_and_step() -> tuple[float, int]:
        opened = _open(problem, pricing, effort.opened)
        pricing.step()
        return 0.0, opened

    opened = 0
    if soon is not None:
        worth, cut = by_limit()
        most = inf if cut else pricing.bound(np.zeros_like(pricing.prices.mean), enough=soon)
        if early and not soon():
            pricing.step(soon)
    else:
        most = pricing.bound(np.zeros_like(pricing.prices.mean))
        if early:
            (worth, cut), (_, opened) = both(by_limit, open_and_step)
        else:
            worth, cut = by_limit()
    if not cut and not pricing.bounded and most <= worth * (1 + 2e-9) + 2.0:
        nothing_left = replace(effort, dual=0, search=0, asked=0, opened=0, cooled=0)
        return Pricing(problem, layout, seed), state, worth, nothing_left
    if soon is None and effort.dual and not early:
        opened = _open(problem, pricing, effort.opened)
    return pricing, state, worth, replace(effort, limits=cut, opened=opened)


def _open(problem: Problem, pricing: Pricing, steps: int) -> int:
    """Start prices at those of a problem in which like pools are one; return its steps of pricing.

    None are taken where pools cannot be added up.
    """
    found = merged(problem) if steps else None
    if found is None:
        return 0
    small, merged_in = found
    other = Pricing(small, lay_out(small, pricing.layout), pricing.seed)
    for _ in range(steps):
        other.step()
    pricing.start_at(spread_out(problem, small, merged_in, other.prices.mean), other)
    return steps


def _by_prices(
    problem: Problem,
    layout: Layout,
    paid: Floats,
    fees: Fees,
    pricing: Pricing,
    effort: Effort,
    enough: Callable[[], bool] | None,
) -> list[tuple[State, float, int]]:
    """Return clearings in which bids are placed by prices, in several orders, and their worth.

    And after how many bids time was up, where it was.
    """

    def placed(order: Ints, alpha: float, until: int) -> tuple[State, float, int]:
        state, bench = begin(problem, layout), bench_for(layout)
        lay_fees(layout, bench, fees)
        worth, cut = place_some(
            layout, state, paid, bench, order, alpha, pricing.between, enough, until
        )
        return state, worth, cut

    steps = pricing.steps + pricing.asked
    until = (effort.gains, effort.rates)
    in_order = enumerate(orders(layout, pricing.wants.least, steps))
    each = [partial(placed, *one, until[number]) for number, one in in_order]
    if each and is_large(layout):
        return both(*each)
    return [one() for one in each]


class Climb:
    """Local search from one clearing, in chunks of `CHUNK_MOVES` moves.

    Large rounds are searched in halves, in two threads.

    In small rounds, where it would soon stand still, it now and then goes on from a worse clearing
    near by, and comes back when that leads nowhere. In larger ones moves may lose a little, less
    and less; nothing after `cooled` chunks, if not 0.
    """

    def __init__(
        self,
        layout: Layout,
        state: State,
        paid: Floats,
        wants: Wants,
        seed: int,
        worth: float,
        cooled: int = 0,
    ) -> None:
        self.layout, self.state, self.paid, self.wants = layout, state, paid, wants
        self.mover = Mover(layout, state, wants.short, seed)
        self.worth, self.cooled = worth, cooled
        self.chunks = 0
        self.gained = self.high = 0.0
        self.small = len(layout.row) <= SMALL_MAX
        self.halves = None
        if divisible(layout):
            self.halves = Halves(layout, state, wants.short, seed)
        self.mean = worth / max(1, int((state.start >= 0).sum()))
        self.top = self._copy()

    def step(self, last: int) -> None:
        """Make a chunk of moves, or in a large round several; none beyond the chunk `last`."""
        if self.halves is not None:
            each = max(1, min(CHUNKS, last - self.chunks) // 2)
            moves, heat = each * CHUNK_MOVES, self._heat()
            self.gained += self.halves.search(self.paid, self.wants.least, moves, heat)
            self.chunks += min(2 * each, last - self.chunks)
            self._keep()
            return
        if self.small and self.chunks % PATIENCE == PATIENCE - 1:
            self.end()
            self.gained += self._search(LEAP_MOVES, LEAP * (self.worth + self.gained), 0.0)
        self.gained += self._search(CHUNK_MOVES, 0.0, 0.0 if self.small else self._heat())
        self.chunks += 1
        self._keep()

    def end(self) -> None:
        """Go back to the best clearing found."""
        if self.gained < self.high:
            for name, column in self.state._asdict().items():
                column[...] = getattr(self.top, name)
            self.gained = self.high

    def _heat(self) -> float:
        if self.cooled:
            return HEAT_AT_FIRST * self.mean * max(0.0, 1.0 - self.chunks / self.cooled)
        moves = self.chunks * CHUNK_MOVES / len(self.layout.row)
        return HEAT * self.mean / (1.0 + moves / HEAT_HALF) if moves >= COLD else 0.0

    def _keep(self) -> None:
        """Remember the clearing, if it is the best so far."""
        if self.gained > self.high:
            self.high = self.gained
            for name, column in self.top._asdict().items():
                column[...] = getattr(self.state, name)

    def _search(self, moves: int, loss: float, heat: float) -> float:
        return self.mover.make(self.paid, self.wants.least, moves, loss, heat)

    def _copy(self) -> State:
        return self.state._replace(
            **{name: column.copy() for name, column in self.state._asdict().items()}
        )


def orders(layout: Layout, least: Floats, steps: int) -> list[tuple[Ints, float]]:
    """Return orders in which to place bids by prices, and how much prices count in the placing.

    By gain, and by gain per GPU-hour. Where prices count a little less, gaps are filled better.
    """
    if steps == 0:
        return []
    rate = layout.worth - np.minimum(least, 4.0 * layout.worth)
    total = rate * np.where(rate > 0.0, layout.gpus * layout.hours, 1.0)
    by_gain = np.argsort(-total, kind="stable").astype(np.int64)
    by_rate = np.argsort(-rate, kind="stable").astype(np.int64)
    return [(by_gain, ALPHA), (by_rate, 1.0)]


def by_price(layout: Layout) -> Ints:
    """Return the bids, highest limit first; of equal limits the lower number."""
    order: Ints = np.argsort(-layout.worth, kind="stable").astype(np.int64)
    return order


def read(problem: Problem, layout: Layout, state: State) -> tuple[Placed | None, ...]:
    """Return the grants that stand in the state."""
    placed: list[Placed | None] = [None] * problem.bids
    on = np.flatnonzero(state.start >= 0)
    slot = state.start[on]
    columns = (
        on,
        slot,
        layout.ends[layout.row[on], slot],
        np.maximum(problem.earliest[on], problem.grid[slot]),
        layout.piece_at[on],
        state.parts[on],
    )
    pool = layout.pool[state.entry].tolist() if len(layout.pool) else []
    gpus, mask = state.gpus.tolist(), state.mask.tolist()
    for bid, begins, ends, starts, first, parts in zip(*(c.tolist() for c in columns), strict=True):
        pieces = tuple(Piece(pool[m], gpus[m], mask[m]) for m in range(first, first + parts))
        placed[bid] = Placed(begins, ends, starts, pieces)
    return tuple(placed)
