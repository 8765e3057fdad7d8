"""Clear a round: greedy by price, prices from the dual, greedy by those prices, local search.

Each stage keeps the best clearing so far; how far the later ones go is `Effort`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from marketplace.domain.optimum.layout import Layout, lay_out
from marketplace.domain.optimum.placing import bench_for, place_all
from marketplace.domain.optimum.problem import Floats, Ints, Problem
from marketplace.domain.optimum.solution import Effort, Piece, Placed, Solution, welfare_of
from marketplace.domain.optimum.state import State, begin


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
    """
    layout = lay_out(problem)
    state = begin(problem, layout)
    paid = np.zeros((problem.pools, problem.slots + 1))
    place_all(layout, state, paid, bench_for(layout), by_price(layout), 0.0)
    prices = np.zeros((problem.pools, problem.slots), np.int64)
    placed = read(problem, layout, state)
    return Solution(
        placed=placed,
        welfare_nanos=welfare_of(problem, placed),
        bound_nanos=_ceiling(layout, prices),
        prices=prices,
        done=Effort(dual=0, search=0),
        seed=seed,
    )


def _ceiling(layout: Layout, prices: Ints) -> int:
    best = np.zeros(len(layout.row))
    for bid, held in enumerate(layout.listed):
        floors = layout.floor[layout.list_at[held] : layout.list_at[held + 1]]
        if len(floors) and layout.first[bid] <= layout.last[bid]:
            best[bid] = max(0.0, layout.worth[bid] - floors.min())
    return int(float((best * layout.gpus * layout.hours).sum()) * (1 + 1e-9)) + 1


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


__all__ = ["Floats", "by_price", "read", "solve"]
