"""Philly through the product: what its events say, beside owners alone and the model.

`REPLAY_DAYS` says how many days from the beginning of the trace are replayed (all of it:
73). The whole takes a processor a good quarter of an hour, and as much for each copy of filler.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from tests.simulation import static
from tests.simulation.fleet import Tally
from tests.simulation.market import Market
from tests.simulation.measures import of_baseline, of_market
from tests.simulation.philly import HEADLINE_NODES, share_out
from tests.simulation.product.measured import Measured
from tests.simulation.product.replay import ProductReplay
from tests.simulation.traces import DAY, FILLER, Jobs, Trace, filler, philly

SINCE = date(2017, 10, 3)
DAYS, DAYS_WITH_FILLER = 7, 5
FILLER_SHIFTS = (1.5, 3.0, 4.5)
"""Days by which the span's own small jobs are moved to make filler: three copies."""
SAY_EVERY = DAY

Row = dict[str, Any]
Say = Callable[[str], None]


def span(root: Path, days: int) -> Trace:
    """Return the first days of the trace: so many, where nobody says another number."""
    days = int(os.environ.get("REPLAY_DAYS", days))
    return philly(root, SINCE.isoformat(), (SINCE + timedelta(days=days)).isoformat())


def in_seconds(jobs: Jobs) -> Jobs:
    """Return jobs that come and end at whole seconds, as all things in the product do."""
    return replace(jobs, arrival=np.floor(jobs.arrival), duration=np.ceil(jobs.duration))


def run(root: Path) -> Row:
    """Replay the span without filler, on the fleets that the whole trace is sized for."""
    return compare(span(root, DAYS), static.right_sized(philly(root)), HEADLINE_NODES)


def run_with_filler(root: Path) -> Row:
    """Replay the span with three copies of work that can wait."""
    trace = span(root, DAYS_WITH_FILLER)
    sized = static.right_sized(philly(root))
    more = filler(trace, FILLER_SHIFTS)
    demand = more.gpu_hours / (HEADLINE_NODES * 8 * trace.horizon / 3600)
    return compare(trace, sized, HEADLINE_NODES, more=more) | {"demand": demand}


def compare(
    trace: Trace, sized: tuple[int, ...], nodes: int, *, more: Jobs | None = None, say: Say = print
) -> Row:
    """Compare owners alone, the model of the market and the product, on the same jobs and nodes."""
    trace = replace(trace, jobs=in_seconds(trace.jobs))
    started = static.every_owner_alone(trace, sized)
    jobs = trace.jobs if more is None else trace.jobs.with_more(in_seconds(more))
    owned = share_out(nodes, sized)
    alone = of_baseline(trace.jobs, started, sum(sized), trace.horizon)
    baseline = started
    if more is not None:
        baseline = np.zeros(len(jobs))
        baseline[jobs.owner != FILLER] = started
    model = Market(jobs, owned, trace.horizon).run()
    began = time.process_time()
    measured, recorded = replayed(jobs, owned, trace.horizon, say)
    outcome = measured.outcome()
    return {
        "jobs": len(trace.jobs),
        "gpu_hours": trace.jobs.gpu_hours,
        "days": trace.horizon / DAY,
        "events": recorded,
        "minutes": (time.process_time() - began) / 60,
        "counted": dict(measured.counted),
        "charged": measured.charged,
        "alone": asdict(alone),
        "model": asdict(of_market(model, trace.horizon, baseline=baseline)),
        "product": asdict(of_market(outcome, trace.horizon, baseline=baseline)),
    }


def replayed(jobs: Jobs, owned: tuple[int, ...], horizon: float, say: Say) -> tuple[Measured, int]:
    """Replay jobs in the product; return what its events say, and how many there were."""
    replay = ProductReplay(jobs, owned)
    measured = Measured(jobs, owned, Tally(DAY, horizon - DAY))
    measured.listen_to(replay.clock)
    clock = replay.clock

    def tell(_: object) -> None:
        say(f"day {clock.now / DAY:.0f}: {clock.recorded:,} events, {replay.open_jobs:,} to do")
        if replay.open_jobs:
            clock.at(clock.now + SAY_EVERY, tell)

    clock.at(SAY_EVERY, tell)
    replay.run()
    return measured, clock.recorded
