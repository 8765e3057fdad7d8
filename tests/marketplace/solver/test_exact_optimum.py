"""Small rounds with gangs, MIG and quotas against what CP-SAT proves to be the best.

Two hundred rounds of up to a hundred bids are in the soak; a part of them, and of the search
alone, runs each time.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from marketplace.domain.solver import Effort, solve
from tests.marketplace.solver.checking import audit
from tests.marketplace.solver.exact import Exact
from tests.marketplace.solver.markets import small_round

FINISHED = Effort(dual=30, search=25, exact=200)
SEARCHED = Effort(dual=30, search=60)
SECONDS_MAX = 20.0
EQUAL_MIN = 0.95
SHARE_MIN = 0.98


def shares_of_the_optimum(
    sizes: Mapping[int, range], effort: Effort, *, parts: bool = False
) -> list[float]:
    """Return what part of the optimum each round reached; of its bound where none is proven.

    Every second round has quotas of a class of GPUs, of memory, of money and of a time.
    parts: all have quotas that count parts of cards.
    """
    shares = []
    for bids, seeds in sizes.items():
        for seed in seeds:
            problem = small_round(
                bids,
                1000 * bids + seed,
                hosts=max(3, bids // 8),
                picky=seed % 2 == 1,
                parts=parts,
            )
            best, proven = Exact(problem).solve(SECONDS_MAX)
            solution = solve(problem, effort=effort, seed=seed)
            audit(problem, solution)
            assert solution.bound_nanos >= best
            assert not proven or solution.welfare_nanos <= best + 1
            shares.append(
                (solution.welfare_nanos + 1) / ((best if proven else solution.bound_nanos) + 1)
            )
    return shares


def test_small_rounds_are_finished_at_the_optimum() -> None:
    pytest.importorskip("highspy")
    sizes = {8: range(10), 20: range(12), 40: range(10), 60: range(4), 80: range(2), 100: range(1)}

    shares = shares_of_the_optimum(sizes, FINISHED)

    assert sum(share >= 1 - 1e-9 for share in shares) >= EQUAL_MIN * len(shares)
    assert min(shares) >= SHARE_MIN


def test_rounds_whose_quotas_count_parts_of_cards_are_finished_at_the_optimum() -> None:
    pytest.importorskip("highspy")

    shares = shares_of_the_optimum(
        {8: range(8), 20: range(8), 40: range(6), 60: range(4)}, FINISHED, parts=True
    )

    assert sum(share >= 1 - 1e-9 for share in shares) >= EQUAL_MIN * len(shares)
    assert min(shares) >= SHARE_MIN


def test_the_search_alone_comes_near_the_optimum() -> None:
    sizes = {5: range(12), 10: range(12), 20: range(12), 30: range(10), 40: range(8)}

    shares = shares_of_the_optimum(sizes, SEARCHED)

    assert sum(share >= 1 - 1e-9 for share in shares) >= EQUAL_MIN * len(shares)
    assert min(shares) >= SHARE_MIN


@pytest.mark.soak
def test_two_hundred_rounds_of_up_to_a_hundred_bids_are_finished_at_the_optimum() -> None:
    pytest.importorskip("highspy")
    sizes = {bids: range(100, 110) for bids in range(5, 105, 5)}

    shares = shares_of_the_optimum(sizes, FINISHED)

    assert len(shares) == 200
    assert sum(share >= 1 - 1e-9 for share in shares) >= EQUAL_MIN * len(shares)
    assert min(shares) >= SHARE_MIN
