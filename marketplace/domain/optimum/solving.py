"""Clear a round: greedy by price, prices from the dual, greedy by those prices, local search.

Each stage keeps the best clearing so far; how far the later ones go is `Effort`. Small rounds are
finished exactly, where that is asked for and HiGHS is there.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from operator import itemgetter

import numpy as np

from marketplace.domain.optimum.bench import bench_for, lay_fees
from marketplace.domain.optimum.dual import Pricing, Wants, add_up
from marketplace.domain.optimum.exact import demand, finish, version
from marketplace.domain.optimum.halves import Halves, divisible
from marketplace.domain.optimum.layout import Layout, lay_out
from marketplace.domain.optimum.neighbours import desk_for
from marketplace.domain.optimum.placing import place_all
from marketplace.domain.optimum.problem import Floats, Ints, Problem
from marketplace.domain.optimum.search import CHUNK_MOVES, SMALL_MAX, search
from marketplace.domain.optimum.solution import Effort, Piece, Placed, Solution, welfare_of
from marketplace.domain.optimum.state import State, begin

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


def never() -> bool:
    """Say that there is time."""
    return False


def solve(
    problem: Problem,
    *,
    effort: Effort,
    seed: int,
    enough: Callable[[], bool] = never,
) -> Solution:
    """Return the best clearing found with this effort, and a bound on any.

    enough: asked between chunks of work, true when time is up. What it cut off shows in `done`.

    Raises: OtherSolver when the effort is of a round that another version of HiGHS finished.
    """
    if effort.highs:
        demand(effort.highs)
    layout = lay_out(problem)
    bench = bench_for(layout)
    paid = np.zeros((problem.pools, problem.slots + 1))
    state = begin(problem, layout)
    worth = place_all(layout, state, paid, bench, by_price(layout), 0.0)
    pricing = Pricing(problem, layout, seed)
    if _all_at_their_best(pricing, worth):
        effort = Effort(dual=0, search=0)
    while pricing.steps < effort.dual and not enough():
        pricing.step()
    prices, fees = np.ceil(pricing.prices.mean), pricing.fees()
    bound = pricing.bound(prices, fees)
    add_up(layout, prices, paid)
    lay_fees(layout, bench, fees)
    for order, alpha in orders(layout, pricing.wants.least, pricing.steps):
        other = begin(problem, layout)
        total = place_all(layout, other, paid, bench, order, alpha)
        state, worth = max((state, worth), (other, total), key=itemgetter(1))
    climb = Climb(layout, state, paid, pricing.wants, seed, worth)
    lay_fees(layout, climb.bench, fees)
    searchable = problem.pools > 0 and problem.bids > 0
    while searchable and climb.chunks < effort.search and not enough():
        climb.step(effort.search)
    climb.end()
    placed = read(problem, layout, state)
    welfare, least = welfare_of(problem, placed), ceil(bound)
    exact = effort.exact and searchable
    finished = finish(problem, layout, placed, effort.exact, enough) if exact else None
    if finished is not None:
        least = min(least, finished.bound)
        if welfare_of(problem, finished.placed) > welfare:
            placed, welfare = finished.placed, welfare_of(problem, finished.placed)
    return Solution(
        placed=placed,
        welfare_nanos=welfare,
        bound_nanos=max(least, welfare),
        prices=prices.astype(np.int64),
        done=Effort(
            dual=pricing.steps,
            search=climb.chunks,
            exact=effort.exact if finished is not None else 0,
            highs=version() if finished is not None else 0,
        ),
        seed=seed,
    )


def _all_at_their_best(pricing: Pricing, worth: float) -> bool:
    """Say whether every bid that can be placed at all is placed as well as it can be.

    So it is in thin markets: then all capacity is free of charge, and nothing is left to search.
    """
    nothing = np.zeros_like(pricing.prices.mean)
    return pricing.bound(nothing) <= worth * (1 + 2e-9) + 2.0


class Climb:
    """Local search from one clearing, in chunks of `CHUNK_MOVES` moves.

    Large rounds are searched in halves, in two threads.

    In small rounds, where it would soon stand still, it now and then goes on from a worse clearing
    near by, and comes back when that leads nowhere. In larger ones moves may lose a little, less
    and less.
    """

    def __init__(
        self, layout: Layout, state: State, paid: Floats, wants: Wants, seed: int, worth: float
    ) -> None:
        self.layout, self.state, self.paid, self.wants = layout, state, paid, wants
        self.bench = bench_for(layout, seed)
        self.desk = desk_for(layout, wants.short)
        self.worth = worth
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
        moves = self.chunks * CHUNK_MOVES / len(self.layout.row)
        return HEAT * self.mean / (1.0 + moves / HEAT_HALF) if moves >= COLD else 0.0

    def _keep(self) -> None:
        """Remember the clearing, if it is the best so far."""
        if self.gained > self.high:
            self.high = self.gained
            for name, column in self.top._asdict().items():
                column[...] = getattr(self.state, name)

    def _search(self, moves: int, loss: float, heat: float) -> float:
        return search(
            self.layout, self.state, self.paid, self.bench, self.desk, self.wants.least,
            moves, loss, heat,
        )  # fmt: skip

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
    for bid in np.flatnonzero(state.start >= 0):
        slot = int(state.start[bid])
        pieces = range(int(layout.piece_at[bid]), int(layout.piece_at[bid] + state.parts[bid]))
        placed[bid] = Placed(
            slot=slot,
            end=int(layout.ends[layout.row[bid], slot]),
            starts=max(int(problem.earliest[bid]), int(problem.grid[slot])),
            pieces=tuple(
                Piece(
                    pool=int(layout.pool[state.entry[piece]]),
                    gpus=int(state.gpus[piece]),
                    mask=int(state.mask[piece]),
                )
                for piece in pieces
            ),
        )
    return tuple(placed)
