"""A copy of a log in memory that goes on differently: what a run of the lab writes to."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from marketplace.domain.facts.events import BidPlaced
from marketplace.domain.facts.instants import EPOCH


class Replica(MemoryStore):
    """Starts with records as they are, positions and versions kept; what is new comes after them.

    Nothing is encoded or chained: it is folded and thrown away.

    Args:
        after: the position after which it starts.
        versions: of streams at that position, of which it has no more than what came then.
        behind: what the bid's stream held at that position; asked when one is read of which it
            has not the beginning.
    """

    def __init__(
        self,
        history: Iterable[Recorded],
        *,
        after: Position = START,
        versions: Mapping[str, int] | None = None,
        behind: Callable[[str], Sequence[Recorded]] | None = None,
    ) -> None:
        super().__init__()
        self._after, self._versions, self._behind = after, dict(versions or {}), behind
        self._positions: list[int] = []
        self._whole: set[str] = set()
        self.now = EPOCH
        for recorded in history:
            self._keep(recorded)

    def _keep(self, recorded: Recorded) -> None:
        self._log.append(recorded)
        self._positions.append(recorded.position)
        self._streams.setdefault(recorded.stream, []).append(recorded)

    def put(self, stream: str, event: Event) -> None:
        """Record a fact, whatever the stream's version."""
        recorded = Recorded(
            position=Position(self.head() + 1),
            stream=stream,
            version=self._version(stream) + 1,
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
        self._complete(stream)
        version = self._version(stream)
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
        return Position(self._positions[-1] if self._positions else self._after)

    def read_stream(self, stream: str, *, after_version: int = 0) -> Iterator[Recorded]:
        """Yield a stream's events in version order."""
        self._complete(stream)
        mine, before = self._streams.get(stream, []), self._versions.get(stream, 0)
        return iter(mine[max(0, after_version - before) :])

    def _version(self, stream: str) -> int:
        mine = self._streams.get(stream)
        return mine[-1].version if mine else self._versions.get(stream, 0)

    def _complete(self, stream: str) -> None:
        """Put what a stream held before this one starts in front of what it has of it."""
        if self._behind is None or stream in self._whole or stream in self._versions:
            return
        self._whole.add(stream)
        mine = self._streams.get(stream, [])
        if mine and isinstance(mine[0].event, BidPlaced):
            return
        if earlier := self._behind(stream):
            self._streams[stream] = [*earlier, *mine]

    @property
    def records(self) -> Sequence[Recorded]:
        """Return everything in it, in order."""
        return self._log
