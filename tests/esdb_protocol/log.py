"""The log behind the protocol: streams, expected versions, positions, deletion."""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import uuid4

from tests.esdb_protocol.journal import Journal, Stored

DELETED_BEFORE = 2**63 - 1  # `$tb` of a soft-deleted stream: everything before "never" is gone
ANY_IDS_LOOKED_AT = 1000  # how far back a repeat of an append to "any version" is recognised
RECORD_OVERHEAD_BYTES = 48  # makes positions look like byte offsets: rising, with gaps


@dataclass(frozen=True, slots=True)
class Expected:
    """The version a writer expects: `revision` counts only for the kind "revision"."""

    kind: Literal["any", "no-stream", "exists", "revision"]
    revision: int = -1


@dataclass(frozen=True, slots=True)
class Proposed:
    """An event as a client sends it."""

    id: str
    type: str
    content_type: str
    data: bytes
    custom_metadata: bytes


@dataclass(frozen=True, slots=True)
class Written:
    """Where an append ended up. `repeated`: nothing was written, the same ids were there."""

    revision: int
    position: int
    repeated: bool = False


class WrongVersion(Exception):
    """The stream is not where the writer expected it; `current` is -1 where there is none."""

    def __init__(self, current: int) -> None:
        super().__init__(current)
        self.current = current


class StreamGone(Exception):
    """The stream was deleted (tombstoned, or deleted twice expecting it to exist)."""


