"""A large round finds its first prices in a smaller one, in which like pools are one."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from marketplace.domain.solver import (
    ONE_HOST,
    ONE_POOL,
    Ask,
    Effort,
    Entry,
    Pool,
    Problem,
    Quota,
    pose,
    solve,
)
from marketplace.domain.solver.arrays import Layout, lay_out
from marketplace.domain.solver.coarse import merged, spread_out
from tests.benchmarks.families import TIGHT, draw
from tests.marketplace.solver.markets import CENT, HOUR, small_round
from tests.marketplace.solver.telling import told

BIDS, HOSTS, SLOTS = 300, 24, 12


def crowded(seed: int, *, quotas: Sequence[Quota] = ()) -> Problem:
    """Return a round of two models, in which more is asked for than there is."""
    chance = Random(seed)
    floors = [chance.randint(20, 40) * CENT for _ in range(HOSTS)]
    entries = [
        tuple(Entry(host, floors[host]) for host in range(HOSTS) if host % 2 == model or both)
        for model, both in ((0, False), (1, False), (0, True))
    ]
    asks = [
        Ask(
            gpus=chance.choice([1, 1, 2, 4]),
            duration=(length := chance.randint(1, 4) * HOUR),
            earliest=0,
            deadline=length + chance.randint(1, 4) * HOUR,
            limit=chance.randint(30, 90) * CENT,
            entries=chance.choice(entries),
            spread=chance.choice([ONE_POOL, ONE_HOST]),
            groups=tuple(range(len(quotas))),
        )
        for _ in range(BIDS)
    ]
    pools = [Pool(host, (4,) * SLOTS) for host in range(HOSTS)]
    return pose([slot * HOUR for slot in range(SLOTS + 1)], pools, asks, list(quotas))


def kinds(layout: Layout) -> list[object]:
    """Return what kernels are compiled for: type, dimensions and order of every array."""
    return [
        (name, each.dtype, each.ndim, each.flags.c_contiguous) if isinstance(each, np.ndarray)
        else (name, type(each))
        for name, each in layout._asdict().items()
    ]  # fmt: skip


@pytest.mark.parametrize("governed", [False, True])
def test_no_kernel_is_compiled_anew_for_the_smaller_round(governed: bool) -> None:
    counted = tuple(host % 2 for host in range(HOSTS))
    quota = Quota(concurrent=(20,) * SLOTS, counted=counted)
    problem = crowded(3, quotas=[quota] if governed else [])
    layout = lay_out(problem)
    found = merged(problem)
    assert found is not None
    small, merged_in = found

    assert small.pools < problem.pools
    assert kinds(lay_out(small, layout)) == kinds(layout)
    assert spread_out(problem, small, merged_in, np.ones((small.pools, small.slots))).shape == (
        problem.pools, problem.slots,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_first_prices_prove_more_in_as_many_steps(seed: int) -> None:
    problem = crowded(seed)

    cold = solve(problem, effort=Effort(dual=2, search=0), seed=5)
    warm = solve(problem, effort=Effort(dual=2, search=0, opened=16), seed=5)

    assert warm.bound_nanos < cold.bound_nanos


def test_a_round_says_how_many_steps_its_first_prices_took_and_is_made_again_by_them() -> None:
    problem = crowded(3)

    solution = solve(problem, effort=Effort(dual=3, search=2, opened=5), seed=5)

    assert dict(solution.iterations)["opened"] == 5
    assert told(solve(problem, effort=solution.done, seed=5)) == told(solution)


@pytest.mark.parametrize("problem", [small_round(40, 3), draw(TIGHT, 40, 3)])
def test_where_cards_are_divided_or_no_pools_alike_prices_start_at_zero(problem: Problem) -> None:
    solution = solve(problem, effort=Effort(dual=3, search=0, opened=5), seed=5)

    assert solution.done.dual == 3
    assert solution.done.opened == 0
