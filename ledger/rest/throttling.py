"""A bucket of requests per caller, kept in the database so that all web processes share it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from ledger.prepared import ask
from ledger.rest.problems import TooManyRequests

MICROS = 1_000_000
SECONDS_PER_MINUTE = 60

# One statement, one row: two requests at once cannot both take the last one. Answers no row
# where the bucket is empty. A clock that steps back fills nothing. Nobody waits for the disk: a
# server that breaks down may forget the last requests, and buckets are then fuller than they were.
_TAKE = """
INSERT INTO ledger_tokenbucket AS b (caller, micros, filled_at)
VALUES (%(caller)s, %(full)s - 1000000, %(now)s)
ON CONFLICT (caller) DO UPDATE SET
    micros = least(%(full)s, b.micros + greatest(0, %(gained)s)) - 1000000,
    filled_at = greatest(b.filled_at, %(now)s)
WHERE least(%(full)s, b.micros + greatest(0, %(gained)s)) >= 1000000
RETURNING micros,
    CASE WHEN %(alone)s THEN set_config('synchronous_commit', 'off', true) END
""".replace(
    "%(gained)s",
    "(extract(epoch FROM %(now)s - b.filled_at) * 1000000 * %(per_minute)s / 60)::bigint",
)


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a caller may still ask. reset_seconds: until the bucket is full again."""

    limit: int
    remaining: int
    reset_seconds: int

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
    full = per_minute * MICROS
    row = ask(
        _TAKE,
        {
            "caller": caller,
            "full": full,
            "now": now,
            "per_minute": per_minute,
            "alone": not connection.in_atomic_block,  # it holds for the whole transaction
        },
    )
    if row is None:
        wait_seconds = -(-SECONDS_PER_MINUTE // per_minute)
        raise TooManyRequests(retry_after_seconds=wait_seconds, per_minute=per_minute)
    micros = int(row[0])
    reset_seconds = -(-(full - micros) * SECONDS_PER_MINUTE // full)
    return Allowance(per_minute, micros // MICROS, reset_seconds)
