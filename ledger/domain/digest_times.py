"""When a person gets what was gathered for them in a day: at an hour of theirs, in their zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ledger.domain.refusal import Invalid

HOUR_USUAL = 8
HOURS_OF_DAY = 24


class DigestTimeUnclear(Invalid):
    """A daily mail comes at a whole hour from 0 to 23, in a zone such as Europe/Berlin."""


def check_digest_time(hour: int, zone: str) -> None:
    """Refuse an hour that no day has, or a zone that nobody knows.

    Raises: DigestTimeUnclear.
    """
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as unknown:
        raise DigestTimeUnclear(zone=zone[:60]) from unknown
    if not 0 <= hour < HOURS_OF_DAY:
        raise DigestTimeUnclear(hour=hour)


def next_digest(now: datetime, *, hour: int, zone: str) -> datetime:
    """Return the next moment after `now` at which it is that hour there; in UTC.

    An hour that a clock change skips comes an hour later, one that it repeats at its first time.
    """
    local = now.astimezone(ZoneInfo(zone))
    for days in (0, 1, 2):
        day = local.date() + timedelta(days=days)
        at = datetime(day.year, day.month, day.day, hour, tzinfo=local.tzinfo).astimezone(UTC)
        if at > now:
            return at
    raise AssertionError("a day has every hour, or the next one has")
