"""A copy of a log in memory that goes on differently: what a run of the lab writes to."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from uuid import uuid4

from ledger.domain.event import Event
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import (
    START,
    Appended,
    Expect,
    Meta,
    NewEvent,
    Page,
    Position,
    Recorded,
    StreamMoved,
)
from marketplace.domain.moments import EPOCH


class Replica(MemoryStore):
    """Starts with records as they are, positions and versions kept; what is new comes after them.

    Nothing is encoded or chained: it is folded and thrown away.
    """

    def __init__(self, history: Iterable[Recorded]) -> None:
        super().__init__()
        self._positions: list[int] = []
        self.now = EPOCH
        for recorded in history:
            self._keep(recorded)

    def _keep(self, recorded: Recorded) -> None:
        self._log.append(recorded)
        self._positions.append(recorded.position)
        self._streams.setdefault(recorded.stream, []).append(recorded)

    def put(self, stream: str, event: Event) -> None:
        """Record a fact, whatever the stream's version."""
        mine = self._streams.get(stream)
        recorded = Recorded(
            position=Position(self.head() + 1),
            stream=stream,
            version=mine[-1].version + 1 if mine else 1,
            id=uuid4(),
            type=event.name,
            schema_version=event.schema_version,
            data=b"",
            meta_data=b"",
            recorded_at=self.now,
        )
        recorded.__dict__["event"] = event
        self._keep(recorded)

    def append(
        self, stream: str, events: Sequence[NewEvent], *, expected: int | Expect, by: Meta
    ) -> Appended:
        """Append all of `events` or none."""
        mine = self._streams.get(stream)
        version = mine[-1].version if mine else 0
        if expected is not Expect.ANY and version != expected:
            raise StreamMoved(stream, expected, version)
        for new in events:
            self.put(stream, new.event)
        return Appended(version + len(events), self.head())

    def read_all(
        self, *, after: Position = START, limit: int = 1000, only: frozenset[str] | None = None
    ) -> Page:
        """Return up to `limit` events after a position."""
        found: list[Recorded] = []
        index, end = bisect_right(self._positions, after), len(self._log)
        while index < end and len(found) < limit:
            recorded = self._log[index]
            index += 1
            if only is None or recorded.type in only:
                found.append(recorded)
        last = Position(self._positions[index - 1]) if index else START
        return Page(found, max(after, last), caught_up=index == end)

    def head(self) -> Position:
        """Return the last position."""
        return Position(self._positions[-1] if self._positions else 0)

    @property
    def records(self) -> Sequence[Recorded]:
        """Return everything in it, in order."""
        return self._log
