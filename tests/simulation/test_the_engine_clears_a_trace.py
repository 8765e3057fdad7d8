"""A synthetic stretch through the product's engine: sound, and near to what the model says."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from itertools import pairwise

import numpy as np
import pytest

from marketplace.domain.facts.events import LeaseGranted
from tests.simulation import static
from tests.simulation.engine_facts import STEP
from tests.simulation.engine_replay import EngineReplay, Running
from tests.simulation.market import Market
from tests.simulation.measures import of_market
from tests.simulation.philly import share_out
from tests.simulation.rules import Outcome
from tests.simulation.traces import Jobs, Trace, synthetic_week


class Recorded(EngineReplay):
    """A replay that keeps who held which GPUs from when until when."""

    def __init__(self, jobs: Jobs, nodes: tuple[int, ...], horizon: float) -> None:
        super().__init__(jobs, nodes, horizon)
        self.history: list[tuple[int, LeaseGranted, float, float]] = []

    def _close(self, lease: Running, at: float, *, finished: bool) -> None:
        self.history.append((lease.job, lease.granted, lease.starts, at))
        super()._close(lease, at, finished=finished)


class Stretch:
    """Three days of three owners' jobs on few nodes, through the engine."""

    def __init__(self) -> None:
        self.trace: Trace = synthetic_week(11, owners=3, days=3)
        sized = static.right_sized(self.trace)
        self.nodes = share_out(round(0.8 * sum(sized)), sized)
        self.replay = Recorded(self.trace.jobs, self.nodes, self.trace.horizon)
        self.outcome: Outcome = self.replay.run()


@pytest.fixture(scope="module")
def stretch() -> Stretch:
    return Stretch()


def test_every_job_is_done_in_leases_that_hold_no_gpu_twice(stretch: Stretch) -> None:
    jobs, outcome = stretch.trace.jobs, stretch.outcome

    assert np.isfinite(outcome.ended).all()
    assert (outcome.started >= jobs.arrival - 1e-3).all()
    assert not stretch.replay.book.held
    held: dict[str, list[tuple[float, float]]] = defaultdict(list)
    had: dict[int, float] = defaultdict(float)
    for job, granted, since, until in stretch.replay.history:
        uuids = [uuid for share in granted.shares for uuid in share.gpu_uuids]
        assert len(set(uuids)) == jobs.gpus[job]
        had[job] += until - since
        for uuid in uuids:
            held[uuid].append((since, until))
    for spans in held.values():
        spans.sort()
        for (_, until), (since, _) in pairwise(spans):
            assert until <= since + 1e-3
    for job, length in enumerate(jobs.duration.tolist()):
        assert had[job] >= length - 1e-3


def test_long_work_gives_way_to_fresh_work_and_goes_on(stretch: Stretch) -> None:
    resumed = stretch.outcome.tally.resumed_after

    assert resumed["interrupted"], "no fresh job interrupted anything"
    assert min(resumed["interrupted"]) >= 0
    long = stretch.trace.jobs.duration > 3 * STEP
    leases: dict[int, int] = defaultdict(int)
    for job, *_ in stretch.replay.history:
        leases[job] += 1
    assert any(leases[job] > 1 for job in np.flatnonzero(long).tolist())


def test_the_model_says_nearly_what_the_engine_does(stretch: Stretch) -> None:
    trace = stretch.trace
    model = Market(trace.jobs, stretch.nodes, trace.horizon).run()

    said, done = (asdict(of_market(each, trace.horizon)) for each in (model, stretch.outcome))

    assert done["u_alloc"] == pytest.approx(said["u_alloc"], abs=0.03)
    assert done["useful"] == pytest.approx(said["useful"], abs=0.03)
    assert done["late"] <= said["late"] + 0.02
