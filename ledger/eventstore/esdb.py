"""A store in EventStoreDB or KurrentDB, through the client library `esdbclient`.

What the server does not promise is done here. It recognises a repeated append only at the slots
where the writer expects it, so event ids are checked against the end of the stream before
anything is sent. It keeps no hash chain, so each event's metadata carries one per stream. Its
numbers start from 0 and ours from 1, so version 1 is its revision 0; a position is its commit
position.

The server may be shared, but not the database: an event that we did not write stops a reader.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from uuid import UUID
from weakref import WeakSet

from esdbclient import EventStoreDBClient, StreamState
from esdbclient import NewEvent as Proposed
from esdbclient import RecordedEvent as Read
from esdbclient.exceptions import (
    AccessDeniedError,
    BadRequestError,
    EventStoreDBClientException,
    FailedPrecondition,
    InvalidTransactionError,
    MaximumAppendSizeExceededError,
    NotFound,
    StreamIsDeleted,
    WrongCurrentVersion,
)

from ledger.eventstore import codec
from ledger.eventstore.esdb_bell import Bell
from ledger.eventstore.esdb_records import Chained, chained, opened, type_pattern, walk
from ledger.eventstore.esdb_tails import IDS_KEPT, End, Tails
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
    OutcomeUnknown,
    Page,
    Position,
    Recorded,
    StoreError,
    StoreUnavailable,
    StreamMoved,
    Write,
)
from ledger.eventstore.singly import one_by_one, read_one_by_one

APPEND_SECONDS = 5.0
READ_SECONDS = 30.0
STREAM_PAGE = 500
VERIFY_PAGE = 2_000
ANY_ATTEMPTS_MAX = 64

_FOR_GOOD = (
    AccessDeniedError,
    BadRequestError,
    FailedPrecondition,
    InvalidTransactionError,
    StreamIsDeleted,
)
"""What the client raises when trying again would not help."""


class EsdbStore:
    """Safe for threads, and for processes that fork after making it and before using it.

    Connections are made when first needed, one for each thread: when a call meets a lost
    connection the client replaces it, and a page that another thread was reading on the old
    one would end early, looking complete.
    """

    shares_django_transaction = False
    appends_whole = False
    finds = False

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._process = _Process(uri)

    def append(
        self, stream: str, events: Sequence[NewEvent], *, expected: int | Expect, by: Meta
    ) -> Appended:
        """Append all of `events` or none.

        Repeats are recognised among the last `IDS_KEPT` events of the stream.
        """
        meta = codec.encode(by)
        data = [codec.encode(new.event) for new in events]
        if any(len(each) > EVENT_BYTES_MAX for each in data):
            raise EventTooLarge(stream)
        ids = [new.id for new in events]
        if len(set(ids)) < len(ids):
            raise EventIdConflict(stream)
        # Who appends nothing wants to know where the stream is, not where it was.
        end = self._end_of(stream, expected) if events else self._look_at(stream)
        for _attempt in range(ANY_ATTEMPTS_MAX):
            again = self._tails.again(stream, ids)
            if again is not None:
                return again
            if expected is not Expect.ANY and expected != end.version:
                raise StreamMoved(stream, expected, end.version)
            if not events:
                return Appended(end.version, self.head())
            try:
                return self._send(stream, end, chained(stream, end, events, data, meta))
            except WrongCurrentVersion:
                end = self._look_at(stream)
        raise StreamMoved(stream, expected, end.version)

    def append_each(self, writes: Sequence[Write]) -> list[Appended]:
        """Append to several streams, in order, up to the first that fails."""
        return one_by_one(self, writes)

    def append_whole(self, writes: Sequence[Write]) -> list[Appended]:
        """Append to several streams, in order: there is no append to several at once."""
        return one_by_one(self, writes)

    def read_stream(self, stream: str, *, after_version: int = 0) -> Iterator[Recorded]:
        """Yield a stream's events in version order."""
        version = after_version
        while True:
            page = self._stream_page(stream, after_version=version)
            self._tails.learn(stream, page)
            yield from page
            if len(page) < STREAM_PAGE:
                return
            version = page[-1].version

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
        ends = ((stream, self._stream_page(stream, newest=True, limit=1)) for stream in streams)
        return {stream: page[0] for stream, page in ends if page}

    def find_event(self, stream: str, event_id: UUID) -> Recorded | None:
        """Return the event of a stream that has this id: the server has no index of them."""
        return next((each for each in self.read_stream(stream) if each.id == event_id), None)

    def find_named(self, stream: str, name: UUID, *, up_to_version: int) -> list[Recorded]:
        """Return the events of a stream that carry an id: the server has no index of them."""
        return [
            each
            for each in islice(self.read_stream(stream), up_to_version)
            if any(getattr(each.event, field, None) == name for field in NAMES)
        ]

    def read_all(
        self, *, after: Position = START, limit: int = 1000, only: frozenset[str] | None = None
    ) -> Page:
        """Return up to `limit` events after a position."""
        # Asked for first: a page that is not full has then passed over all there was by now.
        end = self.head()
        found = [opened(read) for read in self._read_log(after, limit, only)]
        if len(found) == limit:
            return Page(found, found[-1].position, caught_up=False)
        last = found[-1].position if found else after
        return Page(found, max(after, end, last), caught_up=True)

    def subscribe(
        self,
        *,
        after: Position = START,
        only: frozenset[str] | None = None,
        stop: threading.Event,
        idle_seconds: float = 1.0,
    ) -> Iterator[Recorded | CaughtUp]:
        """Yield events as they come; a live subscription to the whole log wakes us.

        It only wakes: what is delivered are pages after a position, so a subscription that the
        server ends costs time and no events, and the position moves over filtered events too.
        """
        position = after
        with self._here().bell.listening() as bell:
            while not stop.is_set():
                heard = bell.rings
                page = self.read_all(after=position, only=only)
                position = page.next_position
                yield from page.events
                if page.caught_up:
                    yield CaughtUp(position)
                    if not stop.is_set():
                        bell.wait(heard, idle_seconds)

    def head(self) -> Position:
        """Return the last position."""
        with _reading():
            return Position(self._client.get_commit_position(timeout=APPEND_SECONDS))

    def verify(self) -> ChainReport:
        """Check each stream's hash chain; about ten thousand events a second."""
        return walk(self._whole_log())

    def ping(self) -> None:
        """Raise StoreUnavailable if the server does not answer."""
        self.head()

    @property
    def _client(self) -> EventStoreDBClient:
        return self._here().client()

    @property
    def _tails(self) -> Tails:
        return self._here().tails

    def _here(self) -> _Process:
        """Return what belongs to this process.

        Raises: StoreError, in the child of a process that had used the store: gRPC would hang.
        """
        if self._process.pid != os.getpid():
            if self._process.used:
                raise StoreError("forked after its parent used EventStoreDB; fork first, or spawn")
            self._process = _Process(self._uri)
        return self._process

    def _end_of(self, stream: str, expected: int | Expect) -> End:
        """Return where the stream ends, from memory if that fits what is expected."""
        end = self._tails.end(stream)
        if end is None or expected not in (end.version, Expect.ANY):
            return self._look_at(stream)
        return end

    def _look_at(self, stream: str) -> End:
        """Learn from the server where the stream ends and which ids its last events have."""
        end = self._tails.end(stream)
        if end is None:
            newest = self._stream_page(stream, newest=True, limit=IDS_KEPT)
            return self._tails.begin(stream, newest)
        while True:
            page = self._stream_page(stream, after_version=end.version)
            learnt = self._tails.learn(stream, page)
            if learnt is None:  # forgotten meanwhile: too many other streams
                return self._look_at(stream)
            if len(page) < STREAM_PAGE:
                return learnt
            end = learnt

    def _send(self, stream: str, end: End, links: Sequence[Chained]) -> Appended:
        batch = _Batch(link.proposed for link in links)
        expected = StreamState.NO_STREAM if end.version == 0 else end.version - 1
        try:
            with _writing(stream):
                position = self._client.append_to_stream(
                    stream, current_version=expected, events=batch, timeout=APPEND_SECONDS
                )
        except StoreError:
            self._tails.forget(stream)
            raise
        if batch.sent == 1 and position > end.position:
            written = [(link.proposed.id, link.hash) for link in links]
            return self._tails.appended(stream, end, written, Position(position))
        # Sent more than once, or known to the server: the position of its answer may be none.
        self._look_at(stream)
        again = self._tails.again(stream, [link.proposed.id for link in links])
        if again is None:
            raise OutcomeUnknown(stream)
        return Appended(again.version, again.position)

    def _stream_page(
        self,
        stream: str,
        *,
        after_version: int = 0,
        newest: bool = False,
        limit: int = STREAM_PAGE,
    ) -> list[Recorded]:
        """Return up to `limit` events after a version, or the newest ones; in version order."""
        try:
            with _reading():
                read = self._client.get_stream(
                    stream,
                    stream_position=None if newest else after_version,
                    backwards=newest,
                    limit=limit,
                    timeout=READ_SECONDS,
                )
        except NotFound:
            return []
        return [opened(each) for each in (reversed(read) if newest else read)]

    def _read_log(
        self, after: Position, limit: int, only: frozenset[str] | None = None
    ) -> list[Read]:
        """Return up to `limit` events after a position, system events left out."""
        try:
            return self._read_log_once(after, limit, only)
        except StoreUnavailable:
            # The client tries the other calls again by itself, but not this one.
            with _reading():
                self._client.reconnect()
            return self._read_log_once(after, limit, only)

    def _read_log_once(
        self, after: Position, limit: int, only: frozenset[str] | None
    ) -> list[Read]:
        with _reading():
            # Reading forwards includes the event at the position.
            found = self._client.read_all(
                commit_position=None if after == START else after,
                limit=limit + 1,
                timeout=READ_SECONDS,
                filter_include=() if only is None else [type_pattern(only)],
            )
            later = [
                read
                for read in found
                if read.commit_position is not None and read.commit_position > after
            ]
        return later[:limit]

    def _whole_log(self) -> Iterator[Read]:
        position = START
        while page := self._read_log(position, VERIFY_PAGE):
            yield from page
            assert page[-1].commit_position is not None, "EventStoreDB before 22.10"
            position = Position(page[-1].commit_position)


