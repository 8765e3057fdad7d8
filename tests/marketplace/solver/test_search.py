"""What holds of every clearing: no rule broken, never above its bound, the same again."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marketplace.domain.solver import (
    Ask,
    Effort,
    Entry,
    Pool,
    Problem,
    Quota,
    pose,
    solve,
)
from marketplace.domain.solver.builder import WrongAsk
from marketplace.domain.solver.lns import SMALL_MAX
from marketplace.domain.solver.threads import BIDS_MIN
from marketplace.domain.solver.warm_up import crowded, scarce, warm
from tests.benchmarks.families import TIGHT, draw
from tests.marketplace.solver.checking import audit
from tests.marketplace.solver.markets import CENT, HOUR, small_round
from tests.marketplace.solver.telling import told
from tests.marketplace.support.kernels_as_python import kernels_as_python

SEEDS = st.integers(0, 2**32)
EFFORT = Effort(dual=10, search=2)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, bids=st.integers(0, 40), picky=st.booleans())
def test_a_clearing_breaks_no_rule_and_stays_below_its_bound(
    seed: int, bids: int, picky: bool
) -> None:
    problem = small_round(bids, seed, picky=picky)

    solution = solve(problem, effort=EFFORT, seed=seed)

    audit(problem, solution)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_more_effort_never_clears_less(seed: int) -> None:
    problem = small_round(30, seed)

    worths = [
        solve(problem, effort=Effort(dual=10, search=chunks), seed=seed).welfare_nanos
        for chunks in (0, 1, 3)
    ]
    greedy = solve(problem, effort=Effort(dual=0, search=0), seed=seed).welfare_nanos

    assert greedy <= worths[0] + 1
    assert worths[0] <= worths[1] + 1
    assert worths[1] <= worths[2] + 1


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_the_same_problem_effort_and_seed_give_the_same_clearing(seed: int) -> None:
    first = solve(small_round(30, seed), effort=EFFORT, seed=seed)
    second = solve(small_round(30, seed), effort=EFFORT, seed=seed)

    assert told(first) == told(second)


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, looks=st.integers(0, 14))
def test_what_a_guard_cut_short_can_be_done_again_without_it(seed: int, looks: int) -> None:
    problem = small_round(25, seed)
    left = iter([False] * looks)

    short = solve(problem, effort=EFFORT, seed=seed, enough=lambda: next(left, True))
    again = solve(problem, effort=short.done, seed=seed)

    assert short.done.dual + short.done.search <= looks
    assert told(short) == told(again)


@pytest.mark.parametrize("seed", range(4))
def test_as_python_the_clearing_is_the_same(seed: int) -> None:
    problem = small_round(14, seed)
    compiled = solve(problem, effort=Effort(dual=4, search=1), seed=seed)

    with kernels_as_python():
        interpreted = solve(problem, effort=Effort(dual=4, search=1), seed=seed)

    assert told(compiled) == told(interpreted)


def test_nobody_gets_anything_of_a_quota_of_zero_and_unset_is_no_limit() -> None:
    problem = small_round(30, 5)
    none = dataclasses.replace(problem, gpu_ms=np.zeros(problem.groups, np.int64))

    solution = solve(none, effort=EFFORT, seed=1)

    members = np.flatnonzero(np.diff(problem.group_at))
    assert all(solution.placed[bid] is None for bid in members)
    assert Quota() == Quota(concurrent=None, gpu_ms=None)


@pytest.mark.parametrize(
    "quota",
    [Quota(concurrent=(2,) * 4), Quota(gpu_ms=8 * HOUR), Quota(gpu_ms=4 * HOUR, until=2 * HOUR)],
)
def test_the_bound_counts_what_quotas_keep_back(quota: Quota) -> None:
    hours = [at * HOUR for at in range(5)]
    asks = [
        Ask(1, HOUR, at, at + HOUR, (100 + bid) * CENT, (Entry(0, 0),), groups=(0,))
        for bid in range(10)
        for at in hours[:4]
    ]
    problem = pose(hours, [Pool(0, (10,) * 4)], asks, [quota])

    solution = solve(problem, effort=Effort(dual=60, search=10), seed=1)

    audit(problem, solution)
    assert solution.bound_nanos <= 1.03 * solution.welfare_nanos


def test_where_all_get_their_best_nothing_is_searched_and_capacity_costs_nothing() -> None:
    ask = Ask(2, HOUR, 0, 2 * HOUR, 100 * CENT, (Entry(0, 10 * CENT),))
    impossible = Ask(9, HOUR, 0, 2 * HOUR, 500 * CENT, (Entry(0, 10 * CENT),))
    roomy = pose([0, HOUR, 2 * HOUR], [Pool(0, (4, 4))], [ask, ask, impossible])
    scarce = pose([0, HOUR, 2 * HOUR], [Pool(0, (4, 4))], [ask] * 5)

    solution = solve(roomy, effort=EFFORT, seed=0)

    assert solution.done == Effort(dual=0, search=0)
    assert solution.welfare_nanos == 2 * 2 * 90 * CENT
    assert solution.bound_nanos - solution.welfare_nanos <= 1_000
    assert not solution.prices.any()
    assert solve(scarce, effort=EFFORT, seed=0).done == EFFORT


def test_a_bid_starts_at_its_own_moment_within_a_slot() -> None:
    ask = Ask(1, HOUR, HOUR // 4, HOUR // 4 + HOUR, 100 * CENT, (Entry(0, 10 * CENT),))
    problem = pose([0, HOUR, 2 * HOUR], [Pool(0, (1, 1))], [ask])

    grant = solve(problem, effort=Effort(0, 0), seed=0).placed[0]

    assert grant is not None
    assert (grant.slot, grant.end, grant.starts) == (0, 2, HOUR // 4)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("grid", np.array([0, 5, 5, 9, 10, 11, 12, 13, 14]), "grid rises"),
        ("weight", np.full(3, -1), "weight"),
        ("gpus", np.zeros(3, np.int64), "gpus, duration"),
        ("kind", np.full(3, 99), "kind"),
        ("limit", np.zeros(2, np.int64), "arrays of bids"),
        ("share", np.ones(1000, np.int64), "share"),
        ("counted", np.full((3, 99), 1), "counted"),
        ("since", np.zeros(1, np.int64), "since"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(field: str, value: Any, said: str) -> None:
    problem = small_round(3, 1)

    with pytest.raises(ValueError, match=said):
        dataclasses.replace(problem, **{field: value})


@pytest.mark.parametrize(("quarters", "fits"), [(3, True), (5, False)])
def test_each_quota_alone_must_fit_64_bits(quarters: int, fits: bool) -> None:
    coarse = quarters * 2**60 // HOUR
    entries = (Entry(0, 10 * CENT),)
    ask = Ask(1, HOUR, 0, HOUR, 100 * CENT, entries, groups=(0, 1), shares=(coarse, coarse))
    quotas = [Quota(gpu_ms=2**61), Quota(gpu_ms=2**61)]

    if fits:
        problem = pose([0, HOUR], [Pool(0, (1,))], [ask], quotas)
        audit(problem, solve(problem, effort=EFFORT, seed=0))
    else:
        with pytest.raises(WrongAsk):
            pose([0, HOUR], [Pool(0, (1,))], [ask], quotas)


@pytest.mark.parametrize(("problem", "search"), [(scarce(), 1), (crowded(), 2)])
def test_a_round_that_warms_the_kernels_passes_over_no_stage(problem: Problem, search: int) -> None:
    effort = Effort(dual=1, search=search)

    solution = solve(problem, effort=effort, seed=0)

    assert solution.done == effort
    assert 0 < sum(grant is not None for grant in solution.placed) < len(solution.placed)
    warm()


@pytest.mark.parametrize("bids", [12, SMALL_MAX + 44, BIDS_MIN])
def test_after_warming_a_round_of_any_size_compiles_nothing(bids: int) -> None:
    kernels: list[Any] = [
        kernel
        for name, module in sys.modules.items()
        if name.startswith("marketplace.domain.solver.")
        for kernel in vars(module).values()
        if hasattr(kernel, "signatures")
    ]
    warm()
    known = [list(kernel.signatures) for kernel in kernels]

    solve(draw(TIGHT, bids, 11), effort=Effort(dual=2, search=40), seed=5)

    assert any(known)
    assert known == [list(kernel.signatures) for kernel in kernels]
