"""A bucket of requests per caller, kept in the database so that all web processes share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db import connection

from ledger.prepared import ask_for_all
from ledger.rest.problems import TooManyRequests

MICROS = 1_000_000
SECONDS_PER_MINUTE = 60
CLOCKS_APART_MAX = timedelta(seconds=10)
"""What clocks of several web processes may differ by."""

# One statement: two requests at once cannot both take the last one. Answers no row where a bucket
# holds too little. A clock that steps back fills nothing; what a clock far ahead has left there
# does not count, or everybody would wait until that time has come. Nobody waits for the disk: a
# server that breaks down may forget the last requests, and buckets are then fuller than they were.
_TAKE = """
INSERT INTO ledger_tokenbucket AS b (caller, micros, filled_at)
SELECT w.caller, %(full)s - 1000000 * w.wanted, %(now)s
  FROM unnest(%(callers)s::text[], %(wanted)s::bigint[]) AS w (caller, wanted)
 WHERE 1000000 * w.wanted <= %(full)s ORDER BY w.caller
ON CONFLICT (caller) DO UPDATE SET
    micros = least(%(full)s, b.micros + greatest(0, %(gained)s)) - (%(full)s - EXCLUDED.micros),
    filled_at = CASE WHEN b.filled_at > %(now)s::timestamptz + %(apart)s THEN %(now)s
        ELSE greatest(b.filled_at, %(now)s) END
WHERE least(%(full)s, b.micros + greatest(0, %(gained)s)) >= %(full)s - EXCLUDED.micros
RETURNING caller, micros,
    CASE WHEN %(alone)s THEN set_config('synchronous_commit', 'off', true) END
""".replace(
    "%(gained)s",
    "CASE WHEN b.filled_at > %(now)s::timestamptz + %(apart)s THEN %(full)s"
    " ELSE (extract(epoch FROM %(now)s - b.filled_at) * 1000000 * %(per_minute)s / 60)::bigint END",
)


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a caller may still ask. reset_seconds: until the bucket is full again."""

    limit: int
    remaining: int
    reset_seconds: int

    def before(self, later: int) -> Allowance:
        """Return what it was before so many more were taken."""
        return replace(self, remaining=self.remaining + later)

    def headers(self) -> dict[str, str]:
        """Return the RateLimit headers."""
        return {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(self.reset_seconds),
        }


def take(caller: str, *, per_minute: int, now: datetime) -> Allowance:
    """Take one request out of a caller's bucket, which holds a minute's worth.

    Raises: TooManyRequests, with `retry_after_seconds`.
    """
    taken = take_each({caller: 1}, per_minute=per_minute, now=now)
    if caller not in taken:
        wait_seconds = -(-SECONDS_PER_MINUTE // per_minute)
        raise TooManyRequests(retry_after_seconds=wait_seconds, per_minute=per_minute)
    return taken[caller]


def take_each(wanted: Mapping[str, int], *, per_minute: int, now: datetime) -> dict[str, Allowance]:
    """Take so many requests out of each caller's bucket, all of a caller's or none.

    Returns: what is left in the buckets that had enough.
    """
    full = per_minute * MICROS
    rows = ask_for_all(
        _TAKE,
        {
            "callers": list(wanted),
            "wanted": list(wanted.values()),
            "full": full,
            "now": now,
            "per_minute": per_minute,
            "apart": CLOCKS_APART_MAX,
            "alone": not connection.in_atomic_block,  # it holds for the whole transaction
        },
    )
    return {caller: _allowance(int(micros), full, per_minute) for caller, micros, _ in rows}


def _allowance(micros: int, full: int, per_minute: int) -> Allowance:
    reset_seconds = -(-(full - micros) * SECONDS_PER_MINUTE // full)
    return Allowance(per_minute, micros // MICROS, reset_seconds)
