"""Days and hours of a wall clock as spans of time: a day may last 23, 24 or 25 hours."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo

from ledger.domain.span import Window

ONE_DAY = timedelta(days=1)


def local_day(day: date, zone: tzinfo) -> Window:
    """Return a day of a zone, from its first instant to that of the next.

    Where a change of the clock skips midnight, the day begins when the clock is changed.

    Raises: OverflowError, for a day that the calendar has no next one of.
    """
    return Window(_first_instant(day, zone), _first_instant(day + ONE_DAY, zone))


def _first_instant(day: date, zone: tzinfo) -> datetime:
    # Of a midnight that comes twice the first one counts; one that is skipped is read with the
    # offset from before the change, which gives the instant of the change or one behind it.
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
    return midnight.astimezone(UTC)
