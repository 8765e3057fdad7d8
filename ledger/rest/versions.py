"""`ETag` and `If-Match`: nobody overwrites what they have not seen.

The ETag of a thing is the version of its stream. `guarded` gives a command a store that lets
only that version be built upon, so the check holds at the very append, on every store.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from uuid import UUID

from ledger.domain.refusal import Invalid, Refusal
from ledger.eventstore.port import (
    START,
    Appended,
    CaughtUp,
    ChainReport,
    EventStore,
    Expect,
    Meta,
    NewEvent,
    Page,
    Position,
    Recorded,
    Write,
)
from ledger.eventstore.singly import one_by_one, read_one_by_one

_ETAG = re.compile(r'"([0-9]{1,18})"')


class VersionMoved(Refusal):
    """It has changed since you read it.

    Read it again, look at what changed, and repeat with its new ETag.
    """

    status = 412


class VersionUnreadable(Invalid):
    """If-Match takes one ETag as it was sent, such as "7", or *."""


def etag_of(version: int) -> str:
    """Write a stream's version as an ETag."""
    return f'"{version}"'


def need_version(if_match: str | None, version: int) -> None:
    """Refuse unless If-Match is absent, `*`, or names `version`.

    Raises: VersionMoved, VersionUnreadable.
    """
    wanted = _wanted(if_match)
    if wanted is not None and wanted != version:
        raise VersionMoved(version=version)


def _wanted(if_match: str | None) -> int | None:
    if if_match is None or if_match.strip() == "*":
        return None
    form = _ETAG.fullmatch(if_match.strip())
    if form is None:
        raise VersionUnreadable(given=if_match[:40])
    return int(form[1])


def guard_of(store: EventStore, stream: str, if_match: str | None) -> Guarded | None:
    """Return what holds `stream` to the version that If-Match names; None where it names none.

    Raises: VersionUnreadable.
    """
    wanted = _wanted(if_match)
    return None if wanted is None else Guarded(store, stream, wanted)


def guarded(store: EventStore, stream: str, if_match: str | None) -> EventStore:
    """Return a store in which `stream` can only be appended to at the version If-Match names.

    Raises: VersionUnreadable; VersionMoved from `append`.
    """
    return guard_of(store, stream, if_match) or store


class Guarded:
    """A store, save that one stream must still be at one version when it is first written."""

    def __init__(self, store: EventStore, stream: str, version: int) -> None:
        self._store, self._stream, self._version = store, stream, version
        self._is_written = False
        self.shares_django_transaction = store.shares_django_transaction
        self.appends_whole = store.appends_whole
        self.finds = store.finds

    def append(
        self, stream: str, events: Sequence[NewEvent], *, expected: int | Expect, by: Meta
    ) -> Appended:
        """Append, unless it is to the guarded stream at another version."""
        if stream == self._stream:
            if expected != self._version:
                raise VersionMoved(version=expected if isinstance(expected, int) else None)
            self._version += len(events)
            self._is_written = True
        return self._store.append(stream, events, expected=expected, by=by)

    def need_unmoved(self) -> None:
        """Refuse where nothing was written and the stream is at another version.

        A rule that says no, or finds nothing to do, does so on what the caller has not seen.
        Raises: VersionMoved.
        """
        if self._is_written:
            return
        before = max(0, self._version - 1)
        since = [
            each.version for each in self._store.read_stream(self._stream, after_version=before)
        ]
        version = since[-1] if since else before
        if version != self._version:
            raise VersionMoved(version=version)

    def append_each(self, writes: Sequence[Write]) -> list[Appended]:
        """Append each, the guarded stream as `append` does."""
        return one_by_one(self, writes)

    def append_whole(self, writes: Sequence[Write]) -> list[Appended]:
        """Append all or none where the store can, the guarded stream at its version only."""
        for write in writes:
            if write.stream == self._stream:
                if write.expected != self._version:
                    raise VersionMoved(version=write.expected)
                self._version += len(write.events)
        return self._store.append_whole(writes)

    def read_stream(self, stream: str, *, after_version: int = 0) -> Iterator[Recorded]:
        """Read as the store does."""
        return self._store.read_stream(stream, after_version=after_version)

    def alone(self) -> AbstractContextManager[None]:
        """Let nobody else append, where the store can do that."""
        return self._store.alone()

    def in_line(self, streams: Collection[str], /) -> AbstractContextManager[None]:
        """Wait for a turn as the store does."""
        return self._store.in_line(streams)

    def read_streams(
        self, asked: Sequence[tuple[str, int]], *, first: int | None = None
    ) -> dict[str, list[Recorded]]:
        """Return the events of several streams after a version of each."""
        return read_one_by_one(self, asked, first)

    def read_last(self, streams: Sequence[str]) -> Mapping[str, Recorded]:
        """Return the last event of each of these streams."""
        return self._store.read_last(streams)

    def find_event(self, stream: str, event_id: UUID) -> Recorded | None:
        """Find as the store does."""
        return self._store.find_event(stream, event_id)

    def find_named(self, stream: str, name: UUID, *, up_to_version: int) -> Sequence[Recorded]:
        """Find as the store does."""
        return self._store.find_named(stream, name, up_to_version=up_to_version)

    def read_all(
        self, *, after: Position = START, limit: int = 1000, only: frozenset[str] | None = None
    ) -> Page:
        """Read as the store does."""
        return self._store.read_all(after=after, limit=limit, only=only)

    def subscribe(
        self,
        *,
        after: Position = START,
        only: frozenset[str] | None = None,
        stop: threading.Event,
        idle_seconds: float = 1.0,
    ) -> Iterator[Recorded | CaughtUp]:
        """Subscribe as the store does."""
        return self._store.subscribe(after=after, only=only, stop=stop, idle_seconds=idle_seconds)

    def head(self) -> Position:
        """Return the store's head."""
        return self._store.head()

    def verify(self) -> ChainReport:
        """Check the store's chain."""
        return self._store.verify()

    def ping(self) -> None:
        """Ask whether the store answers."""
        self._store.ping()
