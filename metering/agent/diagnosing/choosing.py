"""Which prober an agent has."""

from __future__ import annotations

from pathlib import Path

from .levels import EXTENTS, Level
from .port import Prober
from .process_prober import ProcessProber
from .simulated_prober import SimulatedProber


def prober_of(level: Level, *, simulated_in: Path | None) -> Prober | None:
    """Return what probes cards; simulated_in: the state directory of an agent that pretends."""
    if level == "off":
        return None
    if simulated_in is not None:
        return SimulatedProber(simulated_in)
    extent = EXTENTS[level]
    return ProcessProber(seconds=extent.seconds, mib=extent.mib)
