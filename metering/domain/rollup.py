"""From the intervals that agents sent to what one GPU did for one lease in one usage window.

Granted time is the length of the union of the intervals, so nothing is counted twice however they
overlap, and neither order nor batching can change it. Occupied and busy time and the energy of an
interval that lies across a border are divided so that the parts sum to the whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

Span = tuple[int, int]
"""Half open, in milliseconds since the epoch."""
WATTS_MAX = 100_000
"""No card takes more: a figure beyond that is garbage, and as good as none."""


class Sampled(NamedTuple):
    """One interval of one GPU and lease as the agent sent it, in milliseconds.

    occupied_ms, busy_ms, energy_mj: None where it could not be measured. late_ms: how much of its
    beginning lay in a window that was closed when it came; that part does not count.
    """

    start_ms: int
    end_ms: int
    late_ms: int = 0
    occupied_ms: int | None = None
    busy_ms: int | None = None
    energy_mj: int | None = None


@dataclass(frozen=True, slots=True)
class Rolled:
    """What one GPU did in a window, in milliseconds, and the energy it took, in millijoules.

    occupied_ms, busy_ms, energy_mj: None as soon as a part is unknown, which is never zero.
    gaps: spans in which the work ran as far as anybody knows, and no interval proves it.
    """

    granted_ms: int
    occupied_ms: int | None
    busy_ms: int | None
    gaps: tuple[Span, ...] = ()
    energy_mj: int | None = None

    @property
    def gap_ms(self) -> int:
        """Return the length of all gaps."""
        return sum(end - start for start, end in self.gaps)


def roll_up(samples: Iterable[Sampled], *, window: Span, expected: Span | None = None) -> Rolled:
    """Return what the intervals of one GPU and lease add up to in a window.

    Args:
        samples: in any order; those outside the window are left out.
        expected: when the work ran; where that is not known, None, and nothing is missed.
    """
    granted_ms = 0
    occupied_ms: int | None = 0
    busy_ms: int | None = 0
    energy_mj: int | None = 0
    covered: list[Span] = []
    covered_until = window[0]
    for each in sorted(samples, key=_by_time):
        start_ms = max(each.start_ms + each.late_ms, covered_until)
        end_ms = min(each.end_ms, window[1])
        if start_ms >= end_ms:
            continue
        granted_ms += end_ms - start_ms
        occupied_ms = _plus(occupied_ms, _part(each, each.occupied_ms, start_ms, end_ms))
        busy_ms = _plus(busy_ms, _part(each, each.busy_ms, start_ms, end_ms))
        energy_mj = _plus(energy_mj, _part(each, _sane(each), start_ms, end_ms))
        covered.append((start_ms, end_ms))
        covered_until = end_ms
    gaps = _gaps(covered, window, expected)
    return Rolled(granted_ms, occupied_ms, busy_ms, gaps, energy_mj)


def _sane(each: Sampled) -> int | None:
    most_mj = (each.end_ms - each.start_ms) * WATTS_MAX
    return None if each.energy_mj is None or each.energy_mj > most_mj else each.energy_mj


def _by_time(each: Sampled) -> tuple[int, ...]:
    # Of equal intervals the one that knows least counts, so that the order in which the database
    # returns them does not matter.
    occupied_ms = -1 if each.occupied_ms is None else each.occupied_ms
    busy_ms = -1 if each.busy_ms is None else each.busy_ms
    energy_mj = -1 if each.energy_mj is None else each.energy_mj
    return each.start_ms, each.end_ms, occupied_ms, busy_ms, energy_mj


def _part(each: Sampled, value: int | None, start_ms: int, end_ms: int) -> int | None:
    """Return the share of `value` that falls on [start_ms, end_ms) of its interval.

    The difference of two running totals, each rounded down, so that parts sum to the whole and
    no part is longer than its span.
    """
    if value is None:
        return None
    if start_ms == each.start_ms and end_ms == each.end_ms:
        return value
    length_ms = each.end_ms - each.start_ms
    until = value * (end_ms - each.start_ms) // length_ms
    return until - value * (start_ms - each.start_ms) // length_ms


def _plus(total: int | None, part: int | None) -> int | None:
    return None if total is None or part is None else total + part


def _gaps(covered: list[Span], window: Span, expected: Span | None) -> tuple[Span, ...]:
    if expected is None:
        return ()
    gaps: list[Span] = []
    at_ms, until_ms = max(window[0], expected[0]), min(window[1], expected[1])
    for start_ms, end_ms in covered:
        if at_ms < min(start_ms, until_ms):
            gaps.append((at_ms, min(start_ms, until_ms)))
        at_ms = max(at_ms, end_ms)
    if at_ms < until_ms:
        gaps.append((at_ms, until_ms))
    return tuple(gaps)
