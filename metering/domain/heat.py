"""How GPU-time that was measured by hours of UTC falls into the hours of somebody's wall clock.

An hour of the wall is not an hour of time: where clocks are put back it comes twice, where they are
put forward it is left out, of the running one only part has passed, and in zones that are off by
half hours or quarters it lies in two hours of UTC. Everything here is elapsed time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

from ledger.domain.days import local_day
from ledger.domain.span import Window

HOURS = 24
HOUR = timedelta(hours=1)
QUARTER = timedelta(minutes=15)
"""Zones are off UTC, and clocks are changed, by whole quarters of an hour."""
MILLI = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured in an hour of UTC: GPU-milliseconds of what counts, and of what they are
    part of; None where that is simply the time that GPUs had."""

    hour: datetime
    part_ms: int
    whole_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One hour of a wall clock on one day. whole_ms is more than nothing."""

    part_ms: int
    whole_ms: int

    @property
    def percent(self) -> int:
        """Return the part in whole per cents, rounded down."""
        return min(100, self.part_ms * 100 // self.whole_ms)


@dataclass(frozen=True, slots=True)
class Utilisation:
    """What an owner's GPUs were used for, in GPU-milliseconds.

    whole_ms: all the time that they had. listed_ms: of it, what was on offer: the rest counts as
    used by the owner, which is rather more than it was. leased_ms: granted, to others and to the
    owner.
    """

    whole_ms: int
    listed_ms: int
    leased_ms: int

    @property
    def before_ppm(self) -> int:
        """Return the share that was not on offer, as it is without a market."""
        return self._share(self._kept_ms)

    @property
    def after_ppm(self) -> int:
        """Return the share that was not on offer or was leased."""
        return self._share(self._kept_ms + self.leased_ms)

    @property
    def _kept_ms(self) -> int:
        return max(0, self.whole_ms - self.listed_ms)

    def _share(self, part_ms: int) -> int:
        return min(part_ms, self.whole_ms) * 1_000_000 // self.whole_ms if self.whole_ms else 0


def wall_hours(
    days: Iterable[date], zone: tzinfo, *, until: datetime
) -> dict[tuple[date, int], list[Window]]:
    """Return when each hour of these days' wall clock was, in UTC, as far as it has passed.

    An hour that comes twice has two spans, one that is left out or still to come has none.
    """
    spans: dict[tuple[date, int], list[Window]] = {}
    for day in days:
        whole = local_day(day, zone)
        at, end = whole.starts_at, min(whole.ends_at, until.astimezone(UTC))
        while at < end:
            to = min(at + QUARTER, end)
            wall = at.astimezone(zone)
            pieces = spans.setdefault((wall.date(), wall.hour), [])
            if pieces and pieces[-1].ends_at == at:
                pieces[-1] = Window(pieces[-1].starts_at, to)
            else:
                pieces.append(Window(at, to))
            at = to
    return spans


def heat(
    measured: Iterable[Measured],
    *,
    days: Sequence[date],
    zone: tzinfo,
    now: datetime,
    gpus: int | None = None,
) -> list[list[Cell | None]]:
    """Return for each day its hours of the wall clock; None where nothing can be said.

    What an hour of UTC measured is spread evenly over what has passed of it, and nothing of it is
    lost or counted twice.

    Args:
        gpus: how many there are, whose time is the whole; None: what was measured says it.
    """
    spans = wall_hours(days, zone, until=now)
    parts: dict[tuple[date, int], int] = defaultdict(int)
    wholes: dict[tuple[date, int], int] = defaultdict(int)
    by_start = sorted((window, key) for key, windows in spans.items() for window in windows)
    by_hour: dict[datetime, list[tuple[Window, tuple[date, int]]]] = defaultdict(list)
    for window, key in by_start:
        if gpus is not None:
            wholes[key] += gpus * (window.length // MILLI)
        hour = window.starts_at.replace(minute=0, second=0, microsecond=0)
        while hour < window.ends_at:
            by_hour[hour].append((window, key))
            hour += HOUR
    for each in measured:
        hour = each.hour.astimezone(UTC)
        passed = Window(hour, max(hour + MILLI, min(hour + HOUR, now.astimezone(UTC))))
        for window, key in by_hour.get(hour, ()):
            parts[key] += _share(each.part_ms, passed, window)
            if gpus is None and each.whole_ms is not None:
                wholes[key] += _share(each.whole_ms, passed, window)
    return [
        [
            Cell(parts[day, hour], wholes[day, hour]) if wholes[day, hour] > 0 else None
            for hour in range(HOURS)
        ]
        for day in days
    ]


def _share(amount: int, passed: Window, window: Window) -> int:
    """Return what of an amount, spread over `passed`, falls into `window`.

    As the difference of two sums from the start, so that adjoining windows lose nothing.
    """

    def until(moment: datetime) -> int:
        upto = min(max(moment, passed.starts_at), passed.ends_at)
        return amount * ((upto - passed.starts_at) // MILLI) // (passed.length // MILLI)

    return until(window.ends_at) - until(window.starts_at)


def whole_share_ppm(rows: Iterable[Sequence[Cell | None]]) -> int:
    """Return the part of all cells together, in parts per million."""
    cells = [cell for row in rows for cell in row if cell is not None]
    whole = sum(cell.whole_ms for cell in cells)
    return sum(cell.part_ms for cell in cells) * 1_000_000 // whole if whole else 0
