"""Until kernels are compiled, no stage of a round outlasts its time, and it can be made again."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import pytest

from marketplace.domain.solver import Effort, Problem, pricing, solve, threads
from tests.benchmarks.families import TIGHT, draw
from tests.marketplace.solver.telling import told

stages = import_module("marketplace.domain.solver.solve")  # not the function of that name
BIDS = 40
EFFORT = Effort(dual=2, search=2)
STAGES = 8
"""Loops of a round that ask: each may do so once after time is up."""


@dataclass
class Asked:
    """A guard whose time is up once it was asked so often; `soon`, after half of that."""

    most: int
    asked: int = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.asked > self.most

    def soon(self) -> bool:
        self.asked += 1
        return self.asked > self.most // 2


@pytest.fixture(scope="module")
def problem() -> Problem:
    return draw(TIGHT, BIDS, 3)


@pytest.mark.parametrize("halved", [False, True])
@pytest.mark.parametrize("most", [0, 7, 60, 100, 150, 200, 230, 260, 290, 320])
def test_wherever_time_is_up_the_round_ends_and_can_be_made_again_compiled(
    monkeypatch: pytest.MonkeyPatch, problem: Problem, most: int, halved: bool
) -> None:
    if halved:
        monkeypatch.setattr(threads, "BIDS_MIN", BIDS)
    guard, whole = Asked(most), solve(problem, effort=EFFORT, seed=5)
    with monkeypatch.context() as as_python:
        as_python.setattr(stages, "compiles", lambda: False)
        as_python.setattr(pricing, "compiles", lambda: False)
        as_python.setattr(pricing, "LOOK_WORK_PLAIN", 1)  # so that each bid asks
        cut = solve(problem, effort=EFFORT, seed=5, enough=guard)

    again = solve(problem, effort=cut.done, seed=5)

    assert guard.asked <= most + STAGES
    assert told(again) == told(cut)
    assert whole.welfare_nanos <= cut.bound_nanos


def test_each_bid_that_is_placed_asks_if_there_is_time(
    monkeypatch: pytest.MonkeyPatch, problem: Problem
) -> None:
    monkeypatch.setattr(stages, "compiles", lambda: False)
    monkeypatch.setattr(pricing, "compiles", lambda: False)
    monkeypatch.setattr(pricing, "LOOK_WORK_PLAIN", 1)

    done = solve(problem, effort=EFFORT, seed=5, enough=Asked(20)).done

    assert done == Effort(dual=0, search=0, limits=11, bounded=9)


def test_compiled_what_runs_once_is_not_cut(problem: Problem) -> None:
    done = solve(problem, effort=EFFORT, seed=5, enough=Asked(0)).done

    assert done == Effort(dual=0, search=0)
