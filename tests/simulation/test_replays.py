"""The replay itself: a synthetic week from a seed, so that the page rests on a sound model."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from tests.simulation import static
from tests.simulation.fleet import Tally
from tests.simulation.market import Market
from tests.simulation.measures import Figures, of_baseline, of_market, of_owners
from tests.simulation.philly import share_out
from tests.simulation.rules import Outcome, Rules
from tests.simulation.traces import (
    DAY,
    FILLER,
    GPUS_PER_NODE,
    Floats,
    Jobs,
    Trace,
    filler,
    synthetic_week,
)

SEED = 7
HALF = 0.65
"""The fleet of the market, of the right-sized baseline: small fleets share less well."""

NOTICE_MINUTES = Rules().notice / 60


class Week:
    """A week, the right-sized baseline of it, and its service."""

    def __init__(self) -> None:
        self.trace: Trace = synthetic_week(SEED)
        self.sized = static.right_sized(self.trace)
        self.started: Floats = static.every_owner_alone(self.trace, self.sized)
        self.baseline: Figures = of_baseline(
            self.trace.jobs, self.started, sum(self.sized), self.trace.horizon
        )
        self.nodes = share_out(round(sum(self.sized) * HALF), self.sized)

    def market(self, rules: Rules | None = None, more: Jobs | None = None) -> Market:
        """Return a market on fewer nodes, that keeps the history of every node."""
        jobs = self.trace.jobs if more is None else self.trace.jobs.with_more(more)
        market = Market(jobs, self.nodes, self.trace.horizon, rules)
        market.fleet.history = []
        return market


@pytest.fixture(scope="module")
def week() -> Week:
    return Week()


def waiting(week: Week) -> Jobs:
    """Return filler for a week: its own small jobs, moved by days."""
    return filler(week.trace, (2.0, 3.5, 5.0))


VARIANTS = {
    "plain": Rules(),
    "no pausing": Rules(firm_for=None),
    "burst": Rules(burst_wait=900.0),
    "nodes leave": Rules(departures_per_node_day=0.2),
    "nodes leave, burst": Rules(departures_per_node_day=0.2, burst_wait=900.0),
}


@pytest.mark.parametrize("rules", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("filled", [False, True], ids=["owners only", "with filler"])
def test_no_node_holds_more_than_it_has_and_every_job_ends(
    week: Week, rules: Rules, filled: bool
) -> None:
    market = week.market(rules, waiting(week) if filled else None)

    outcome = market.run()

    assert np.isfinite(outcome.ended).all()
    assert (outcome.started >= outcome.jobs.arrival).all()
    assert (outcome.ended - outcome.jobs.arrival >= outcome.jobs.duration - 1e-6).all()
    assert (outcome.stood >= outcome.started - outcome.jobs.arrival - 1e-6).all()
    changes: dict[int, list[tuple[float, int]]] = defaultdict(list)
    assert market.fleet.history
    for node, _, gpus, since, until in market.fleet.history:
        if since < until:
            changes[node] += [(since, gpus), (until, -gpus)]
    for node, steps in changes.items():
        held = 0
        for _, change in sorted(steps):
            held += change
            assert 0 <= held <= GPUS_PER_NODE, node


def test_a_job_holds_its_gpus_for_its_length_and_no_less(week: Week) -> None:
    market = week.market()

    outcome = market.run()

    held: dict[int, float] = defaultdict(float)
    assert market.fleet.history is not None
    for _, job, gpus, since, until in market.fleet.history:
        held[job] += gpus * (until - since)
    jobs = outcome.jobs
    for job in range(len(jobs)):
        assert held[job] >= jobs.gpus[job] * jobs.duration[job] - 1e-3


def test_the_same_seed_gives_the_same_figures() -> None:
    trace = synthetic_week(3, owners=3)
    rules = Rules(departures_per_node_day=0.3, seed=5)

    first, second = (Market(trace.jobs, (2, 2, 2), trace.horizon, rules).run() for _ in range(2))

    assert (first.ended == second.ended).all()


def test_owners_alone_start_in_order_where_nothing_can_be_filled_in() -> None:
    jobs = Jobs(
        np.array([0.0, 1.0, 2.0, 3.0]),
        np.array([100.0, 10.0, 10.0, 10.0]),
        np.array([8, 8, 8, 8]),
        np.zeros(4, dtype=np.int64),
    )

    assert static.first_come(jobs, 1).tolist() == [0.0, 100.0, 110.0, 120.0]


def test_the_market_gives_equal_service_on_two_thirds_of_the_nodes(week: Week) -> None:
    """Twenty-three nodes are few; the page has the figures of a real cluster."""
    outcome = week.market().run()

    market = of_market(outcome, week.trace.horizon, baseline=week.started)

    assert market.nodes <= 0.66 * week.baseline.nodes
    assert market.u_alloc >= 1.45 * week.baseline.u_alloc
    assert market.cost <= 0.66 * week.baseline.cost
    assert market.wait_p95 <= NOTICE_MINUTES
    assert market.stood_p95 <= NOTICE_MINUTES
    assert market.late <= week.baseline.late
    assert market.stood_late <= week.baseline.stood_late
    assert market.harm == 0


def test_filler_fills_the_fleet_and_owners_wait_no_longer_than_a_notice_for_it(week: Week) -> None:
    outcome = week.market(more=waiting(week)).run()

    market = of_market(outcome, week.trace.horizon)

    assert market.u_alloc >= 0.85
    assert market.useful >= 0.85
    assert market.wait_p95 <= NOTICE_MINUTES
    assert market.late <= week.baseline.late
    assert market.gang_max <= week.baseline.gang_max


def test_an_owner_below_its_quota_does_not_wait_for_those_who_borrow() -> None:
    """One owner fills both nodes; the other comes later and has its own back after the notice."""
    rules = Rules(headroom_share=0.0, firm_for=None)
    jobs = Jobs(
        np.concatenate([np.zeros(16), [5_000.0]]),
        np.full(17, 50_000.0),
        np.ones(17, dtype=np.int64),
        np.array([0] * 16 + [1]),
    )

    outcome = Market(jobs, (1, 1), 10 * DAY, rules).run()

    assert outcome.started[16] == 5_000 + rules.notice
    assert (outcome.started[:16] == 0).all()
    assert [len(after) for after in outcome.tally.resumed_after.values()] == [1]


def test_a_gang_does_not_starve_behind_small_work() -> None:
    """Small jobs that never cease would keep two nodes from ever being free together."""
    rng = np.random.default_rng(2)
    small = 3_000
    jobs = Jobs(
        np.concatenate([np.sort(rng.uniform(0, 5 * DAY, small)), [DAY]]),
        np.concatenate([np.full(small, 2_300.0), [3_600.0]]),
        np.concatenate([np.ones(small, dtype=np.int64), [16]]),
        np.zeros(small + 1, dtype=np.int64),
    )
    order = np.argsort(jobs.arrival, kind="stable")
    jobs = Jobs(jobs.arrival[order], jobs.duration[order], jobs.gpus[order], jobs.owner[order])
    gang = int(np.flatnonzero(jobs.gpus == 16)[0])
    rules = Rules(headroom_share=0.0, firm_for=None, moving=False)

    kept = Market(jobs, (2,), 6 * DAY, rules).run()
    without = Market(jobs, (2,), 6 * DAY, replace(rules, gang_patience=1e8)).run()

    assert kept.started[gang] - DAY < 3 * 3600
    assert without.started[gang] - DAY > 6 * 3600


def test_filler_gives_way_to_any_owner_after_the_notice() -> None:
    rules = Rules(headroom_share=0.0)
    jobs = Jobs(
        np.array([0.0, 900.0]),
        np.array([90_000.0, 600.0]),
        np.array([8, 8]),
        np.array([FILLER, 0]),
    )

    outcome = Market(jobs, (1,), 5 * DAY, rules).run()

    assert outcome.started.tolist() == [0.0, 900 + rules.notice]
    works_again = 900 + rules.notice + 600 + rules.resume
    assert outcome.ended[0] == works_again + 90_000 - 900


def test_work_that_bursts_comes_home_when_there_is_room() -> None:
    rules = Rules(burst_wait=900.0, firm_for=None, headroom_share=0.0)
    jobs = Jobs(
        np.array([0.0, 0.0]),
        np.array([2 * 3600.0, 10 * 3600.0]),
        np.array([8, 8]),
        np.array([0, 0]),
    )

    outcome = Market(jobs, (1,), 5 * DAY, rules).run()

    assert outcome.started[1] == 900
    [home] = outcome.tally.resumed_after["repatriated"]
    assert home == 0
    assert outcome.ended[1] == 900 + 10 * 3600 + rules.resume


def test_work_on_a_node_that_leaves_without_a_word_loses_what_it_did_since_its_checkpoint() -> None:
    trace = synthetic_week(4, owners=2, nodes=4)
    rules = Rules(departures_per_node_day=2.0, announced_share=0.0)

    sudden = Market(trace.jobs, (4, 4), trace.horizon, rules).run()
    announced = Market(trace.jobs, (4, 4), trace.horizon, replace(rules, announced_share=1.0)).run()

    assert {"left, sudden", "left, temporary"} <= set(sudden.tally.resumed_after)
    assert set(announced.tally.resumed_after) & {"left, announced"}
    assert sudden.tally.lost > announced.tally.lost


def test_work_that_is_told_to_go_is_saved_before_it_goes_on_anywhere() -> None:
    """The borrower finds room elsewhere at once, and still stands for the notice."""
    rules = Rules(headroom_share=0.0, firm_for=None, moving=False)
    jobs = Jobs(
        np.array([0.0, 10.0, 2_000.0, 3_000.0]),
        np.array([1_000.0, 9_000.0, 9_000.0, 9_000.0]),
        np.array([7, 2, 6, 8]),
        np.array([1, 1, 1, 0]),
    )

    outcome = Market(jobs, (1, 1), 10 * DAY, rules).run()

    assert outcome.started.tolist() == [0.0, 10.0, 2_000.0, 3_000 + rules.notice]
    assert outcome.tally.resumed_after["reclaimed"] == [rules.notice]
    assert outcome.ended[1] == 9_010 + rules.notice + rules.resume


def test_an_owner_whose_work_stands_longer_than_alone_is_counted_though_its_jobs_are_few() -> None:
    arrival = np.sort(np.concatenate([np.linspace(DAY, 2 * DAY, 1_000), np.full(10, 1.5 * DAY)]))
    owner = np.zeros(1_010, dtype=np.int64)
    few = np.flatnonzero(arrival == 1.5 * DAY)[-10:]
    owner[few] = 1
    jobs = Jobs(arrival, np.full(1_010, 60.0), np.ones(1_010, dtype=np.int64), owner)
    stood = np.zeros(1_010)
    stood[few] = 7_200.0
    tally = Tally(DAY, 9 * DAY)
    within = np.zeros(1_010, dtype=np.bool_)
    outcome = Outcome(jobs, 2, arrival, arrival + 60, stood, within, tally)

    first, second = of_owners(outcome, arrival, 10 * DAY)

    assert np.percentile(stood, 95) == 0
    assert not first.stands_longer
    assert second.stands_longer and not second.waits_longer
    assert second.stood_part_p95 == 120
