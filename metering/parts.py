"""The parts of the table of intervals: one for each day, made ahead, dropped when they are old.

Everything that makes or drops one is a function in the database that looks itself whether it may
(migration 0008), so that who serves needs to own nothing, and no mistake here drops what is still
needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
import structlog
from django.db import OperationalError, connection, transaction

from metering.domain.instants import instant_of, millis_down
from metering.models import OldPart

DAY_MS = 86_400_000
DAYS_AHEAD = 7
DUE_FOR = timedelta(days=1)
"""So long a part stays that is to be dropped, in case that the clock was wrong."""
_TIDY_REST = """
DELETE FROM metering_interval_other AS old WHERE end_ms < %s
    AND NOT EXISTS (SELECT FROM metering_lateuse late WHERE late.lease_id = old.lease_id)
    AND NOT EXISTS (SELECT FROM metering_meterrow meter WHERE meter.lease_id = old.lease_id
        AND meter.state <> 'closed' AND meter.closed_through_ms < old.end_ms)
"""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Part:
    """One part. from_ms: None: of all before to_ms; to_ms: None: of what fits no other part."""

    name: str
    from_ms: int | None
    to_ms: int | None


def parts() -> list[Part]:
    """Return the parts that there are, in order of time; the one for the rest is last."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, from_ms, to_ms FROM metering_interval_parts()")
        found = [Part(*row) for row in cursor.fetchall()]
    return sorted(found, key=lambda part: (part.to_ms is None, part.to_ms or 0))


def see_to_parts(*, now: datetime, kept: timedelta) -> int:
    """Make the parts of the next days, and drop those that were kept for long enough.

    What another holds is left for the next pass: nobody who sends samples waits for long.

    kept: after its end.
    Returns: how many were made and dropped.
    """
    return _make_ahead(now) + _drop_old(now, millis_down(now - kept))


def days_without_part(*, now: datetime, ahead: int = 2) -> list[datetime]:
    """Return which of today and the next days have no part, so that their samples are put aside."""
    known = parts()
    first = millis_down(now) // DAY_MS * DAY_MS
    days = range(first, first + (ahead + 1) * DAY_MS, DAY_MS)
    return [instant_of(day) for day in days if not _has(known, day)]


def _make_ahead(now: datetime) -> int:
    known = parts()
    first = millis_down(now) // DAY_MS * DAY_MS
    made = 0
    # From yesterday on: who comes back from an outage over midnight finds both days.
    for day in range(first - DAY_MS, first + (DAYS_AHEAD + 1) * DAY_MS, DAY_MS):
        if _has(known, day):
            continue
        with _patient("samples.part-not-made", day=instant_of(day).date().isoformat()) as cursor:
            cursor.execute("SELECT metering_make_part(%s)", [day])
            made += bool(cursor.fetchone()[0])
    return made


def _drop_old(now: datetime, before_ms: int) -> int:
    old = [part.name for part in parts() if part.to_ms is not None and part.to_ms <= before_ms]
    OldPart.objects.exclude(name__in=old).delete()
    OldPart.objects.filter(since__gt=now).delete()  # noted by a clock that was ahead
    OldPart.objects.bulk_create(
        [OldPart(name=name, since=now) for name in old], ignore_conflicts=True
    )
    due = OldPart.objects.filter(since__lte=now - DUE_FOR).order_by("name")
    dropped = 0
    for name in due.values_list("name", flat=True):
        with _patient("samples.part-not-dropped", part=name) as cursor:
            cursor.execute("SELECT metering_drop_part(%s)", [name])
            said = cursor.fetchone()[0]
            if said:
                log.warning("samples.part-kept", part=name, why=said)
                continue
            log.info("samples.part-dropped", part=name)
            dropped += 1
    with connection.cursor() as cursor:
        cursor.execute(_TIDY_REST, [before_ms])
    return dropped


@contextmanager
def _patient(event: str, **told: str) -> Iterator[Any]:
    """Give a cursor; what is held by others for too long is told, and left for the next pass."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            yield cursor
    except OperationalError as failure:
        if not isinstance(failure.__cause__, psycopg.errors.LockNotAvailable):
            raise
        log.warning(event, **told)


def _has(known: list[Part], day_ms: int) -> bool:
    return any(
        part.to_ms is not None and part.to_ms > day_ms and (part.from_ms or day_ms) <= day_ms
        for part in known
    )
