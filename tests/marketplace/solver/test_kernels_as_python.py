"""Random small rounds come to the same grants, prices and bound compiled and as Python.

There are gangs, bids for one host, cards divided by MIG, quotas of every kind and GPUs that are
cleaned after each lease. Half of the rounds take the moves of large ones, some of them in halves.
How a whole engine decides both ways: `engine/test_kernels_as_python`.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from random import Random

import numpy as np
import pytest

from marketplace.domain.solver import Effort, Problem, lns_choice, solve, threads
from tests.marketplace.solver.markets import HOUR, small_round, without_quotas
from tests.marketplace.solver.telling import told
from tests.marketplace.support.kernels_as_python import kernels_as_python

stages = import_module("marketplace.domain.solver.solve")  # not the function of that name
PARTS, ROUNDS = 4, 225
BIDS, HOSTS, SLOTS = 12, 3, 5
EFFORT = Effort(dual=2, search=1, opened=1)
MOVES = 6
"""Of a chunk of search: each takes Python a thousand times as long."""


def round_of(seed: int, *, quotas: bool) -> Problem:
    """Return a round in which some bids want GPUs that are cleaned after them."""
    chance = Random(seed)
    picky, parts = (seed % 3 == 0, seed % 3 == 1) if quotas else (False, False)
    problem = small_round(BIDS, seed, hosts=HOSTS, slots=SLOTS, picky=picky, parts=parts)
    gaps = [chance.choice((0, 0, HOUR // 4)) for _ in range(problem.bids)]
    problem = replace(problem, gap=np.array(gaps, np.int64))
    return problem if quotas else without_quotas(problem)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_round_comes_to_the_same(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "CHUNK_MOVES", MOVES)
    monkeypatch.setattr(stages, "LEAP_MOVES", MOVES)
    if part % 2:  # as if it were large
        monkeypatch.setattr(lns_choice, "SMALL_MAX", 1)
        monkeypatch.setattr(stages, "SMALL_MAX", 1)
    if part == 3:
        monkeypatch.setattr(threads, "BIDS_MIN", 2)
    problems = [
        (round_of(seed, quotas=part < 2), seed)
        for seed in range(part * ROUNDS, (part + 1) * ROUNDS)
    ]
    compiled = [told(solve(problem, effort=EFFORT, seed=seed)) for problem, seed in problems]

    with kernels_as_python():
        plain = [told(solve(problem, effort=EFFORT, seed=seed)) for problem, seed in problems]

    assert compiled == plain
    assert len({grants for grants, *_ in plain}) > ROUNDS / 2
