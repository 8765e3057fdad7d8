"""Traces as columns: real ones read from `OFFPEAK_TRACES`, and a synthetic week from a seed."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HOUR, DAY = 3600.0, 86_400.0
GPUS_PER_NODE = 8
FILLER = -1
"""The owner of work that belongs to nobody's own GPUs."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Jobs:
    """Work in order of arrival: seconds since the start, GPUs, index of the owner (or FILLER)."""

    arrival: Floats
    duration: Floats
    gpus: Ints
    owner: Ints

    def __len__(self) -> int:
        return len(self.arrival)

    @property
    def gpu_hours(self) -> float:
        return float((self.duration * self.gpus).sum()) / HOUR

    def of(self, mask: NDArray[np.bool_]) -> Jobs:
        """Return some of them."""
        return Jobs(self.arrival[mask], self.duration[mask], self.gpus[mask], self.owner[mask])

    def with_more(self, more: Jobs) -> Jobs:
        """Return both, in order of arrival."""
        arrival = np.concatenate([self.arrival, more.arrival])
        order = np.argsort(arrival, kind="stable")
        return Jobs(
            arrival[order],
            np.concatenate([self.duration, more.duration])[order],
            np.concatenate([self.gpus, more.gpus])[order],
            np.concatenate([self.owner, more.owner])[order],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Jobs over `horizon` seconds, and how many nodes each owner has. Equal only to itself."""

    name: str
    jobs: Jobs
    nodes: tuple[int, ...]
    horizon: float


def traces_at() -> Path | None:
    """Return the directory of the traces, or None where this machine has none."""
    said = os.environ.get("OFFPEAK_TRACES", "")
    return Path(said) if said else None


def philly(root: Path, since: str = "2017-10-03", until: str = "2017-12-15") -> Trace:
    """Read Microsoft's Philly trace (Jeon et al., USENIX ATC 2019): real jobs, real owners."""
    with (root / "philly" / "philly_vc_nodes.csv").open() as lines:
        nodes = {row["vc"]: int(row["node num"]) for row in csv.DictReader(lines)}
    index = {owner: at for at, owner in enumerate(nodes)}
    start, end = datetime.fromisoformat(since), datetime.fromisoformat(until)
    rows = []
    with (root / "philly" / "philly.csv").open() as lines:
        for row in csv.DictReader(lines):
            at = datetime.fromisoformat(row["timestamp"])
            if start <= at < end and row["cluster"] in index:
                rows.append(
                    (
                        (at - start).total_seconds(),
                        max(1.0, float(row["duration"])),
                        int(row["num_gpus"]),
                        index[row["cluster"]],
                    )
                )
    rows.sort()
    return Trace("philly", _jobs(rows), tuple(nodes.values()), (end - start).total_seconds())


def _jobs(rows: list[tuple[float, float, int, int]]) -> Jobs:
    columns = list(zip(*rows, strict=True))
    return Jobs(
        np.array(columns[0], dtype=np.float64),
        np.array(columns[1], dtype=np.float64),
        np.array(columns[2], dtype=np.int64),
        np.array(columns[3], dtype=np.int64),
    )


def synthetic_week(seed: int = 1, *, owners: int = 6, nodes: int = 8, days: int = 9) -> Trace:
    """Make nine days (a week between two days of warm-up and tail) in Philly's image.

    93 % of jobs ask for one GPU, some for whole nodes and several; lengths are log-normal with a
    long tail, arrivals follow the clock of the day and each owner has a busy spell of its own.
    """
    random = np.random.default_rng(seed)
    horizon = days * DAY
    rows: list[tuple[float, float, int, int]] = []
    sizes = np.array([1, 2, 4, 8, 16])
    for owner in range(owners):
        busy_from = random.uniform(0, horizon - 2 * DAY)
        for hour in range(days * 24):
            at = hour * HOUR
            rate = 4.0 * (1 + 0.6 * np.sin((hour % 24 - 8) / 12 * np.pi))
            if busy_from <= at < busy_from + 2 * DAY:
                rate *= 2.5
            for _ in range(random.poisson(rate)):
                gpus = int(random.choice(sizes, p=[0.90, 0.03, 0.035, 0.03, 0.005]))
                length = float(np.clip(random.lognormal(7.3, 1.6), 30, DAY))
                rows.append((at + random.uniform(0, HOUR), length, gpus, owner))
    rows.sort()
    return Trace("synthetic week", _jobs(rows), (nodes,) * owners, horizon)


def filler(trace: Trace, shifts_days: tuple[float, ...], *, hours_max: float = 24) -> Jobs:
    """Return work that can wait, made of the trace's own: its small jobs, moved by some days.

    What fits one node and takes no longer than `hours_max`, at another time of the trace.
    """
    jobs = trace.jobs
    small = (jobs.gpus <= GPUS_PER_NODE) & (jobs.duration <= hours_max * HOUR)
    found = jobs.of(small)
    copies = []
    for shift in shifts_days:
        arrival = (found.arrival + shift * DAY) % trace.horizon
        copies.append((arrival, found.duration, found.gpus))
    arrival = np.concatenate([copy[0] for copy in copies])
    order = np.argsort(arrival, kind="stable")
    return Jobs(
        arrival[order],
        np.concatenate([copy[1] for copy in copies])[order],
        np.concatenate([copy[2] for copy in copies])[order],
        np.full(len(arrival), FILLER, dtype=np.int64),
    )
