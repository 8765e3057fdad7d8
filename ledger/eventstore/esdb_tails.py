"""What a process remembers of the ends of streams in EventStoreDB.

A writer needs the last hash to continue the chain, and the ids of the last events to recognise
a repeat, which the server does not always do. Remembering them saves a read before most
appends; what is remembered may be old, and then the server refuses the append.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ledger.eventstore import chain
from ledger.eventstore.port import START, Appended, EventIdConflict, Position, Recorded

IDS_KEPT = 1_000  # of one stream
STREAMS_KEPT = 1_000


class End(NamedTuple):
    """The last event of a stream: version 0 where there is none."""

    version: int = 0
    position: Position = START
    hash: bytes = chain.GENESIS


@dataclass(slots=True)
class _Tail:
    end: End = field(default_factory=End)
    ids: OrderedDict[UUID, tuple[int, Position]] = field(default_factory=OrderedDict)

    def add(self, event_id: UUID, end: End) -> None:
        self.end = end
        self.ids[event_id] = (end.version, end.position)
        if len(self.ids) > IDS_KEPT:
            self.ids.popitem(last=False)


class Tails:
    """The ends of the streams used last. Safe for threads."""

    def __init__(self) -> None:
        self._tails: OrderedDict[str, _Tail] = OrderedDict()
        self._lock = threading.Lock()

    def end(self, stream: str) -> End | None:
        """Return where the stream ended when last heard of; None: nothing is known."""
        with self._lock:
            tail = self._tails.get(stream)
            return tail.end if tail else None

    def again(self, stream: str, ids: Sequence[UUID]) -> Appended | None:
        """Return the first outcome if these ids are one earlier append; None if all are new.

        Raises: EventIdConflict, where some are known, or not in this order.
        """
        with self._lock:
            tail = self._tails.get(stream)
            known = [tail.ids.get(event_id) for event_id in ids] if tail else []
        found = [place for place in known if place is not None]
        if not found:
            return None
        first, last = found[0][0], found[-1]
        if [version for version, _ in found] != list(range(first, first + len(ids))):
            raise EventIdConflict(stream)
        return Appended(*last, deduplicated=True)

    def begin(self, stream: str, newest: Sequence[Recorded]) -> End:
        """Remember the newest events of a stream, in version order, as all that is known."""
        with self._lock:
            tail = _Tail()
            for recorded in newest:
                tail.add(recorded.id, _end(recorded))
            self._keep(stream, tail)
            return tail.end

    def learn(self, stream: str, page: Sequence[Recorded]) -> End | None:
        """Remember a page that was read, where it continues what is known."""
        with self._lock:
            tail = self._tails.get(stream)
            if tail is None and page and page[0].version == 1:
                tail = _Tail()
            if tail is None:
                return None
            for recorded in page:
                if recorded.version == tail.end.version + 1:
                    tail.add(recorded.id, _end(recorded))
            self._keep(stream, tail)
            return tail.end

    def appended(
        self, stream: str, before: End, links: Sequence[tuple[UUID, bytes]], position: Position
    ) -> Appended:
        """Remember our own append, given as ids and hashes; `position` is its last event's."""
        last = End(before.version + len(links), position, links[-1][1])
        with self._lock:
            tail = self._tails.get(stream)
            if tail is not None and tail.end == before:
                for version, (event_id, digest) in enumerate(links, start=before.version + 1):
                    tail.add(event_id, End(version, position, digest))
                self._keep(stream, tail)
        return Appended(last.version, last.position)

    def forget(self, stream: str) -> None:
        """Look at the server next time."""
        with self._lock:
            self._tails.pop(stream, None)

    def _keep(self, stream: str, tail: _Tail) -> None:
        self._tails[stream] = tail
        self._tails.move_to_end(stream)
        if len(self._tails) > STREAMS_KEPT:
            self._tails.popitem(last=False)


def _end(recorded: Recorded) -> End:
    assert recorded.hash is not None, "every record of this store has a hash"
    return End(recorded.version, recorded.position, recorded.hash)
