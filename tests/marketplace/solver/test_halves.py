"""Large rounds are searched in two threads: as correct, and the same as one after the other."""

from __future__ import annotations

import pytest

from marketplace.domain.solver import Effort, Problem, Solution, solve, threads
from tests.benchmarks.families import TIGHT, draw
from tests.marketplace.solver.checking import audit

EFFORT = Effort(dual=3, search=70)


@pytest.fixture(scope="module")
def problem() -> Problem:
    """Return a round that is large enough."""
    return draw(TIGHT, threads.BIDS_MIN, 11)


@pytest.fixture(scope="module")
def searched(problem: Problem) -> Solution:
    """Return the round, cleared in two threads."""
    return solve(problem, effort=EFFORT, seed=5)


def test_halves_joined_break_no_rule(problem: Problem, searched: Solution) -> None:
    audit(problem, searched)
    assert searched.done == EFFORT


def test_halves_searched_one_after_the_other_give_the_same(
    problem: Problem, searched: Solution, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "compiles", lambda: False)

    again = solve(problem, effort=EFFORT, seed=5)

    assert repr(again.placed) == repr(searched.placed)
    assert again.welfare_nanos == searched.welfare_nanos


def test_what_a_guard_cut_short_can_be_done_again(problem: Problem) -> None:
    searches = iter([False])

    class Guard:
        def __call__(self) -> bool:
            return next(searches, True)

        def soon(self) -> bool:
            return False

    short = solve(problem, effort=EFFORT, seed=5, enough=Guard())
    again = solve(problem, effort=short.done, seed=5)

    assert 0 < short.done.search < EFFORT.search
    assert repr(again.placed) == repr(short.placed)


def test_more_search_clears_more(problem: Problem, searched: Solution) -> None:
    less = solve(problem, effort=Effort(dual=3, search=1), seed=5)

    assert less.welfare_nanos < searched.welfare_nanos
