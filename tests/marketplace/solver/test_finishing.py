"""What holds of rounds that HiGHS finishes: repeatable, better or equal, and said so."""

from __future__ import annotations

import pytest

from marketplace.domain.solver import Effort, OtherSolver, Solution, branch_and_bound, solve
from marketplace.domain.solver.mip_model import tile
from tests.marketplace.solver.checking import audit
from tests.marketplace.solver.markets import small_round

EFFORT = Effort(dual=10, search=2, exact=50)
SEARCHED = Effort(dual=10, search=2)


@pytest.fixture
def solver() -> None:
    """Leave out the test where HiGHS is not installed."""
    pytest.importorskip("highspy")


@pytest.fixture
def no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let HiGHS not be installed."""
    monkeypatch.setattr(branch_and_bound, "_highspy", lambda: None)


@pytest.mark.usefixtures("solver")
@pytest.mark.parametrize("seed", range(4))
def test_a_finished_round_is_worth_as_much_as_the_search_found_or_more(seed: int) -> None:
    problem = small_round(40, seed, hosts=3, picky=seed % 2 == 1)

    searched = solve(problem, effort=SEARCHED, seed=seed)
    finished = solve(problem, effort=EFFORT, seed=seed)

    audit(problem, finished)
    assert searched.welfare_nanos <= finished.welfare_nanos
    assert finished.bound_nanos <= searched.bound_nanos
    assert finished.done == Effort(dual=10, search=2, exact=50, highs=branch_and_bound.version())


@pytest.mark.usefixtures("solver")
def test_the_steps_of_a_finished_round_give_the_same_round_again() -> None:
    problem = small_round(30, 7)

    first = solve(problem, effort=EFFORT, seed=7)
    again = solve(problem, effort=first.done, seed=7)

    assert told(first) == told(again)
    assert dict(first.iterations)["highs"] == branch_and_bound.version()


@pytest.mark.usefixtures("solver")
def test_a_round_that_another_version_finished_is_not_made_again() -> None:
    done = Effort(dual=10, search=2, exact=50, highs=branch_and_bound.version() + 1)

    with pytest.raises(OtherSolver) as refused:
        solve(small_round(10, 1), effort=done, seed=1)

    assert refused.value.details["here"] == branch_and_bound.named(branch_and_bound.version())


@pytest.mark.usefixtures("no_solver")
def test_a_round_that_was_finished_is_not_made_again_without_a_solver() -> None:
    done = Effort(dual=10, search=2, exact=50, highs=1_016_000)

    with pytest.raises(OtherSolver) as refused:
        solve(small_round(10, 1), effort=done, seed=1)

    assert refused.value.details == {"wanted": "1.16.0", "here": None}


@pytest.mark.usefixtures("no_solver")
def test_without_a_solver_the_round_is_what_the_search_found_and_says_so() -> None:
    problem = small_round(25, 3)

    wished = solve(problem, effort=EFFORT, seed=3)
    searched = solve(problem, effort=SEARCHED, seed=3)

    assert told(wished) == told(searched)
    assert wished.done == SEARCHED
    assert dict(wished.iterations) == {"dual": 10, "search": 2}


@pytest.mark.usefixtures("solver")
def test_a_round_that_had_no_time_to_be_finished_is_what_the_search_found() -> None:
    problem = small_round(25, 3)
    looks = iter([False] * (SEARCHED.dual + SEARCHED.search + 1))

    cut = solve(problem, effort=EFFORT, seed=3, enough=lambda: next(looks, True))

    assert told(cut) == told(solve(problem, effort=SEARCHED, seed=3))


def test_slices_are_told_apart_into_placements() -> None:
    cuts = [(1, 0x0F), (2, 0x03), (3, 0x0C), (4, 0x30)]

    assert tile(0x0F, cuts) == [1]
    assert tile(0x33, cuts) == [2, 4]
    assert tile(0x40, cuts) is None


def told(solution: Solution) -> tuple[object, ...]:
    """Return everything a solution says, as values that compare."""
    return (
        repr(solution.placed),
        solution.welfare_nanos,
        solution.bound_nanos,
        solution.prices.tobytes(),
        solution.iterations,
    )


@pytest.mark.usefixtures("solver")
def test_finishing_a_round_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """HiGHS introduces itself on the terminal of whoever starts it, unless it is told not to."""
    solution = solve(small_round(30, 7), effort=EFFORT, seed=7)

    assert dict(solution.iterations)["highs"]
    assert capfd.readouterr() == ("", "")
