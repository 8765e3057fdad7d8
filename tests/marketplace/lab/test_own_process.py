"""The lab in a process of its own: the same answer, told how far it is, given up at any time."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from ledger.eventstore.postgres import PostgresStore
from marketplace import kernels
from marketplace.lab import apart
from marketplace.lab.apart import Apart, LabBroke, LabBusy, compare_apart
from marketplace.lab.comparing import Comparison, Job, Question, answered, prepared
from marketplace.lab.running import LabTooSlow
from marketplace.lab.variants import Variant
from marketplace.snapshots.postgres import PostgresSnapshots
from tests.marketplace.support.market import MARKET, Market

PATIENCE_SECONDS = 60.0


def job_of(market: Market, *, hours: int = 30, variant: Variant | None = None) -> Job:
    return prepared(
        market.store,
        market=MARKET,
        currency="USD",
        question=Question(hours, variant or Variant(lanes="patient"), 70_000),
        present=Variant(),
        fee_ppm=50_000,
        now=market.now,
    )


def a_day(market: Market) -> Market:
    for hour in range(24):
        until = market.now + timedelta(hours=8)
        market.offer(f"host {hour}", gpus=2, windows=[(market.now, until)])
        market.bid(f"bid {hour}", gpus=1, hours=2, at=3)
        market.bid(f"patient {hour}", gpus=2, hours=3, at=2, patience="patient")
        market.run()
        market.wait(hours=1)
        market.run()
    return market


@pytest.fixture(scope="module")
def day() -> Market:
    """A market after a day, which no run changes."""
    return a_day(Market())


@pytest.fixture
def job(day: Market) -> Job:
    return job_of(day)


@pytest.fixture(scope="module")
def found_here(day: Market) -> Comparison:
    """What the run finds in this process."""
    return answered(job_of(day))


@pytest.fixture
def soon_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process load no kernels, which takes longer than all else that it does here."""
    monkeypatch.setattr(kernels, "home", None)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_comes_to_the_same_as_in_this_process(job: Job, found_here: Comparison) -> None:
    assert compare_apart(job) == found_here


def test_what_lies_before_the_snapshot_is_asked_for(db: None) -> None:
    market = Market(PostgresStore())
    market.keep(PostgresSnapshots(), facts=4)
    a_day(market)
    market.amend("patient 20", at=4, deadline=market.now + timedelta(hours=9))
    market.run()
    job = job_of(market, hours=4)
    assert job.stretch.start is not None and job.stretch.behind is not None

    assert compare_apart(job) == answered(job)


def test_it_tells_how_far_it_is(job: Job) -> None:
    seen = set[int]()

    with Apart(job) as run:
        while run.step(PATIENCE_SECONDS) is None:
            seen.add(run.done)

    assert seen and max(seen) <= run.steps == job.steps


@pytest.mark.usefixtures("soon_up")
def test_a_run_that_is_given_up_leaves_no_process_and_no_place_taken(job: Job) -> None:
    for _ in range(3):
        with Apart(job) as run:
            run.step(0.0)
            assert is_there(run.pid)
        assert not is_there(run.pid)


@pytest.mark.usefixtures("soon_up")
def test_no_more_than_two_run_at_once(job: Job) -> None:
    with Apart(job), Apart(job), pytest.raises(LabBusy):
        Apart(job)
    with Apart(job):
        pass


@pytest.mark.usefixtures("soon_up")
def test_a_refusal_comes_through(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "SECONDS_MAX", -1.0)

    with pytest.raises(LabTooSlow):
        compare_apart(job)


@pytest.mark.usefixtures("soon_up")
def test_a_process_that_breaks_off_is_told_so(job: Job) -> None:
    broken = replace(job, stretch=replace(job.stretch, recorded=[None]))  # type: ignore[list-item]

    with pytest.raises(LabBroke):
        compare_apart(broken)


def test_others_are_not_held_up_meanwhile(job: Job) -> None:
    """While it runs, this process has its time to itself: it hardly uses any for waiting."""
    with Apart(job) as run:
        run.step(0.0)
        before = time.thread_time()
        while run.step(0.05) is None:
            pass
        assert time.thread_time() - before < 0.5


@pytest.mark.parametrize("compiles", [True, False])
def test_it_comes_to_the_same_with_compiled_kernels(
    job: Job, found_here: Comparison, monkeypatch: pytest.MonkeyPatch, compiles: bool
) -> None:
    monkeypatch.setattr(kernels, "home", kernels.home if compiles else None)

    assert compare_apart(job) == found_here


def test_where_no_kernels_are_compiled_it_does_without(
    job: Job, found_here: Comparison, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """To compile them takes a minute or more, in which it would say nothing."""
    monkeypatch.setattr(kernels, "home", tmp_path)

    assert compare_apart(job) == found_here
    assert not list(tmp_path.iterdir())
