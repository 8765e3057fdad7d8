"""The figures of a run, by the definitions on the page."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.simulation.rules import Outcome
from tests.simulation.static import LATE_SHARE, P95_MINUTES
from tests.simulation.traces import DAY, FILLER, GPUS_PER_NODE, HOUR, Floats, Jobs

LATE = 900.0
OWN_RATE, CLOUD_RATE = 1.0, 2.0
SLACK = 1.1
"""Service is equal up to a tenth above the baseline's."""


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
    owners_wait: int | None = None
    owners_stand: int | None = None
    """How many owners wait, or stand still, longer than alone and than fleets are sized for."""
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
    harm = owners_wait = owners_stand = None
    if baseline is not None:
        each = of_owners(outcome, baseline, horizon)
        owners_wait = sum(owner.waits_longer for owner in each)
        owners_stand = sum(owner.stands_longer for owner in each)
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
            why: (len(after), *shares_within(after))
            for why, after in sorted(tally.resumed_after.items())
        },
        filler_wait_median=float(np.median(wait[filler])) / 60 if filler.any() else 0.0,
        filler_done_in_14_days=(
            float((took[may_end] <= 14 * DAY).mean()) if may_end.any() else 0.0
        ),
        owners_wait=owners_wait,
        owners_stand=owners_stand,
        harm=harm,
    )


@dataclass(frozen=True, slots=True)
class OfOwner:
    """One owner's jobs, alone and in the market: minutes, and shares of 1."""

    jobs: int
    alone_p95: float
    alone_late: float
    wait_p95: float
    late: float
    stood_p95: float
    stood_late: float
    stood_part_p95: float
    """Time stood as a part of a job's own length."""

    @property
    def waits_longer(self) -> bool:
        """Tell if first waits are worse than alone, and than what fleets are sized for."""
        return self._worse(self.wait_p95, self.late)

    @property
    def stands_longer(self) -> bool:
        """Tell the same of all time stood."""
        return self._worse(self.stood_p95, self.stood_late)

    def _worse(self, p95: float, late: float) -> bool:
        return p95 > max(SLACK * self.alone_p95, P95_MINUTES) or late > max(
            SLACK * self.alone_late, LATE_SHARE
        )


def of_owners(outcome: Outcome, baseline: Floats, horizon: float) -> list[OfOwner]:
    """Compare each owner's service with what it had alone. baseline: when jobs start alone."""
    jobs = outcome.jobs
    rows = []
    for owner in range(int(jobs.owner.max()) + 1):
        mine = _counted(jobs, horizon) & (jobs.owner == owner)
        if not mine.any():
            continue
        alone = (baseline - jobs.arrival)[mine]
        wait, stood = (outcome.started - jobs.arrival)[mine], outcome.stood[mine]
        rows.append(
            OfOwner(
                jobs=int(mine.sum()),
                alone_p95=_p95(alone) / 60,
                alone_late=float((alone > LATE).mean()),
                wait_p95=_p95(wait) / 60,
                late=float((wait > LATE).mean()),
                stood_p95=_p95(stood) / 60,
                stood_late=float((stood > LATE).mean()),
                stood_part_p95=_p95(stood / jobs.duration[mine]),
            )
        )
    return rows


def _p95(values: Floats) -> float:
    return float(np.percentile(values, 95))


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
        owners_wait=None,
        owners_stand=None,
        harm=None,
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


def shares_within(after: list[float]) -> tuple[float, float, float]:
    seconds = np.array(after)
    return (
        float((seconds <= 300).mean()),
        float((seconds <= 1800).mean()),
        float((seconds <= DAY).mean()),
    )
