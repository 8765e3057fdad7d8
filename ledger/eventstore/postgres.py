"""A store in the Django database: dense positions, a hash chain, append-only by trigger.

An append is one call of `es_append` (migration 0001), or of `es_append_one` where it is one event.
It holds an advisory lock from the version check to the commit, so positions become visible in order
and a reader that asks for what comes after a position never misses one that commits late.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast
from uuid import UUID

import psycopg
from django.db import DatabaseError, connection, transaction

from ledger.domain.ids import of_bytes
from ledger.eventstore import codec, lines
from ledger.eventstore.arrays import bigints, blobs, ints, let_send, texts, uuids
from ledger.eventstore.memory import check
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
from ledger.outages import let_go_after, outage_of

CHANNEL = "es_event"
VERIFY_PAGE = 5_000
STREAM_PAGE = 1_000

_COLUMNS = (
    "position, stream, version, uuid_send(event_id), type, schema_version, data, meta,"
    " timestamptz_send(recorded_at), hash"
)
_APPEND = (
    "SELECT outcome, at_version, at_position FROM es_append("
    "%s::text, %s::bigint, %b::uuid[], %b::text[], %s::int[], %b::bytea[], %s::bytea)"
)
"""Arrays go as bytes: as text each event would be searched for what has to be masked."""
_APPEND_ONE = (
    "SELECT outcome, at_version, at_position FROM es_append_one("
    "%s::text, %s::bigint, %s::uuid, %s::text, %s::int, %s::bytea, %s::bytea)"
)
_APPEND_EACH = (
    "SELECT outcome, at_version, at_position FROM es_append_each("
    "%s::text[], %s::bigint[], %s::int[], %b::bytea[], %s::int[], %s::bigint[], %b::uuid[],"
    " %b::text[], %s::int[], %b::bytea[])"
)
_APPEND_WHOLE = _APPEND_EACH.replace("es_append_each", "es_append_whole")
_LOCK = "SELECT set_config('lock_timeout', '5s', true), pg_advisory_xact_lock(5121)"
_READ_STREAM = (
    f"SELECT {_COLUMNS} FROM es_event WHERE stream = %s AND version > %s ORDER BY version LIMIT %s"
)
_READ_STREAMS = (
    f"SELECT found.* FROM unnest(%s::text[], %s::bigint[]) AS asked (stream, version),"
    f" LATERAL (SELECT {_COLUMNS} FROM es_event e"
    " WHERE e.stream = asked.stream AND e.version > asked.version"
    " ORDER BY e.version LIMIT %s) found"
)
_READ_ALL = f"SELECT {_COLUMNS} FROM es_event WHERE position > %s ORDER BY position LIMIT %s"
_READ_ONLY = (
    f"SELECT {_COLUMNS} FROM es_event WHERE position > %s AND position <= %s"
    " AND type = ANY(%s::text[]) ORDER BY position LIMIT %s"
)
_READ_LAST = (
    f"SELECT found.* FROM unnest(%s::text[]) AS asked (stream),"
    f" LATERAL (SELECT {_COLUMNS} FROM es_event e WHERE e.stream = asked.stream"
    " ORDER BY e.version DESC LIMIT 1) found"
)
_FIND_EVENT = f"SELECT {_COLUMNS} FROM es_event WHERE event_id = %s AND stream = %s"
_FIND_NAMED = " UNION ".join(
    f'SELECT {_COLUMNS} FROM es_event WHERE es_id_in(data, \'"{field}":"\') = %s::uuid'
    " AND stream >= 'account-' AND stream < 'account.' AND stream = %s AND version <= %s"
    for field in NAMES
)
"""An index for each field (migration 0016), of the events of accounts."""
TAIL = 500
"""Events that a filtered read looks through from its place on, before it asks the index of types.
Whoever follows the log is nearly always nearer to its end than that, and one index scan for each
type would cost more than looking."""

_READ_TAIL = (
    "WITH tail AS MATERIALIZED (SELECT position, stream, version, uuid_send(event_id), type,"
    " schema_version, data, meta, timestamptz_send(recorded_at), hash FROM es_event"
    " WHERE position > %s ORDER BY position LIMIT %s),"
    " seen AS (SELECT count(*) AS events, max(position) AS last FROM tail)"
    " SELECT seen.events, seen.last, tail.* FROM seen"
    " LEFT JOIN tail ON tail.type = ANY(%s::text[]) ORDER BY tail.position"
)
_HEAD = "SELECT position FROM es_event ORDER BY position DESC LIMIT 1"


MILLENNIUM = datetime(2000, 1, 1, tzinfo=UTC)
"""What PostgreSQL counts its microseconds from."""


class _Record(Recorded):
    """A row as it came: the id and the moment, which few readers ask for, are made when asked."""

    @property
    def id(self) -> UUID:
        return of_bytes(cast(bytes, self[3]))

    @property
    def recorded_at(self) -> datetime:
        micros = int.from_bytes(cast(bytes, self[8]), signed=True)
        return MILLENNIUM + timedelta(microseconds=micros)


_recorded: Callable[[tuple[Any, ...]], Recorded] = partial(tuple.__new__, _Record)
"""`_Record._make` without its step through Python: the columns are those of the tuple."""


class PostgresStore:
    """Runs on Django's connection, so that rows written beside an append commit with it."""

    shares_django_transaction = True
    appends_whole = True
    finds = True

    def append(
        self, stream: str, events: Sequence[NewEvent], *, expected: int | Expect, by: Meta
    ) -> Appended:
        """Append all of `events` or none, in one round trip."""
        arguments = _arguments(stream, events, expected, by)
        name, version, ids, kinds, schemas, data, meta = arguments
        if len(events) == 1:
            statement = _APPEND_ONE
            arguments = (name, version, ids[0], kinds[0], schemas[0], data[0], meta)
        else:
            statement = _APPEND
            packed = uuids(ids), texts(kinds), ints(schemas), blobs(data)
            arguments = (name, version, *packed, meta)
        with _cursor(lost=OutcomeUnknown, keep=True) as cursor:
            cursor.execute(statement, arguments, prepare=True)
            row = cursor.fetchone()
        assert row is not None
        return _appended(stream, expected, row)

    def append_each(self, writes: Sequence[Write]) -> list[Appended]:
        """Append to several streams in one statement, so that the lock waits for nobody."""
        if len(writes) == 1:
            [write] = writes
            return [self.append(write.stream, write.events, expected=write.expected, by=write.by)]
        arguments = _arguments_of_each(writes)
        with _cursor(lost=OutcomeUnknown, keep=True) as cursor:
            cursor.execute(_APPEND_EACH, arguments, prepare=True)
            rows = cursor.fetchall()
        # Where one failed it is the last: those after it were not asked for.
        return [
            _appended(write.stream, write.expected, row)
            for write, row in zip(writes, rows, strict=False)
        ]

    def append_whole(self, writes: Sequence[Write]) -> list[Appended]:
        """Append to several streams, all or none, in one statement."""
        with _cursor(lost=OutcomeUnknown, keep=True) as cursor:
            cursor.execute(_APPEND_WHOLE, _arguments_of_each(writes), prepare=True)
            rows = cursor.fetchall()
        if rows[0][0] == "moved":
            _, version, number = rows[0]
            moved = writes[number - 1]
            raise StreamMoved(moved.stream, moved.expected, version)
        return [
            _appended(write.stream, write.expected, row)
            for write, row in zip(writes, rows, strict=True)
        ]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of the log until what is done here commits."""
        with transaction.atomic():
            with _cursor(lost=StoreUnavailable) as cursor:
                cursor.execute(_LOCK)
            yield

    def in_line(self, streams: Collection[str], /) -> AbstractContextManager[None]:
        """Wait for a turn on streams that others write to, half a second at most."""
        return lines.in_line(streams)

    def read_streams(
        self, asked: Sequence[tuple[str, int]], *, first: int | None = None
    ) -> dict[str, list[Recorded]]:
        """Return what is in several streams after a version of each, in one round trip."""
        found: dict[str, list[Recorded]] = {stream: [] for stream, _ in asked}
        names, versions = [stream for stream, _ in asked], [version for _, version in asked]
        page = STREAM_PAGE if first is None else first
        for row in _rows(_READ_STREAMS, (names, versions, page)):
            found[row[1]].append(_recorded(row))
        for stream, events in found.items():
            if first is None and len(events) == STREAM_PAGE:
                events += self.read_stream(stream, after_version=events[-1].version)
        return found

    def read_last(self, streams: Sequence[str]) -> dict[str, Recorded]:
        """Return the last event of each of these streams, in one round trip."""
        return {row[1]: _recorded(row) for row in _rows(_READ_LAST, (list(streams),))}

    def find_event(self, stream: str, event_id: UUID) -> Recorded | None:
        """Return the event of a stream that has this id."""
        rows = _rows(_FIND_EVENT, (event_id, stream))
        return _recorded(rows[0]) if rows else None

    def find_named(self, stream: str, name: UUID, *, up_to_version: int) -> list[Recorded]:
        """Return the events of an account's stream that carry an id."""
        rows = _rows(_FIND_NAMED, (name, stream, up_to_version) * len(NAMES))
        return sorted(map(_recorded, rows), key=lambda each: each.version)

    def read_stream(self, stream: str, *, after_version: int = 0) -> Iterator[Recorded]:
        """Yield a stream's events in version order."""
        version = after_version
        while True:
            rows = _rows(_READ_STREAM, (stream, version, STREAM_PAGE))
            for row in rows:
                yield _recorded(row)
            if len(rows) < STREAM_PAGE:
                return
            version = rows[-1][2]

    def read_all(
        self, *, after: Position = START, limit: int = 1000, only: frozenset[str] | None = None
    ) -> Page:
        """Return up to `limit` events after a position."""
        if only is None:
            rows = _rows(_READ_ALL, (after, limit))
            end = rows[-1][0] if rows else after
        else:
            found = _rows(_READ_TAIL, (after, TAIL, sorted(only)))
            seen, last = found[0][:2]
            if seen < TAIL:
                # The last row is there whenever nothing fits, without an event in it.
                events = [_recorded(row[2:]) for row in found if row[2] is not None]
                if len(events) <= limit:
                    return Page(events, Position(last or after), caught_up=True)
            end = max(self.head(), after)
            # How many that are depends on where: planned anew, since it is asked seldom.
            rows = _rows(_READ_ONLY, (after, end, sorted(only), limit), prepare=False)
            if len(rows) == limit:
                end = rows[-1][0]
        events = list(map(_recorded, rows))
        return Page(events, Position(end), caught_up=len(rows) < limit)

    def subscribe(
        self,
        *,
        after: Position = START,
        only: frozenset[str] | None = None,
        stop: threading.Event,
        idle_seconds: float = 1.0,
    ) -> Iterator[Recorded | CaughtUp]:
        """Yield events as they come; a NOTIFY of the appending transaction wakes us."""
        position = after
        with _listener() as listener:
            while only is not None and not only and not stop.is_set():
                # The bell of every loop: it reads nothing, however much is appended.
                yield CaughtUp(position)
                position = max(position, _wait(listener, idle_seconds))
            while not stop.is_set():
                page = self.read_all(after=position, only=only)
                position = page.next_position
                yield from page.events
                if page.caught_up:
                    yield CaughtUp(position)
                    if not stop.is_set():
                        _wait(listener, idle_seconds)

    def head(self) -> Position:
        """Return the last position."""
        rows = _rows(_HEAD, ())
        return Position(rows[0][0]) if rows else START

    def verify(self) -> ChainReport:
        """Check the hash chain; about half a million events a second."""
        return check(self._whole_log())

    def ping(self) -> None:
        """Raise StoreUnavailable if the database does not answer."""
        _rows("SELECT 1", ())

    def _whole_log(self) -> Iterator[Recorded]:
        position = START
        while True:
            page = self.read_all(after=position, limit=VERIFY_PAGE)
            yield from page.events
            position = page.next_position
            if page.caught_up:
                return


