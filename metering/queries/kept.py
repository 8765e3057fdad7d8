"""From when on samples are kept one by one."""

from __future__ import annotations

from django.db import connection

_FIRST = "SELECT min(from_ms), bool_or(from_ms IS NULL AND to_ms IS NOT NULL)"


def kept_from_ms() -> int | None:
    """Return when the oldest part of the table of samples begins; None: nothing was dropped."""
    with connection.cursor() as cursor:
        cursor.execute(f"{_FIRST} FROM metering_interval_parts()")
        row = cursor.fetchone()
    return None if row is None or row[1] else row[0]
