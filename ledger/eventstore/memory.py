"""A store in a list: for rules, the simulator and tests. Not for keeps."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from uuid import UUID

from ledger.eventstore import chain, codec
from ledger.eventstore.port import (
    EVENT_BYTES_MAX,
    NAMES,
    START,
    Appended,
    CaughtUp,
    ChainReport,
    EventIdConflict,
    EventTooLarge,
    Expect,
    Meta,
    NewEvent,
    Page,
    Position,
    Recorded,
    StreamMoved,
    Write,
)
from ledger.eventstore.singly import one_by_one, read_one_by_one


class MemoryStore:
    """Safe for threads; gone with the process."""

    shares_django_transaction = False
    appends_whole = True
    finds = True

    def __init__(self) -> None:
        self._log: list[Recorded] = []
        self._streams: dict[str, list[Recorded]] = {}
        self._by_id: dict[UUID, Recorded] = {}
        self._named: dict[tuple[str, UUID], list[Recorded]] = {}
        self._changed = threading.Condition(threading.RLock())

    def append(
        self, stream: str, events: Sequence[NewEvent], *, expected: int | Expect, by: Meta
    ) -> Appended:
        """Append all of `events` or none."""
        meta = codec.encode(by)
        encoded = [codec.encode(new.event) for new in events]
        if any(len(data) > EVENT_BYTES_MAX for data in encoded):
            raise EventTooLarge(stream)
        if len({new.id for new in events}) < len(events):
            raise EventIdConflict(stream)
        with self._changed:
            known = [self._by_id.get(new.id) for new in events]
            if any(known):
                return _same_again(stream, known)
            mine = self._streams.setdefault(stream, [])
            if expected is not Expect.ANY and len(mine) != expected:
                raise StreamMoved(stream, expected, len(mine))
            for new, data in zip(events, encoded, strict=True):
                self._add(mine, stream, new, data, meta)
            self._changed.notify_all()
            return Appended(len(mine), Position(len(self._log)))

    def append_each(self, writes: Sequence[Write]) -> list[Appended]:
        """Append to several streams, in order, up to the first that fails."""
        return one_by_one(self, writes)

    def append_whole(self, writes: Sequence[Write]) -> list[Appended]:
        """Append to several streams, all or none."""
        with self._changed:
            versions: dict[str, int] = {}
            for write in writes:
                if write.events and all(new.id in self._by_id for new in write.events):
                    continue
                at = versions.get(write.stream, len(self._streams.get(write.stream, ())))
                if at != write.expected:
                    raise StreamMoved(write.stream, write.expected, at)
                versions[write.stream] = at + len(write.events)
            return one_by_one(self, writes)

    def _add(
        self, mine: list[Recorded], stream: str, new: NewEvent, data: bytes, meta: bytes
    ) -> None:
        position, version = Position(len(self._log) + 1), len(mine) + 1
        previous = self._log[-1].hash if self._log else None
        digest = chain.link(
            previous or chain.GENESIS,
            position=position,
            stream=stream,
            version=version,
            event_id=new.id,
            type_name=new.event.name,
            schema_version=new.event.schema_version,
            meta=meta,
            data=data,
        )
        recorded = Recorded(
            position=position,
            stream=stream,
            version=version,
            id=new.id,
            type=new.event.name,
            schema_version=new.event.schema_version,
            data=data,
            meta_data=meta,
            recorded_at=datetime.now(UTC),
            hash=digest,
        )
        self._log.append(recorded)
        mine.append(recorded)
        self._by_id[new.id] = recorded
        for name in {getattr(new.event, field, None) for field in NAMES}:
            if name is not None:
                self._named.setdefault((stream, name), []).append(recorded)

    def read_stream(self, stream: str, *, after_version: int = 0) -> Iterator[Recorded]:
        """Yield a stream's events in version order."""
        return iter(self._streams.get(stream, [])[after_version:])

    def alone(self) -> AbstractContextManager[None]:
        """Let nobody else append, where the store can do that."""
        return nullcontext()

    def in_line(self, streams: Collection[str], /) -> AbstractContextManager[None]:
        """Wait for a turn on streams, where the store can do that."""
        return nullcontext()

    def read_streams(
        self, asked: Sequence[tuple[str, int]], *, first: int | None = None
    ) -> dict[str, list[Recorded]]:
        """Return the events of several streams after a version of each."""
        return read_one_by_one(self, asked, first)

    def read_last(self, streams: Sequence[str]) -> dict[str, Recorded]:
        """Return the last event of each of these streams."""
        return {stream: self._streams[stream][-1] for stream in streams if stream in self._streams}

    def find_event(self, stream: str, event_id: UUID) -> Recorded | None:
        """Return the event of a stream that has this id."""
        found = self._by_id.get(event_id)
        return found if found is not None and found.stream == stream else None

    def find_named(self, stream: str, name: UUID, *, up_to_version: int) -> list[Recorded]:
        """Return the events of a stream that carry an id."""
        found = self._named.get((stream, name), ())
        return [each for each in found if each.version <= up_to_version]

    def read_all(
        self, *, after: Position = START, limit: int = 1000, only: frozenset[str] | None = None
    ) -> Page:
        """Return up to `limit` events after a position."""
        found: list[Recorded] = []
        position, end = int(after), len(self._log)
        while position < end and len(found) < limit:
            recorded = self._log[position]
            position += 1
            if only is None or recorded.type in only:
                found.append(recorded)
        return Page(found, Position(position), caught_up=position == end)

    def subscribe(
        self,
        *,
        after: Position = START,
        only: frozenset[str] | None = None,
        stop: threading.Event,
        idle_seconds: float = 1.0,
    ) -> Iterator[Recorded | CaughtUp]:
        """Yield events as they come."""
        position = after
        while not stop.is_set():
            page = self.read_all(after=position, only=only)
            position = page.next_position
            yield from page.events
            if page.caught_up:
                yield CaughtUp(position)
                with self._changed:
                    if len(self._log) == position and not stop.is_set():
                        self._changed.wait(idle_seconds)

    def head(self) -> Position:
        """Return the last position."""
        return Position(len(self._log))

    def verify(self) -> ChainReport:
        """Check the hash chain."""
        return check(iter(self._log))

    def ping(self) -> None:
        """Always there."""


def check(log: Iterator[Recorded]) -> ChainReport:
    """Walk a store's records in position order and recompute each hash."""
    previous, checked, head = chain.GENESIS, 0, START
    for recorded in log:
        digest = chain.link(
            previous,
            position=recorded.position,
            stream=recorded.stream,
            version=recorded.version,
            event_id=recorded.id,
            type_name=recorded.type,
            schema_version=recorded.schema_version,
            meta=recorded.meta_data,
            data=recorded.data,
        )
        if digest != recorded.hash:
            return ChainReport(checked, head, recorded.position, "the hash does not follow")
        previous, checked, head = digest, checked + 1, recorded.position
    return ChainReport(checked, head)


def _same_again(stream: str, known: Sequence[Recorded | None]) -> Appended:
    """Return the first outcome if `known` is one earlier append, whole and in order."""
    first = known[0]
    for index, recorded in enumerate(known):
        if (
            first is None
            or recorded is None
            or recorded.stream != stream
            or recorded.version != first.version + index
        ):
            raise EventIdConflict(stream)
    last = known[-1]
    assert last is not None
    return Appended(last.version, last.position, deduplicated=True)