def _arguments(
    stream: str, events: Sequence[NewEvent], expected: int | Expect, by: Meta
) -> tuple[Any, ...]:
    """Return what `es_append` takes. Raises: EventTooLarge, EventIdConflict."""
    data = [codec.encode(new.event) for new in events]
    if any(len(each) > EVENT_BYTES_MAX for each in data):
        raise EventTooLarge(stream)
    if len({new.id for new in events}) < len(events):
        raise EventIdConflict(stream)
    return (
        stream,
        None if expected is Expect.ANY else expected,
        [new.id for new in events],
        [new.event.name for new in events],
        [new.event.schema_version for new in events],
        data,
        codec.encode(by),
    )


def _arguments_of_each(writes: Sequence[Write]) -> tuple[object, ...]:
    """Return what `es_append_each` takes: an array for each column, and to which write it belongs.

    Raises: EventTooLarge, EventIdConflict.
    """
    of_each = [_arguments(each.stream, each.events, each.expected, each.by) for each in writes]
    streams, expected, *columns, metas = zip(*of_each, strict=True)
    ids, types, schemas, data = ([one for each in column for one in each] for column in columns)
    if len(set(ids)) < len(ids):
        raise EventIdConflict(", ".join(streams))
    return (
        texts(streams),
        bigints(expected),
        ints([len(write.events) for write in writes]),
        blobs(metas),
        ints([number for number, write in enumerate(writes, 1) for _ in write.events]),
        bigints([each.expected + n for each in writes for n in range(1, len(each.events) + 1)]),
        uuids(ids),
        texts(types),
        ints(schemas),
        blobs(data),
    )


