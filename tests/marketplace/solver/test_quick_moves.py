"""Moves of larger rounds without quotas: they break no rule, and say truly what they change."""

from __future__ import annotations

import numpy as np
import pytest

from marketplace.domain.solver import Effort, solve, threads
from marketplace.domain.solver.arrays import lay_out
from marketplace.domain.solver.dual_prices import add_up
from marketplace.domain.solver.greedy import place_all
from marketplace.domain.solver.lns import SMALL_MAX
from marketplace.domain.solver.lns_choice import Mover
from marketplace.domain.solver.lns_scratch import assess
from marketplace.domain.solver.pricing import Pricing
from marketplace.domain.solver.problem import ONE_POOL
from marketplace.domain.solver.solve import by_price
from marketplace.domain.solver.state import begin, value
from tests.benchmarks.families import TIGHT, draw
from tests.marketplace.solver.checking import audit
from tests.marketplace.solver.markets import small_round, without_quotas
from tests.marketplace.solver.telling import told
from tests.marketplace.support.kernels_as_python import kernels_as_python

BIDS = SMALL_MAX + 44


@pytest.mark.parametrize("seed", range(4))
def test_rounds_with_gangs_and_divided_cards_break_no_rule(seed: int) -> None:
    problem = without_quotas(small_round(BIDS, seed, hosts=30))
    assert problem.divided.any()
    assert (problem.spread != ONE_POOL).any()

    solution = solve(problem, effort=Effort(dual=10, search=12), seed=seed)

    audit(problem, solution)
    greedy = solve(problem, effort=Effort(dual=10, search=0), seed=seed)
    assert greedy.welfare_nanos < solution.welfare_nanos


@pytest.mark.parametrize("heat", [0.0, 1e9])
def test_moves_say_what_they_change(heat: float) -> None:
    problem = draw(TIGHT, BIDS, 3)
    layout, state = lay_out(problem), begin(problem, lay_out(problem))
    pricing = Pricing(problem, layout, 1)
    for _ in range(5):
        pricing.step()
    prices = pricing.prices.mean
    pricing.bound(prices)
    paid = np.zeros((problem.pools, problem.slots + 1))
    add_up(layout, prices, paid)
    mover = Mover(layout, state, pricing.wants.short, 7)
    assert mover.tray is not None
    before = place_all(layout, state, paid, mover.bench, by_price(layout), 0.0, 0.0)

    gained = mover.make(paid, pricing.wants.least, 2_000, 0.0, heat)

    seated = np.flatnonzero(state.start >= 0)
    worth = sum([value(layout, state, int(bid)) for bid in seated])
    assert worth == pytest.approx(before + gained)
    assert gained != 0.0
    idle, regret = mover.tray.idle.copy(), mover.tray.regret.copy()
    assess(layout, state, paid, mover.desk, mover.tray, pricing.wants.least)
    assert idle == pytest.approx(mover.tray.idle, abs=1.0)
    assert regret == pytest.approx(mover.tray.regret, abs=1.0)
    assert mover.tray.regret.min() > -1.0


@pytest.mark.parametrize("halved", [False, True])
def test_as_python_quick_moves_give_the_same(halved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, effort = draw(TIGHT, BIDS, 5), Effort(dual=2, search=2)
    if halved:
        monkeypatch.setattr(threads, "BIDS_MIN", BIDS)
    compiled = solve(problem, effort=effort, seed=5)

    with kernels_as_python():
        interpreted = solve(problem, effort=effort, seed=5)

    assert told(compiled) == told(interpreted)