class _Process:
    """What one process has of a store."""

    def __init__(self, uri: str) -> None:
        self.pid = os.getpid()
        self.used = False
        self.tails = Tails()
        self._made: WeakSet[EventStoreDBClient] = WeakSet()
        self.bell = Bell(self._connect)
        self._uri = uri
        self._thread = threading.local()
        atexit.register(self._close)

    def client(self) -> EventStoreDBClient:
        """Return this thread's client."""
        try:
            made: EventStoreDBClient = self._thread.client
        except AttributeError:
            self.used = True
            with _reading():
                made = self._thread.client = self._connect()
        return made

    def _connect(self) -> EventStoreDBClient:
        made = EventStoreDBClient(self._uri)
        self._made.add(made)
        return made

    def _close(self) -> None:
        """Close what is open while that is possible: later its modules are gone."""
        if os.getpid() == self.pid:
            for client in list(self._made):
                client.close()


class _Batch(list[Proposed]):
    """Events to send, which counts how often the client did: it retries without saying so."""

    sent = 0

    def __iter__(self) -> Iterator[Proposed]:
        self.sent += 1
        return super().__iter__()


@contextmanager
def _reading() -> Iterator[None]:
    """Turn the client's errors into those of the port, where nothing can have been written."""
    try:
        yield
    except NotFound:
        raise
    except _FOR_GOOD as refused:
        raise StoreError(_words(refused)) from refused
    except EventStoreDBClientException as lost:
        raise StoreUnavailable(_words(lost)) from lost


@contextmanager
def _writing(stream: str) -> Iterator[None]:
    """Turn the client's errors into those of the port, where something may be written."""
    try:
        yield
    except WrongCurrentVersion:
        raise
    except MaximumAppendSizeExceededError as refused:
        raise EventTooLarge(f"{stream}: {refused} bytes in one append") from refused
    except _FOR_GOOD as refused:
        raise StoreError(_words(refused)) from refused
    except EventStoreDBClientException as lost:
        raise OutcomeUnknown(_words(lost)) from lost


def _words(error: EventStoreDBClientException) -> str:
    """Return what happened: some of the client's errors say it only in their names."""
    return f"{type(error).__name__}: {error}"