def _appended(stream: str, expected: int | Expect, row: tuple[Any, ...]) -> Appended:
    """Read an answer of `es_append`. Raises: StreamMoved, EventIdConflict."""
    outcome, version, position = row
    if outcome == "moved":
        raise StreamMoved(stream, expected, version)
    if outcome == "conflict":
        raise EventIdConflict(stream)
    return Appended(version, Position(position), deduplicated=outcome == "again")


def _rows(sql: str, parameters: Sequence[object], *, prepare: bool = True) -> list[tuple[Any, ...]]:
    with _cursor(lost=StoreUnavailable) as cursor:
        cursor.execute(sql, parameters, prepare=prepare)
        return cursor.fetchall()


@contextmanager
def _cursor(
    *, lost: type[StoreError], keep: bool = False
) -> Iterator[psycopg.Cursor[tuple[Any, ...]]]:
    """Give a binary cursor on Django's connection; raise `lost` when that breaks meanwhile.

    Below Django's own cursor, which speaks text and would cost a third of an append. keep: the one
    that this thread keeps, with its last answer: for answers that are small.
    """
    try:
        connection.ensure_connection()
    except (DatabaseError, psycopg.Error) as down:
        raise StoreUnavailable(str(down)) from down
    try:
        if keep:
            yield _kept.on(connection.connection)
        else:
            with _binary(connection.connection) as cursor:
                yield cursor
    except psycopg.Error as broken:
        outage = outage_of(broken)
        if outage is None:
            raise
        let_go_after(outage)
        if outage.nothing_written:
            raise StoreUnavailable(f"{outage.words}: {broken}") from broken
        raise lost(f"{outage.words}: {broken}") from broken


