"""How a host and its GPUs are doing, judged by when the server last heard and what it heard."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

Standing = Literal["healthy", "late", "silent"]
GpuCondition = Literal["healthy", "lost", "mismatched"]

LATE_POLLS = 5
SILENT_POLLS = 30
LATE_MIN = timedelta(seconds=15)
SILENT_MIN = timedelta(seconds=90)
"""A restart of the agent or the server takes seconds and is no news."""


@dataclass(frozen=True, slots=True)
class HealthSaid:
    """One health event of an agent. gpu_uuid: None is the driver, and so every GPU."""

    gpu_uuid: str | None
    kind: str
    at: datetime


def standing_of(last_seen_at: datetime, *, now: datetime, poll_seconds: int) -> Standing:
    """Judge an agent by when the server last heard from it, on the server's clock.

    What the agent says of its own clock plays no part: a dead host must not look alive because
    its clock runs ahead.
    """
    silence = now - last_seen_at
    poll = timedelta(seconds=poll_seconds)
    if silence > max(SILENT_MIN, SILENT_POLLS * poll):
        return "silent"
    return "late" if silence > max(LATE_MIN, LATE_POLLS * poll) else "healthy"


def conditions(gpu_uuids: Iterable[str], said: Iterable[HealthSaid]) -> dict[str, GpuCondition]:
    """Return the condition of each GPU after all that was said, in the order it was said."""
    found: dict[str, GpuCondition] = dict.fromkeys(gpu_uuids, "healthy")
    for each in said:
        touched = list(found) if each.gpu_uuid is None else [each.gpu_uuid]
        for uuid in touched:
            match each.kind:
                case "gpu-lost":
                    found[uuid] = "lost"
                case "driver-mismatch":
                    found[uuid] = "mismatched"
                case "recovered":
                    found[uuid] = "healthy"
    return found
