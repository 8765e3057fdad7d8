"""Sends what work prints to the server, in a thread of its own: nothing here holds up the agent.

How far the server is it says itself, in each answer. So nothing is kept here: after a restart of
either side the first answer tells where to go on, and bytes that are sent twice count once. Work is
never held up either: what a lease prints faster than it may send waits in its files, whose middle
is dropped when they are full (`runtimes/output.py`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args
from uuid import UUID

from .backoff import Backoff
from .runtimes.output import read_output
from .runtimes.port import Runtime, Work
from .uplink import Refused, Unreachable, Uplink
from .wire import (
    LOG_BATCH_BYTES_MAX,
    LOG_PIECE_BYTES_MAX,
    LOG_PIECES_MAX,
    LogBatch,
    LogPiece,
    LogPieceTaken,
    Stream,
)

log = logging.getLogger(__name__)

FOLLOWED_MS = 100
"""Between two looks at a log that somebody reads along, and between two messages at least."""
UNFOLLOWED_MS = 1_000
FRESH_MS = 10_000
"""So long after it began a log of which nothing was sent is looked at as if somebody read along."""
BYTES_PER_SECOND = 1024 * 1024
BURST_BYTES = 8 * 1024 * 1024
"""What one lease may send: then it is read slower."""
MESSAGES_PER_TURN_MAX = 64
UNWANTED_MS = 600_000
"""A server that does not take logs is asked again after this time."""
REPORT_WAITS_MS = 10_000
"""The end of work is told after the last of its log, but not later than this because of it."""
FORGET_WAITS_MS = 120_000
FIRST_ATTEMPT = 1
NONE_IS_HERE = 409
"""The server knows none of the leases of a message as this host's."""


@dataclass(frozen=True, slots=True)
class Printing:
    """Where the output of a lease's work is, and whether all of it is there."""

    folder: Path
    ended: bool


def printing(
    runtime: Runtime, leases: Collection[UUID], works: Mapping[UUID, Work]
) -> dict[UUID, Printing]:
    """Return where the output of each lease is; also of those whose work is over."""
    return {
        lease_id: Printing(folder, ended=works[lease_id].state == "ended")
        for lease_id in works
        if lease_id in leases and (folder := runtime.output_of(lease_id)) is not None
    }


@dataclass(slots=True)
class _Log:
    """One stream. size: how far the server is; None before it said so. looked: what was there."""

    stream: Stream
    path: Path
    size: int | None = None
    done: bool = False
    looked: tuple[int, int] | None = None

    def has_news(self) -> bool:
        """Tell if more was written since this was last asked and answered."""
        try:
            about = self.path.stat()
        except OSError:
            return False
        now = about.st_ino, about.st_size
        return now != self.looked and (self.looked is not None or about.st_size > 0)


@dataclass(slots=True)
class _Lease:
    """followed: None: the server did not say yet whether somebody reads along."""

    printing: Printing
    logs: list[_Log]
    since_ms: int
    followed: bool | None = None
    due_ms: int = 0
    tokens: float = BURST_BYTES
    filled_ms: int = 0
    waited_since_ms: int | None = None

    @property
    def done(self) -> bool:
        return all(each.done for each in self.logs)

    def has_news(self) -> bool:
        """Tell if there is something to send of any of its logs, or to say of their end."""
        return self.printing.ended or any(each.has_news() for each in self.logs)


@dataclass(slots=True)
class _Message:
    """Pieces of one message, and what each is for."""

    pieces: list[LogPiece] = field(default_factory=list)
    of: list[tuple[_Lease, _Log, tuple[int, int] | None]] = field(default_factory=list)
    bytes: int = 0

    @property
    def room(self) -> int:
        full = len(self.pieces) >= LOG_PIECES_MAX
        return 0 if full else min(LOG_PIECE_BYTES_MAX, LOG_BATCH_BYTES_MAX - self.bytes)

    def add(
        self, lease: _Lease, each: _Log, piece: LogPiece, looked: tuple[int, int] | None = None
    ) -> None:
        """looked: at what the log was when all of it was read; None: there is more."""
        self.pieces.append(piece)
        self.of.append((lease, each, looked))