def _binary(connected: psycopg.Connection[Any]) -> psycopg.Cursor[tuple[Any, ...]]:
    cursor = psycopg.Cursor[tuple[Any, ...]](connected)
    cursor.format = psycopg.pq.Format.BINARY
    return cursor


class _Kept(threading.local):
    """Each thread's cursor for appends: to make one takes a fifth of the time of an append."""

    cursor: psycopg.Cursor[tuple[Any, ...]] | None = None

    def on(self, connected: psycopg.Connection[Any]) -> psycopg.Cursor[tuple[Any, ...]]:
        if self.cursor is None or self.cursor.connection is not connected:
            self.cursor = _binary(connected)
            let_send(self.cursor)
        return self.cursor


_kept = _Kept()


@contextmanager
def _listener() -> Iterator[psycopg.Connection[Any]]:
    try:
        listener = connection.get_new_connection(connection.get_connection_params())
        listener.autocommit = True
    except psycopg.Error as lost:
        raise StoreUnavailable(str(lost)) from lost
    with listener:
        try:
            listener.execute(f"LISTEN {CHANNEL}")
        except psycopg.Error as lost:
            raise StoreUnavailable(str(lost)) from lost
        yield listener


def _wait(listener: psycopg.Connection[Any], seconds: float) -> Position:
    """Wait for an append; return its position, START if there was none."""
    position = START
    try:
        for note in listener.notifies(timeout=seconds, stop_after=1):
            position = Position(int(note.payload))
    except psycopg.Error as lost:
        raise StoreUnavailable(str(lost)) from lost
    return position
