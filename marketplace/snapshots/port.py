"""What a snapshot is, and when it may be used.

A snapshot decides nothing and may vanish at any time: without one, or with one that is not to be
trusted, a book is folded from the first event. It is trusted only if the log still has what it was
made from: the last fact read, and the last decision of the market's stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from ledger.eventstore.port import START, EventStore, Position, Recorded
from marketplace.domain.book.book import READS
from marketplace.domain.book.snapshot import BookState

NEWEST = 2
"""Snapshots of a market that stay however old they are: one more in case that one is damaged."""
AGES_MAX = 12
"""Ages of which one snapshot stays besides: with one in 20,000 facts, the last forty million."""


@dataclass(slots=True)
class Tail:
    """The last fact that was read of a log, and the position of the one before it."""

    before: Position = START
    position: Position = START
    last_id: UUID | None = None

    def note(self, recorded: Recorded) -> None:
        """Take in the next fact."""
        self.before = self.position
        self.position, self.last_id = recorded.position, recorded.id

    def is_in(self, store: EventStore) -> bool:
        """Tell if the log still has that fact at that place."""
        if self.last_id is None:
            return True
        page = store.read_all(after=self.before, limit=1, only=READS)
        return [recorded.id for recorded in page.events] == [self.last_id]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A book with everything up to `tail`, and the market's stream up to `version`.

    next_position: where reading goes on. decision_id: of the event at `version`; None at 0.
    """

    state: BookState
    tail: Tail
    next_position: Position
    version: int
    decision_id: UUID | None

    def is_in(self, store: EventStore) -> bool:
        """Tell if the log still has what the snapshot was made from."""
        if not self.tail.is_in(store):
            return False
        if self.version == 0:
            return True
        stream = store.read_stream(f"market-{self.state.market}", after_version=self.version - 1)
        recorded = next(iter(stream), None)
        return recorded is not None and recorded.id == self.decision_id


class Snapshots(Protocol):
    """Where snapshots are kept."""

    def latest(self, market: str) -> Snapshot | None:
        """Return the newest that can be read; those of other rules or fields cannot."""
        ...

    def keep(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, all of it or nothing; older ones may be dropped."""
        ...

    def versions(self, market: str) -> list[int]:
        """Return the versions of the market's stream of which there are snapshots, rising."""
        ...

    def at(self, market: str, version: int) -> Snapshot | None:
        """Return the newest snapshot of a version, if it can be read."""
        ...


def thinned(positions: Sequence[int]) -> set[int]:
    """Return which of some snapshots stay: the newest, and ever fewer the older they are.

    Of those whose age in positions has the same number of binary digits the oldest stays, so that
    what is looked for in the past is never much further from one than it is from the present.
    """
    rising = sorted(positions, reverse=True)
    stay = set(rising[:NEWEST])
    oldest: dict[int, int] = {}
    for position in rising:
        oldest[(rising[0] - position).bit_length()] = position
    return stay | {oldest[digits] for digits in sorted(oldest)[:AGES_MAX]}


def usable(snapshots: Snapshots, store: EventStore, market: str) -> Snapshot | None:
    """Return the newest snapshot of a market if the log bears it out."""
    snapshot = snapshots.latest(market)
    return snapshot if snapshot is not None and snapshot.is_in(store) else None
