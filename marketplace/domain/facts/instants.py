"""Instants as whole milliseconds since 1970 (UTC): what the book counts in.

Comparing and sorting integers is several times cheaper than aware datetimes, and the book does
little else. Rounding always goes to the side that gives less capacity, so it never overlaps.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NewType

Millis = NewType("Millis", int)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ONE_MILLI, ONE_SECOND = timedelta(milliseconds=1), timedelta(seconds=1)
SECOND = 1_000


def from_below(moment: datetime) -> Millis:
    """Return the last whole millisecond not after `moment`: for ends of capacity."""
    return Millis((moment - EPOCH) // ONE_MILLI)


def from_above(moment: datetime) -> Millis:
    """Return the first whole millisecond not before `moment`: for starts of capacity."""
    return Millis(-((EPOCH - moment) // ONE_MILLI))


def whole_second(millis: int) -> Millis:
    """Return the first whole second not before `millis`: leases start on one where they can."""
    return Millis(-(-millis // SECOND) * SECOND)


@lru_cache(maxsize=4_096)
def moment(millis: int) -> datetime:
    """Return the instant. Kept: most leases begin and end with others."""
    return EPOCH + millis * ONE_MILLI
