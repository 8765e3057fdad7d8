"""The store in memory, without what is over: months of a market would not fit otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import NewEvent, Position, Recorded

RECORDED_AT = datetime(2026, 1, 1, tzinfo=UTC)
KEPT = 8
"""Records of a stream that stay when it is shortened: a remembered fold rests on the last."""


SHORTENED_FROM = 64
"""Shorter streams are folded from their start, again and again."""


class Tail(list[Recorded]):
    """A list whose first records are forgotten: the others keep their places."""

    def __init__(self) -> None:
        super().__init__()
        self.forgotten = 0

    def __len__(self) -> int:
        return self.forgotten + super().__len__()

    def __bool__(self) -> bool:
        return len(self) > 0

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            assert place.stop is None and place.step is None
            since = place.start or 0
            assert since >= self.forgotten or not self.forgotten, "that is forgotten"
            return super().__getitem__(slice(since - self.forgotten, None))
        return super().__getitem__(place if place < 0 else place - self.forgotten)

    def __iter__(self) -> Iterator[Recorded]:
        return super().__iter__()

    def keep(self, count: int) -> list[Recorded]:
        """Forget all but the last records; return what is forgotten."""
        over = max(0, super().__len__() - count)
        gone = super().__getitem__(slice(0, over))
        del self[0:over]
        self.forgotten += over
        return gone


class ForgettingStore(MemoryStore):
    """A `MemoryStore` of which everybody reads the end only. `forget` is called by who knows."""

    def __init__(self) -> None:
        super().__init__()
        self._log: Tail = Tail()
        self._streams: dict[str, list[Recorded]] = _Streams()

    def _add(
        self, mine: list[Recorded], stream: str, new: NewEvent, data: bytes, meta: bytes
    ) -> None:
        """Add a record without a hash, and with its event at hand: nobody reads these bytes."""
        position, version = Position(len(self._log) + 1), len(mine) + 1
        recorded = Recorded(
            position=position,
            stream=stream,
            version=version,
            id=new.id,
            type=new.event.name,
            schema_version=new.event.schema_version,
            data=data,
            meta_data=meta,
            recorded_at=RECORDED_AT,
            hash=None,
        )
        recorded.__dict__["event"] = new.event
        self._log.append(recorded)
        mine.append(recorded)
        self._by_id[new.id] = recorded

    def shorten(self, stream: str) -> None:
        """Forget all of a long stream but its end."""
        known = self._streams.get(stream)
        if isinstance(known, Tail) and len(known) > SHORTENED_FROM:
            for recorded in known.keep(KEPT):
                self._by_id.pop(recorded.id, None)

    def drop(self, stream: str) -> None:
        """Forget a stream of which nothing is asked any more."""
        for recorded in self._streams.pop(stream, ()):
            self._by_id.pop(recorded.id, None)

    def forget_log(self) -> None:
        """Forget the order of what all have read; streams stay."""
        self._log.keep(1)

    def read_stream(self, stream: str, *, after_version: int = 0) -> Iterator[Recorded]:
        """Yield a stream's events in version order."""
        known = self._streams.get(stream)
        return iter(()) if known is None else iter(known[after_version:])

    def head(self) -> Position:
        """Return the last position."""
        return Position(len(self._log))


class _Streams(dict[str, list[Recorded]]):
    def setdefault(self, key: str, default: Any = None) -> Any:
        known = self.get(key)
        if known is None:
            known = self[key] = Tail()
        return known
