"""Intervals of a lease's GPU, cut from what its meter counted since the last one that was kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from .meters import Meter
from .runtimes.used import NOT_KNOWN, Used
from .sharing import US_PERCENT_PER_MS

Key = tuple[UUID, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One interval that is ready to be kept; `fields` are those of the wire's Interval but seq.

    used: by the lease's work up to its end.
    """

    key: Key
    fields: dict[str, Any]
    used: Used = NOT_KNOWN


def cut_of(key: Key, meter: Meter, end_ms: int, used: Used = NOT_KNOWN) -> Cut:
    """Return the interval from the last kept one's end to a moment."""
    spent = used.since(meter.used)
    granted_ms = end_ms - meter.cut_ms
    busy_ms = min(meter.busy_us_percent // US_PERCENT_PER_MS, granted_ms)
    occupied_ms = meter.occupied_ms
    return Cut(
        key=key,
        fields={
            "lease_id": str(key[0]),
            "gpu_uuid": key[1],
            "start_ms": meter.cut_ms,
            "end_ms": end_ms,
            "granted_ms": granted_ms,
            "occupied_ms": None if occupied_ms is None else min(occupied_ms, granted_ms),
            "busy_ms": busy_ms if meter.busy_known else None,
            "memory_used_mib": meter.memory_mib,
            "cpu_ms": spent.cpu_ms,
            "io_bytes": spent.io_bytes,
            "net_bytes": spent.net_bytes,
            "energy_mj": meter.energy_mj if meter.energy_known else None,
        },
        used=used,
    )