class Log:
    """Every event ever written, in order. All methods may be called from any thread."""

    def __init__(self, journal: Journal | None = None) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.events: list[Stored] = []
        self.positions: list[int] = []
        self.tombstones: set[str] = set()
        self._streams: dict[str, list[Stored]] = {}
        self._next_position = 0
        self._journal = journal
        if journal is not None:
            for change in journal.replay():
                self._take(change.events)
                self.tombstones.update(change.tombstones)
        if not self.events:
            # A real server starts with events of its own, which clients have to skip.
            with self.changed:
                self._write("$$$users", self._metadata_event({"$acl": {"$r": "$all"}}))

    def last_revision(self, stream: str) -> int:
        """Return the revision of the last event ever written to `stream`, or -1."""
        events = self._streams.get(stream)
        return events[-1].revision if events else -1

    def visible(self, stream: str) -> list[Stored]:
        """Return what a reader of `stream` may see: not what was deleted or truncated."""
        with self.changed:
            events = self._streams.get(stream, [])
            settings = self._settings(stream)
            first = settings.get("$tb", 0)
            if "$maxCount" in settings:
                first = max(first, self.last_revision(stream) + 1 - settings["$maxCount"])
            return events[bisect_left(events, first, key=lambda event: event.revision) :]

    def append(self, stream: str, expected: Expected, proposed: Sequence[Proposed]) -> Written:
        """Write all of `proposed` or nothing.

        Raises: WrongVersion, StreamGone.
        """
        with self.changed:
            if stream in self.tombstones:
                raise StreamGone(stream)
            repeated = self._repeat_of(stream, expected, [event.id for event in proposed])
            if repeated is not None:
                return Written(repeated.revision, repeated.position, repeated=True)
            self._check(stream, expected)
            if not proposed:
                return Written(self.last_revision(stream), max(0, self._next_position - 1))
            if self._is_soft_deleted(stream):
                before = {"$tb": self.last_revision(stream) + 1}
                self._write(f"$${stream}", self._metadata_event(before))
            last = self._write(stream, *proposed)
            return Written(last.revision, last.position)

    def delete(self, stream: str, expected: Expected) -> int:
        """Hide the stream's events; its revisions go on counting. Returns a position."""
        with self.changed:
            if stream in self.tombstones:
                raise StreamGone(stream)
            if self._is_soft_deleted(stream):
                if expected.kind == "exists":
                    raise StreamGone(stream)
                if expected.kind == "revision" and expected.revision != self.last_revision(stream):
                    raise WrongVersion(self.last_revision(stream))
                return self._next_position
            self._check(stream, expected)
            if self.last_revision(stream) < 0:
                raise WrongVersion(-1)
            hidden = self._metadata_event({"$tb": DELETED_BEFORE})
            return self._write(f"$${stream}", hidden).position

    def tombstone(self, stream: str, expected: Expected) -> int:
        """Close the stream for ever. Returns a position."""
        with self.changed:
            if stream in self.tombstones:
                raise StreamGone(stream)
            self._check(stream, expected)
            self.tombstones.add(stream)
            if self._journal is not None:
                self._journal.write([], tombstones=[stream])
            self.changed.notify_all()
            return self._next_position

    def overwrite(self, stream: str, revision: int, data: bytes) -> None:
        """Change a stored event, as somebody with access to the disk could. For tests."""
        with self.changed:
            events = self._streams[stream]
            index = bisect_left(events, revision, key=lambda event: event.revision)
            forged = events[index].with_data(data)
            events[index] = forged
            self.events[bisect_left(self.positions, forged.position)] = forged

    def _check(self, stream: str, expected: Expected) -> None:
        last = self.last_revision(stream)
        alive = last >= 0 and not self._is_soft_deleted(stream)
        fits = {
            "any": True,
            "no-stream": not alive,
            "exists": alive,
            "revision": expected.revision == last,
        }
        if not fits[expected.kind]:
            raise WrongVersion(last)

    def _repeat_of(self, stream: str, expected: Expected, ids: list[str]) -> Stored | None:
        """Return the last event of an earlier write of the same ids, as the real server tells it.

        It looks only where the writer says that it expects the stream to be. With the *correct*
        expected version it does not look at all, so there a repeated id is written once more
        (EventStore issues 1898, 1949 and 2274): adapters have to check ids themselves.
        """
        events = self._streams.get(stream, [])
        if not ids or not events:
            return None
        if expected.kind == "any":
            known = {event.id: event for event in events[-ANY_IDS_LOOKED_AT:]}
            return known[ids[-1]] if all(id_ in known for id_ in ids) else None
        if expected.kind == "exists":
            return None
        after = expected.revision if expected.kind == "revision" else -1
        if after >= self.last_revision(stream):
            return None
        start = bisect_left(events, after + 1, key=lambda event: event.revision)
        found = events[start : start + len(ids)]
        return found[-1] if [event.id for event in found] == ids else None

    def _settings(self, stream: str) -> dict[str, int]:
        latest = self._streams.get(f"$${stream}", [])
        return json.loads(latest[-1].data) if latest else {}

    def _is_soft_deleted(self, stream: str) -> bool:
        return self._settings(stream).get("$tb", 0) > self.last_revision(stream) >= 0

    def _metadata_event(self, settings: Mapping[str, object]) -> Proposed:
        data = json.dumps(settings).encode()
        return Proposed(str(uuid4()), "$metadata", "application/json", data, b"")

    def _write(self, stream: str, *proposed: Proposed) -> Stored:
        ticks = time.time_ns() // 100
        revision = self.last_revision(stream)
        position = self._next_position
        stored = []
        for event in proposed:
            revision += 1
            stored.append(
                Stored(
                    id=event.id,
                    stream=stream,
                    revision=revision,
                    position=position,
                    created_ticks=ticks,
                    type=event.type,
                    content_type=event.content_type,
                    data=event.data,
                    custom_metadata=event.custom_metadata,
                )
            )
            position += RECORD_OVERHEAD_BYTES + len(event.data) + len(event.custom_metadata)
        if self._journal is not None:
            self._journal.write(stored)
        self._take(stored)
        self.changed.notify_all()
        return stored[-1]

    def _take(self, stored: Sequence[Stored]) -> None:
        for event in stored:
            self._streams.setdefault(event.stream, []).append(event)
            self.events.append(event)
            self.positions.append(event.position)
            size = len(event.data) + len(event.custom_metadata)
            self._next_position = event.position + RECORD_OVERHEAD_BYTES + size


def open_log(path: Path | None) -> Log:
    """Return the log kept at `path`, or one that lives only in memory."""
    return Log(Journal(path) if path is not None else None)