class Shipper:
    """Sends the logs of one host."""

    def __init__(
        self,
        uplink: Uplink,
        *,
        now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
        bytes_per_second: int = BYTES_PER_SECOND,
        burst_bytes: int = BURST_BYTES,
    ) -> None:
        self._uplink = uplink
        self._now_ms = now_ms
        self._rate, self._burst = bytes_per_second, burst_bytes
        self._leases: dict[UUID, _Lease] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._backoff = Backoff(first_ms=500, most_ms=30_000)
        self._unwanted_until_ms: int | None = None
        self._runs = False
        self._trouble = ""

    def know(self, printing: Mapping[UUID, Printing]) -> None:
        """Say which work prints where; a lease that is not named any more is forgotten."""
        with self._lock:
            for lease_id in self._leases.keys() - printing.keys():
                del self._leases[lease_id]
            for lease_id, each in printing.items():
                known = self._leases.get(lease_id)
                if known is None:
                    self._leases[lease_id] = self._begin(each)
                    self._wake.set()
                elif known.printing != each:
                    known.printing, known.due_ms = each, 0
                    self._wake.set()

    def holds_back(self, lease_id: UUID) -> bool:
        """Tell if the end of a lease's work is to be told later, after the rest of its log."""
        return self._waits(lease_id, REPORT_WAITS_MS)

    def needs(self, lease_id: UUID) -> bool:
        """Tell if the files of a lease are still being sent."""
        return self._waits(lease_id, FORGET_WAITS_MS)

    def run(self, stop: threading.Event) -> None:
        """Send until `stop` is set, and then once more."""
        self._runs = True
        try:
            while not stop.is_set():
                self.turn()
                if not self._wake.wait(self.pause_ms() / 1000):
                    continue
                self._wake.clear()
            self.turn()
        finally:
            self._runs = False

    def pause_ms(self) -> int:
        """Return how long there is nothing to look at: a log that nobody reads waits a second."""
        now_ms = self._now_ms()
        if not self._backoff.is_due(now_ms):
            return FOLLOWED_MS
        with self._lock:
            dues = [each.due_ms for each in self._leases.values() if not each.done]
        due_ms = min(dues, default=now_ms + UNFOLLOWED_MS)
        return min(UNFOLLOWED_MS, max(FOLLOWED_MS, due_ms - now_ms))

    def _next_ms(self, lease: _Lease, now_ms: int) -> int:
        """Return when a lease is looked at again; all that nobody follows at one moment."""
        fresh = lease.followed is None and now_ms - lease.since_ms < FRESH_MS
        if lease.followed or fresh:
            return now_ms + FOLLOWED_MS
        return (now_ms // UNFOLLOWED_MS + 1) * UNFOLLOWED_MS

    def wake(self) -> None:
        """End a pause."""
        self._wake.set()

    def turn(self) -> None:
        """Send what there is to send now. Never raises."""
        now_ms = self._now_ms()
        if not self._backoff.is_due(now_ms) or not self._is_wanted(now_ms):
            return
        message = _Message()
        try:
            for _ in range(MESSAGES_PER_TURN_MAX):
                message = self._message(self._now_ms())
                if not message.pieces:
                    return
                answer = self._uplink.ship(LogBatch(pieces=tuple(message.pieces)))
                self._take(message, answer.pieces)
                self._say("")
                self._backoff.succeeded()
        except Unreachable as error:
            self._backoff.failed(self._now_ms())
            self._say(str(error))
        except Refused as refusal:
            if refusal.status == NONE_IS_HERE:
                for _, each, _ in message.of:
                    each.done = True
                return
            # An older server has no such path; and what it refuses now it would refuse again.
            self._unwanted_until_ms = self._now_ms() + UNWANTED_MS
            self._say(f"the server takes no logs: {refusal}")

    def _begin(self, printing: Printing) -> _Lease:
        streams: tuple[Stream, ...] = get_args(Stream)
        logs = [_Log(each, printing.folder / f"{each}.log") for each in streams]
        now_ms = self._now_ms()
        return _Lease(printing, logs, now_ms, tokens=self._burst, filled_ms=now_ms)

    def _waits(self, lease_id: UUID, most_ms: int) -> bool:
        """Tell if the rest of a log is about to be sent, which nothing waits for beyond a time."""
        now_ms = self._now_ms()
        with self._lock:
            lease = self._leases.get(lease_id)
            if lease is None or lease.done or not self._runs or not self._is_wanted(now_ms):
                return False
            if lease.waited_since_ms is None:
                lease.waited_since_ms = now_ms
                self._wake.set()
            return now_ms - lease.waited_since_ms < most_ms

    def _is_wanted(self, now_ms: int) -> bool:
        return self._unwanted_until_ms is None or now_ms >= self._unwanted_until_ms

    def _message(self, now_ms: int) -> _Message:
        """Gather what is due, a piece of each log in turns until the message is full."""
        message = _Message()
        with self._lock:
            due = [each for each in self._leases.items() if now_ms >= each[1].due_ms]
            for _, lease in due:
                lease.tokens += (now_ms - lease.filled_ms) * self._rate / 1000
                lease.tokens, lease.filled_ms = min(self._burst, lease.tokens), now_ms
            sources = [self._pieces(message, *each) for each in due if each[1].has_news()]
            while sources and message.room > 0:
                sources = [each for each in sources if message.room > 0 and next(each, False)]
            for lease_id, lease in due:
                if not message.pieces or all(each.lease_id != lease_id for each in message.pieces):
                    lease.due_ms = self._next_ms(lease, now_ms)
            # Who had no turn this time is first the next time.
            served = {each.lease_id for each in message.pieces}
            for lease_id in [each for each in self._leases if each in served]:
                self._leases[lease_id] = self._leases.pop(lease_id)
        return message

    def _pieces(self, message: _Message, lease_id: UUID, lease: _Lease) -> Iterator[bool]:
        """Add piece after piece of a lease's logs to a message; True after each."""
        for each in lease.logs:
            yield from self._pieces_of(message, lease_id, lease, each)

    def _pieces_of(
        self, message: _Message, lease_id: UUID, lease: _Lease, each: _Log
    ) -> Iterator[bool]:
        ended = lease.printing.ended
        if each.done or not (ended or each.has_news()):
            return
        if each.size is None:
            ask = LogPiece(
                lease_id=lease_id, attempt=FIRST_ATTEMPT, stream=each.stream, offset=0, data=""
            )
            message.add(lease, each, ask)
            yield True
            return
        offset = each.size
        while True:
            most = min(message.room, int(lease.tokens))
            looked = _look(each.path)
            try:
                start, data, size = read_output(each.path, offset, max(0, most))
            except OSError as error:
                self._say(f"{each.path}: {error}")
                return
            at_end = start + len(data) >= size
            if not data and not (ended and at_end):
                if at_end:
                    each.looked = looked
                return
            piece = LogPiece(
                lease_id=lease_id,
                attempt=FIRST_ATTEMPT,
                stream=each.stream,
                offset=start,
                data=LogPiece.written(data),
                skipped=start > offset,
                ended=ended and at_end,
            )
            message.add(lease, each, piece, looked if at_end else None)
            message.bytes += len(data)
            lease.tokens -= len(data)
            yield True
            if at_end:
                return
            offset = start + len(data)

    def _take(self, message: _Message, answers: tuple[LogPieceTaken, ...]) -> None:
        """Note how far the server is."""
        if len(answers) != len(message.pieces):
            raise Unreachable("the server did not answer each piece of the logs")
        now_ms = self._now_ms()
        with self._lock:
            for piece, (lease, each, looked), said in zip(
                message.pieces, message.of, answers, strict=True
            ):
                if said.outcome == "refused":
                    log.warning("lease %s: the server does not take its log", piece.lease_id)
                each.size = said.size
                taken = said.outcome == "taken"
                each.looked = looked if taken else None
                each.done = said.outcome in ("closed", "refused") or (taken and piece.ended)
                lease.followed = said.followed
                more = each.looked is None or lease.printing.ended
                lease.due_ms = now_ms if more else self._next_ms(lease, now_ms)

    def _say(self, trouble: str) -> None:
        if trouble != self._trouble:
            log.warning("logs: %s", trouble or "the server takes them again")
        self._trouble = trouble


def _look(path: Path) -> tuple[int, int] | None:
    """Return what tells one state of a file from the next; asked for before it is read."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_ino, about.st_size
