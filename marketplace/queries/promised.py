"""What the owners of some GPUs promise whoever leases them, from the least of it to the most."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Promised:
    """The range of each promise. reclaim_fee_ppm: at the least notice."""

    notice_seconds_min: int
    notice_seconds_max: int
    reclaim_fee_ppm_min: int
    reclaim_fee_ppm_max: int
    grace_seconds_min: int
    grace_seconds_max: int


def promised_by(promises: Iterable[tuple[int, int, int]]) -> Promised | None:
    """Return the ranges of some promises: notice, fee and grace of each. None: there are none."""
    found = list(promises)
    if not found:
        return None
    notices, fees, graces = zip(*found, strict=True)
    return Promised(min(notices), max(notices), min(fees), max(fees), min(graces), max(graces))


def promised_together(ranges: Iterable[Promised | None]) -> Promised | None:
    """Return the ranges of all of some; None: there are none."""
    ends = [
        end
        for each in ranges
        if each is not None
        for end in (
            (each.notice_seconds_min, each.reclaim_fee_ppm_min, each.grace_seconds_min),
            (each.notice_seconds_max, each.reclaim_fee_ppm_max, each.grace_seconds_max),
        )
    ]
    return promised_by(ends)
