"""Where the followers of one loop stand: read once, then known, since it alone moves them.

Whoever holds a loop is the only one that moves its followers, so where they stand need not be asked
for in each pass. Should somebody else move one all the same (a rebuild, a process that held the
loop and came back), the next move finds it elsewhere, moves nothing, and all places are read anew.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Generic, Protocol, TypeVar

from ledger.domain.redaction import redact
from ledger.eventstore.port import START, Position
from ledger.models import Checkpoint
from ledger.prepared import ask_for_all

RETRY_AFTER = timedelta(seconds=5)
READ_AGAIN_SECONDS = 5.0
"""How long what is known is believed without a move that proves it."""
ERROR_CHARS_MAX = 2_000

# Locked in the order of their names, as everybody does. Nobody waits for the disk: what a server
# that breaks down has forgotten is done again.
_MOVE = """
WITH held AS (
    SELECT name FROM ledger_checkpoint
     WHERE name = ANY(%s) AND position = %s ORDER BY name FOR UPDATE
)
UPDATE ledger_checkpoint c SET position = %s, moved_at = %s, error = '' FROM held
 WHERE c.name = held.name
RETURNING c.name, set_config('synchronous_commit', 'off', true)
"""


class Follower(Protocol):
    """Whoever is told events: a projection or a policy."""

    @property
    def name(self) -> str:
        """Return the name of its checkpoint."""
        ...


FollowerT = TypeVar("FollowerT", bound=Follower)


def move(names: Sequence[str], start: Position, end: Position) -> int:
    """Move those that stand at `start`, with what commits beside; return how many did."""
    return len(ask_for_all(_MOVE, (list(names), start, end, datetime.now(UTC))))


class Places(Generic[FollowerT]):
    """Where each of some followers stands. Not for threads: one loop has one of these."""

    def __init__(self, followers: Sequence[FollowerT]) -> None:
        """Begin without knowing."""
        self._followers = {follower.name: follower for follower in followers}
        self._stand: dict[str, Position] = {}
        self._read_at: float | None = None

    def groups(self) -> list[tuple[Position, list[FollowerT]]]:
        """Group followers by where they stand; leave out those that stopped a moment ago."""
        if self._read_at is None or time.monotonic() - self._read_at > READ_AGAIN_SECONDS:
            self._read()
        found: dict[Position, list[FollowerT]] = {}
        for name, position in self._stand.items():
            found.setdefault(position, []).append(self._followers[name])
        return list(found.items())

    def moved(self, names: Sequence[str], end: Position) -> None:
        """Note where followers stand now."""
        self._stand.update(dict.fromkeys(names, end))

    def forget(self) -> None:
        """Believe nothing: ask before the next pass."""
        self._read_at = None

    def _read(self) -> None:
        known = {each.name: each for each in Checkpoint.objects.filter(name__in=self._followers)}
        missing = [Checkpoint(name=name) for name in self._followers if name not in known]
        if missing:
            Checkpoint.objects.bulk_create(missing, ignore_conflicts=True)
        retry_before = datetime.now(UTC) - RETRY_AFTER
        self._stand = {}
        for name in self._followers:
            row = known.get(name)
            if row and row.error and (row.moved_at or retry_before) > retry_before:
                continue
            self._stand[name] = Position(row.position if row else START)
        self._read_at = time.monotonic()


def note_stop(name: str, failure: Exception) -> None:
    """Note why a follower stopped where it stands."""
    Checkpoint.objects.filter(name=name).update(
        error=redact(f"{type(failure).__name__}: {failure}")[:ERROR_CHARS_MAX],
        moved_at=datetime.now(UTC),
    )
