"""Whole milliseconds since the epoch, in which use is counted, and the instants they stand for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLI = timedelta(milliseconds=1)


def millis_down(moment: datetime) -> int:
    """Return the last whole millisecond not after `moment`."""
    return (moment - EPOCH) // MILLI


def millis_up(moment: datetime) -> int:
    """Return the first whole millisecond not before `moment`."""
    return -((EPOCH - moment) // MILLI)


def instant_of(millis: int) -> datetime:
    """Return the instant of a whole millisecond."""
    return EPOCH + millis * MILLI
