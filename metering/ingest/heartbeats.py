"""Heartbeats of leased work: kept as spans, whoever passed them on, however often."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection

from ledger.domain.ids import LeaseId
from ledger.domain.refusal import Invalid
from metering.domain.instants import millis_down
from metering.domain.rollup import Span

DAY_MS = 86_400_000
SPANS_MAX = 1_000
SPANS_OF_A_DAY_MAX = 3_000
"""Of work that beats once and then not, again and again: more are not kept."""
COVERS_MS_MAX = 3_600_000
"""A heartbeat says at most that the work is alive for the hour to come."""

_ADD = """
INSERT INTO metering_heartbeat AS known (lease_id, source, day, spans)
VALUES (%s, %s, %s, %s::int8multirange)
ON CONFLICT (lease_id, source, day) DO UPDATE SET spans = known.spans + EXCLUDED.spans
    WHERE (SELECT count(*) FROM unnest(known.spans)) < %s
"""
_FORGET = "DELETE FROM metering_heartbeat WHERE day < %s"


class HeartbeatUnreadable(Invalid):
    """A heartbeat is a span of time that ends after it begins, and at most an hour from now."""


def take_heartbeats(
    lease_id: LeaseId, source: UUID, spans: Iterable[Span], *, starts_ms: int, now: datetime
) -> None:
    """Keep for which spans the work of a lease said that it was alive.

    starts_ms: of the lease; what is before that is left out.
    Raises: HeartbeatUnreadable.
    """
    latest_ms = millis_down(now) + COVERS_MS_MAX
    found: dict[int, list[Span]] = {}
    for start, end in spans:
        if start >= end or start > latest_ms:
            raise HeartbeatUnreadable(from_ms=start, until_ms=end)
        at, end = max(start, starts_ms), min(end, latest_ms)
        while at < end:
            day = at // DAY_MS
            until = min(end, (day + 1) * DAY_MS)
            found.setdefault(day, []).append((at, until))
            at = until
    with connection.cursor() as cursor:
        for day, parts in sorted(found.items()):
            said = ",".join(f"[{start},{end})" for start, end in parts)
            cursor.execute(_ADD, [lease_id, source, day, f"{{{said}}}", SPANS_OF_A_DAY_MAX])


def forget_heartbeats(*, now: datetime, kept: timedelta) -> int:
    """Let go of what is older than samples are; return how many rows."""
    with connection.cursor() as cursor:
        cursor.execute(_FORGET, [millis_down(now - kept) // DAY_MS])
        return int(cursor.rowcount)
