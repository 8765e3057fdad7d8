"""The figures of a run, by the definitions on the page."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.simulation.market import Outcome
from tests.simulation.traces import DAY, FILLER, GPUS_PER_NODE, HOUR, Floats, Jobs

LATE = 900.0
OWN_RATE, CLOUD_RATE = 1.0, 2.0


@dataclass(frozen=True, slots=True)
class Figures:
    """One run. Shares are of 1; waits in minutes; cost in hours of an own GPU."""

    nodes: int
    u_alloc: float
    useful: float
    owners_share: float
    """Of owned GPU time, held by owners' jobs."""
    wait_mean: float
    wait_p95: float
    late: float
    """Share of owners' jobs that waited over 15 minutes for their first start."""
    stood_mean: float
    stood_p95: float
    """Stood still in all: first wait and every wait after an interruption."""
    stood_p99: float
    stood_max: float
    stood_late: float
    gang_p95: float
    gang_max: float
    """First waits of jobs that need a whole node or several."""
    interactive: float
    """Of one-GPU jobs up to four hours that came between 8 and 20: begun within 60 seconds."""
    cost: float
    cloud_hours: float
    lost_hours: float
    interrupted: dict[str, tuple[int, float, float, float]]
    """By cause: how many, and which shares went on within 5 minutes, 30 minutes, 24 hours."""
    filler_wait_median: float
    filler_done_in_14_days: float
    harm: float | None = None
    """p95 wait of owners' jobs within quota, less that of the same jobs in the baseline."""


def of_market(outcome: Outcome, horizon: float, *, baseline: Floats | None = None) -> Figures:
    """Measure a replay of the market; baseline: when the jobs start without it."""
    jobs, tally = outcome.jobs, outcome.tally
    counted = _counted(jobs, horizon)
    owners, filler = counted & (jobs.owner != FILLER), counted & (jobs.owner == FILLER)
    wait = outcome.started - jobs.arrival
    owned = outcome.nodes * GPUS_PER_NODE * (tally.until - tally.since)
    held = tally.held_owners + tally.held_filler
    took = outcome.ended - jobs.arrival
    may_end = filler & (jobs.arrival < horizon - 15 * DAY)
    within = owners & outcome.within_quota
    harm = None
    if baseline is not None:
        before = (baseline - jobs.arrival)[within]
        harm = float(np.percentile(wait[within], 95) - np.percentile(before, 95)) / 60
    return Figures(
        nodes=outcome.nodes,
        u_alloc=held / owned,
        useful=(held - tally.lost) / owned,
        owners_share=tally.held_owners / owned,
        **_waits(jobs, wait, outcome.stood, owners),
        cost=(owned * OWN_RATE + tally.cloud * CLOUD_RATE + tally.lost * OWN_RATE) / HOUR,
        cloud_hours=tally.cloud / HOUR,
        lost_hours=tally.lost / HOUR,
        interrupted={
            why: (len(after), *_within(after)) for why, after in sorted(tally.resumed_after.items())
        },
        filler_wait_median=float(np.median(wait[filler])) / 60 if filler.any() else 0.0,
        filler_done_in_14_days=(
            float((took[may_end] <= 14 * DAY).mean()) if may_end.any() else 0.0
        ),
        harm=harm,
    )


def of_baseline(jobs: Jobs, started: Floats, nodes: int, horizon: float) -> Figures:
    """Measure a run without a market, where nothing is ever interrupted."""
    counted = _counted(jobs, horizon)
    wait = started - jobs.arrival
    ended = np.minimum(started + jobs.duration, horizon - DAY)
    held = float((np.maximum(0.0, ended - np.maximum(started, DAY)) * jobs.gpus).sum())
    owned = nodes * GPUS_PER_NODE * (horizon - 2 * DAY)
    return Figures(
        nodes=nodes,
        u_alloc=held / owned,
        useful=held / owned,
        owners_share=held / owned,
        **_waits(jobs, wait, wait, counted),
        cost=owned * OWN_RATE / HOUR,
        cloud_hours=0.0,
        lost_hours=0.0,
        interrupted={},
        filler_wait_median=0.0,
        filler_done_in_14_days=0.0,
    )


def _counted(jobs: Jobs, horizon: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Leave out the first and the last day: fleets fill and empty there."""
    return np.asarray((jobs.arrival >= DAY) & (jobs.arrival < horizon - DAY))


def _waits(
    jobs: Jobs,
    wait: Floats,
    stood: Floats,
    counted: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> dict[str, float]:
    first, still = wait[counted], stood[counted]
    gangs = wait[counted & (jobs.gpus >= GPUS_PER_NODE)]
    hour = jobs.arrival % DAY / HOUR
    asks_now = counted & (jobs.gpus == 1) & (jobs.duration <= 4 * HOUR) & (hour >= 8) & (hour < 20)
    return {
        "wait_mean": float(first.mean()) / 60,
        "wait_p95": float(np.percentile(first, 95)) / 60,
        "late": float((first > LATE).mean()),
        "stood_mean": float(still.mean()) / 60,
        "stood_p95": float(np.percentile(still, 95)) / 60,
        "stood_p99": float(np.percentile(still, 99)) / 60,
        "stood_max": float(still.max()) / 60,
        "stood_late": float((still > LATE).mean()),
        "gang_p95": float(np.percentile(gangs, 95)) / 60 if len(gangs) else 0.0,
        "gang_max": float(gangs.max()) / 60 if len(gangs) else 0.0,
        "interactive": float((wait[asks_now] <= 60).mean()) if asks_now.any() else 0.0,
    }


def _within(after: list[float]) -> tuple[float, float, float]:
    seconds = np.array(after)
    return (
        float((seconds <= 300).mean()),
        float((seconds <= 1800).mean()),
        float((seconds <= DAY).mean()),
    )
