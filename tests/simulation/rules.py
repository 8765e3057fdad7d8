"""The terms of the market that is replayed, and what comes of a replay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.simulation.fleet import Tally
from tests.simulation.traces import HOUR, Floats, Jobs


@dataclass(frozen=True, slots=True)
class Rules:
    """The terms of the market; all times in seconds."""

    notice: float = 120.0
    resume: float = 120.0
    checkpoint: float = 1800.0
    gang_patience: float = 600.0
    """After this wait a gang has capacity kept for it as it comes free."""
    gangs_reserved_max: int = 2
    headroom_share: float = 0.05
    """Of the fleet, kept free of filler and of what may pause, so that notices rarely delay."""
    firm_for: float | None = 1 * HOUR
    """Borrowed work that has run this long pauses when work that has not finds no room."""
    pause_max: float = 12 * HOUR
    """What pauses for fresher work queues as if it had come this much later."""
    moving: bool = True
    retry: float = 300.0
    burst_wait: float | None = None
    departures_per_node_day: float = 0.0
    announced_share: float = 0.6
    temporary_share: float = 0.2
    """Of departures; the rest is sudden, and for as long as announced ones."""
    outage_mean: float = 8 * HOUR
    absence_mean: float = 900.0
    """How long a node is away that loses its connection, say, and is back soon."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """When each job first started, when it ended, and how long it stood still in all."""

    jobs: Jobs
    nodes: int
    started: Floats
    ended: Floats
    stood: Floats
    within_quota: NDArray[np.bool_]
    """If the owner, as each job came, held less than its own nodes have."""
    tally: Tally
