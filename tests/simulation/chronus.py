"""Philly's jobs with deadlines, as the authors of Chronus made them up: who meets them, what for.

A strict job is worth its value by its deadline and nothing later; a soft one loses value in steps;
a best-effort one has no deadline and is filler in the market.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.simulation import static
from tests.simulation.market import Market
from tests.simulation.philly import share_out
from tests.simulation.rules import Rules
from tests.simulation.traces import DAY, FILLER, GPUS_PER_NODE, Floats, Jobs, Trace

MINUTE = 60.0
SHARES = (0.8,)
"""The size of the fleet of the market, of the right-sized baseline."""
KINDS = ("strict", "soft", "best")


@dataclass(frozen=True, slots=True)
class Deadlines:
    """What each job is: its kind, and its steps of (seconds after arrival, value)."""

    kind: Sequence[str]
    steps: Sequence[Sequence[tuple[float, float]]]

    def worth(self, job: int, took: float) -> float:
        """Return what a job is worth that was done `took` seconds after it came."""
        for within, value in self.steps[job]:
            if took <= within:
                return value
        return 0.0


def read(root: Path, mix: str) -> tuple[Trace, Deadlines]:
    """Read one of the two mixes: `SLO` (strict only) or `MIX2` (strict, soft, best effort)."""
    path = root / "chronus_philly" / f"trace_job_Philly_{mix}.csv.gz"
    with gzip.open(path, "rt") as lines:
        rows = [row for row in csv.DictReader(lines) if int(row["num_gpu"]) > 0]
    rows.sort(key=lambda row: float(row["submit_time"]))
    owners = {name: at for at, name in enumerate(sorted({row["user"] for row in rows}))}
    jobs = Jobs(
        np.array([float(row["submit_time"]) * MINUTE for row in rows]),
        np.array([max(1.0, float(row["duration"])) * MINUTE for row in rows]),
        np.array([int(row["num_gpu"]) for row in rows]),
        np.array([owners[row["user"]] for row in rows]),
    )
    deadlines = Deadlines([row["job_type"] for row in rows], [tuple(_steps(row)) for row in rows])
    horizon = float(np.ceil(jobs.arrival.max() / DAY)) * DAY
    demand = np.array([jobs.of(jobs.owner == owner).gpu_hours for owner in range(len(owners))])
    nodes = tuple(int(n) for n in np.maximum(2, np.ceil(demand / (horizon / 3600) / 8 * 3)))
    return Trace(f"Chronus {mix}", jobs, nodes, horizon), deadlines


def _steps(row: dict[str, str]) -> Iterator[tuple[float, float]]:
    if row["job_type"] != "best":
        times, values = row["expect_time_list"].split("-"), row["expect_value_list"].split("-")
        for within, value in zip(times, values, strict=True):
            yield float(within) * MINUTE, float(value)


def compare(root: Path) -> dict[str, Any]:
    """Compare owners alone, the market, and the market with bursting, on both mixes."""
    rows = []
    for mix in ("SLO", "MIX2"):
        trace, deadlines = read(root, mix)
        sized = static.right_sized(trace)
        alone = static.every_owner_alone(trace, sized) + trace.jobs.duration
        rows.append(_row(mix, "every owner alone", sum(sized), trace, deadlines, alone, 0.0))
        for share in SHARES:
            for name, wait in (("market", None), ("market, burst", 900.0)):
                nodes = share_out(round(sum(sized) * share), sized)
                ended, cloud = _market(trace, deadlines, nodes, wait)
                rows.append(_row(mix, name, sum(nodes), trace, deadlines, ended, cloud))
    return {"rows": rows}


def _market(
    trace: Trace, deadlines: Deadlines, nodes: tuple[int, ...], burst_wait: float | None
) -> tuple[Floats, float]:
    best = np.array([kind == "best" for kind in deadlines.kind])
    owner = np.where(best & (trace.jobs.gpus <= GPUS_PER_NODE), FILLER, trace.jobs.owner)
    jobs = Jobs(trace.jobs.arrival, trace.jobs.duration, trace.jobs.gpus, owner)
    outcome = Market(jobs, nodes, trace.horizon, Rules(burst_wait=burst_wait)).run()
    return outcome.ended, outcome.tally.cloud / 3600


def _row(
    mix: str,
    name: str,
    nodes: int,
    trace: Trace,
    deadlines: Deadlines,
    ended: Floats,
    cloud_hours: float,
) -> dict[str, Any]:
    jobs = trace.jobs
    counted = (jobs.arrival >= DAY) & (jobs.arrival < trace.horizon - DAY)
    took = ended - jobs.arrival
    met: dict[str, list[bool]] = {kind: [] for kind in KINDS}
    worth = most = 0.0
    for job in np.flatnonzero(counted).tolist():
        steps = deadlines.steps[job]
        if steps:
            met[deadlines.kind[job]].append(bool(took[job] <= steps[0][0]))
            worth += deadlines.worth(job, float(took[job]))
            most += steps[0][1]
    hours = nodes * GPUS_PER_NODE * (trace.horizon - 2 * DAY) / 3600
    inside = jobs.of(counted).gpu_hours
    best = counted & np.array([kind == "best" for kind in deadlines.kind])
    return {
        "mix": mix,
        "name": name,
        "nodes": nodes,
        "strict_met": float(np.mean(met["strict"])) if met["strict"] else None,
        "soft_met": float(np.mean(met["soft"])) if met["soft"] else None,
        "best_took_p95": float(np.percentile(took[best], 95)) / 3600 if best.any() else None,
        "value": worth / most,
        "load": inside / hours,
        "cost": hours + 2 * cloud_hours,
        "cloud_hours": cloud_hours,
    }
