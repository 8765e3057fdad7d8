"""Synthetic days through the product itself, read from its events and its ledger alone."""

from __future__ import annotations

from dataclasses import asdict, replace
from uuid import uuid4

import numpy as np
import pytest

from ledger.eventstore.port import Expect, Meta, NewEvent
from marketplace.domain.facts.events import LeaseActivated, LeaseClosed, LeaseScheduled
from tests.simulation import static
from tests.simulation.fleet import Tally
from tests.simulation.market import Market
from tests.simulation.measures import Figures, of_market
from tests.simulation.philly import share_out
from tests.simulation.product.forgetting import SHORTENED_FROM, ForgettingStore
from tests.simulation.product.founding import moment
from tests.simulation.product.measured import Measured
from tests.simulation.product.replay import ProductReplay
from tests.simulation.product.runs import in_seconds, replayed
from tests.simulation.rules import Outcome
from tests.simulation.traces import DAY, FILLER, HOUR, Jobs, Trace, synthetic_week


class Days:
    """Three days of three owners' jobs on few nodes."""

    def __init__(self) -> None:
        trace = synthetic_week(11, owners=3, days=3)
        self.trace: Trace = replace(trace, jobs=in_seconds(trace.jobs))
        sized = static.right_sized(self.trace)
        self.nodes = share_out(round(0.8 * sum(sized)), sized)
        self.said: list[str] = []
        self.measured, self.recorded = replayed(
            self.trace.jobs, self.nodes, self.trace.horizon, self.said.append
        )
        self.outcome: Outcome = self.measured.outcome()

    def figures(self, outcome: Outcome) -> Figures:
        return of_market(outcome, self.trace.horizon)


@pytest.fixture(scope="module")
def days() -> Days:
    return Days()


def test_every_job_is_done_and_has_all_its_time(days: Days) -> None:
    jobs, outcome = days.trace.jobs, days.outcome

    assert np.isfinite(outcome.ended).all()
    assert (outcome.started >= jobs.arrival).all()
    assert (outcome.ended - outcome.started >= jobs.duration).all()


def test_it_goes_through_bids_leases_meters_and_the_ledger(days: Days) -> None:
    """What `Measured` asserts of them held, or there would be no outcome."""
    assert days.measured.counted["leases"] > len(days.trace.jobs)
    assert 0 < days.measured.counted["own leases"] < days.measured.counted["leases"]
    assert days.measured.charged > 0
    assert days.recorded > 15 * len(days.trace.jobs)
    assert days.said[0].startswith("day 1: ")


def test_long_work_gives_way_to_fresh_work_and_goes_on(days: Days) -> None:
    resumed = days.outcome.tally.resumed_after

    assert resumed["paused"], "nothing was paused for a fresh job"
    assert min(resumed["paused"]) >= 0


def test_the_model_says_nearly_what_the_product_does(days: Days) -> None:
    model = Market(days.trace.jobs, days.nodes, days.trace.horizon).run()

    said, done = (asdict(days.figures(each)) for each in (model, days.outcome))

    assert done["u_alloc"] == pytest.approx(said["u_alloc"], abs=0.03)
    assert done["useful"] == pytest.approx(said["useful"], abs=0.04)
    assert done["late"] <= said["late"] + 0.03


def test_work_that_can_wait_fills_what_is_free_and_gives_way() -> None:
    """Filler for days on two nodes; an owner's gang comes and has one of them soon."""
    jobs = Jobs(
        np.array([*[0.0] * 14, 30 * HOUR]),
        np.array([*[40 * HOUR] * 14, 2 * HOUR]),
        np.array([*[1] * 14, 8]),
        np.array([*[FILLER] * 14, 0]),
    )

    measured, _ = replayed(jobs, (1, 1), 3 * DAY, lambda _: None)

    outcome = measured.outcome()
    assert (outcome.started[:14] < HOUR).all()
    assert outcome.started[14] - jobs.arrival[14] <= 300
    assert outcome.tally.resumed_after["interrupted"], "filler went on after it gave way"


def test_what_is_forgotten_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = synthetic_week(3, owners=2, nodes=2, days=3)
    jobs = in_seconds(trace.jobs.of(trace.jobs.arrival < 10 * HOUR))

    seldom, _ = replayed(jobs, (2, 2), trace.horizon, lambda _: None)
    monkeypatch.setattr("tests.simulation.product.replay.FORGET_EVERY", 600.0)
    often, _ = replayed(jobs, (2, 2), trace.horizon, lambda _: None)

    assert (seldom.ended == often.ended).all()
    assert seldom.charged == often.charged


def test_a_gpu_that_is_leased_twice_is_found() -> None:
    jobs = Jobs(np.array([0.0, 0.0]), np.array([600.0, 600.0]), np.array([1, 1]), np.array([0, 0]))
    replay = ProductReplay(jobs, (1,))
    scheduled: list[LeaseScheduled] = []
    replay.clock.listen([LeaseScheduled], scheduled.append)
    replay.run()
    first, second = scheduled
    measured = Measured(jobs, (1,), Tally(0, DAY))
    for each in (first, replace(second, shares=first.shares)):
        measured._scheduled(each)

    measured._closed(_closed(first))
    with pytest.raises(AssertionError, match="leased twice"):
        measured._closed(_closed(second))


def _closed(lease: LeaseScheduled) -> LeaseClosed:
    return LeaseClosed(
        lease_id=lease.lease_id,
        market=lease.market,
        reason=101,
        failed=False,
        compensation=None,
        compensation_from=None,
        at=moment(600),
    )


def test_a_shortened_stream_keeps_its_places() -> None:
    store, by = ForgettingStore(), Meta(actor="test")
    stream = f"lease-{uuid4()}"
    lease_id = uuid4()
    for number in range(SHORTENED_FROM + 2):
        event = LeaseActivated(lease_id=lease_id, at=moment(number))  # type: ignore[arg-type]
        store.append(stream, [NewEvent(uuid4(), event)], expected=Expect.ANY, by=by)
    store.shorten(stream)
    store.forget_log()

    last = list(store.read_stream(stream, after_version=SHORTENED_FROM))

    assert [each.version for each in last] == [SHORTENED_FROM + 1, SHORTENED_FROM + 2]
    assert store.read_all(after=store.head()).caught_up
    store.append(stream, [NewEvent(uuid4(), event)], expected=SHORTENED_FROM + 2, by=by)
    with pytest.raises(AssertionError, match="forgotten"):
        list(store.read_stream(stream))
