"""How a loop is run: one holder at a time, woken by events, never two at once, never silent.

A loop is a `run_once(store, now)` that says how much it did. Its holder is decided by a session
advisory lock of PostgreSQL: when the holder dies, even by kill -9, the server drops its session
and with it the lock, and the next process in line takes over at once. That lock alone would not
stop a holder that was paused and came back; what a loop writes is fenced besides, by stream
versions and by checkpoints that are locked and compared (ADR 0009).
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import cast

import structlog
from django.db import DatabaseError, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from config.database.base import DatabaseWrapper
from config.processes.clock import ClockUnsure, clock
from config.processes.running import Notes
from ledger.eventstore import default_store
from ledger.eventstore.port import EventStore, StoreError

RETRY_SECONDS_MAX = 5.0
STANDBY_SECONDS = 1.0
BELL_RESTS_SECONDS = 0.01
"""After a ring what comes meanwhile is one ring; loops gather for as long anyway."""
IDLE_SECONDS = 1.0
"""After how long without news a subscription looks whether it is to end. That is no news."""

log = structlog.get_logger()


class NotNow(Exception):
    """What a loop needs besides the database is away: it is tried again, and no fault of ours."""


@dataclass(frozen=True, slots=True)
class Loop:
    """Something that is done again and again.

    every_seconds: longest time between two passes. on_events: also passes whenever anything
    is recorded. run_once returns how much it did; while that is not zero it is called again.
    gather_seconds: least time from one pass to the next, so that a stream of events is worked off
    in pages, not one by one; the first after a silence is not kept waiting.
    rest_seconds_max: a pass that did something is followed by a rest `rests` times as long as it
    took, but no longer than this: the more there is to do, the larger pages become.
    prepare: done once before the loop asks for its turn, so that it holds up nobody.
    kernels: says how far the process is with the compiled kernels that the loop decides by.
    rounds: says how the last round is doing that was worked out beside the loop.
    """

    name: str
    every_seconds: float
    run_once: Callable[[EventStore, datetime], int]
    on_events: bool = False
    gather_seconds: float = 0.0
    rest_seconds_max: float = 0.0
    rests: float = 1.0
    prepare: Callable[[], None] | None = None
    kernels: Callable[[], str] | None = None
    rounds: Callable[[], str] | None = None


def run_loop(loop: Loop, *, stop: threading.Event) -> None:
    """Run `loop` whenever this process holds its lock, until `stop` is set.

    A lost database or store is waited for, with back-off, and so is a clock that others
    contradict; a fault of the loop itself is logged and tried again likewise, so that one bad pass
    does not end the loop for good.
    """
    if loop.prepare is not None:
        loop.prepare()
    failures, notes = 0, Notes(loop.name, loop.every_seconds, loop.kernels, loop.rounds)
    while not stop.is_set():
        try:
            if _in_line.is_free(loop.name) and _hold(loop.name):
                _in_line.leave(loop.name)
                _passes(loop, stop, notes)
                break
            connection.close()
            stop.wait(STANDBY_SECONDS)
            failures = 0
            continue
        except (StoreError, DatabaseError, NotNow, ClockUnsure) as lost:
            error = str(lost).strip()
            failures = notes.count(failures)
            log.warning("loop.waiting", loop=loop.name, error=error, failures=failures)
        except Exception as fault:  # logged and counted: a loop goes on
            error = repr(fault)
            failures = notes.count(failures)
            log.exception("loop.failed", loop=loop.name, failures=failures)
        _let_go(notes, failures, error)
        ceiling = min(RETRY_SECONDS_MAX, 0.1 * 2**failures)
        # Jitter, so that loops that lost the same server do not come back in step.
        stop.wait(ceiling * (0.5 + random.random() / 2))
    _in_line.leave(loop.name)
    connection.close()


def _let_go(notes: Notes, failures: int, error: str) -> None:
    """Leave the loop to whoever is next, and say why where that can be told."""
    connection.close()
    if notes.holds:
        with suppress(DatabaseError, StoreError):
            notes.failed(failures, error)
        connection.close()


def _hold(name: str) -> bool:
    """Take the loop's lock on this thread's connection, which keeps it while it lives."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [lock_of(name)])
        row = cursor.fetchone()
    return bool(row and row[0])


def lock_of(name: str) -> int:
    """Return the key of a loop's advisory lock, the same on every machine of an installation."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


class InLine:
    """Where the loops of a process that stand by look whether it is their turn.

    Over one connection for all of them, and none where there are none: waiting must not cost what
    working costs.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: set[str] = set()
        self._connected: BaseDatabaseWrapper | None = None

    def is_free(self, name: str) -> bool:
        """Tell if nobody holds a loop at this moment."""
        with self._guard:
            self._waiting.add(name)
            if self._connected is None:
                self._connected = connections["default"].copy()
                self._connected.inc_thread_sharing()
            try:
                with self._connected.cursor() as cursor:
                    cursor.execute(
                        "SELECT CASE WHEN pg_try_advisory_lock(%s)"
                        " THEN pg_advisory_unlock(%s) ELSE false END",
                        [lock_of(name), lock_of(name)],
                    )
                    row = cursor.fetchone()
            except BaseException:
                self._connected.close()
                raise
        return bool(row and row[0])

    def leave(self, name: str) -> None:
        """Stand by no more."""
        with self._guard:
            self._waiting.discard(name)
            if not self._waiting and self._connected is not None:
                self._connected.close()
                self._connected = None


_in_line = InLine()


class LockLost(Exception):
    """The connection that held the loop's lock is gone: somebody else may hold it now."""


def _passes(loop: Loop, stop: threading.Event, notes: Notes) -> None:
    log.info("loop.holding", loop=loop.name, process=os.getpid())
    cast(DatabaseWrapper, connections["default"]).must_last = True
    held = connection.connection
    notes.hold()
    store = default_store()
    bell = Bell(store, stop) if loop.on_events else None
    while not stop.is_set():
        if connection.connection is not held or held.closed:
            raise LockLost(loop.name)
        started = time.monotonic()
        seen = bell.rings if bell else 0
        did = loop.run_once(store, _time())
        took = time.monotonic() - started
        notes.passed(did, took)
        if not did:
            rest = max(0.0, loop.every_seconds - took)
            if bell:
                bell.wait(seen, rest)
            else:
                stop.wait(rest)
        gathering = rest_after(loop, did, took) - (time.monotonic() - started - took)
        if gathering > 0:
            stop.wait(gathering)


def rest_after(loop: Loop, did: int, took_seconds: float) -> float:
    """Return for how long after a pass ended the next one is put off, whatever comes meanwhile."""
    worked = min(loop.rests * took_seconds, loop.rest_seconds_max) if did else 0.0
    return max(worked, loop.gather_seconds - took_seconds)


def _time() -> datetime:
    """Return the time, as far as no other clock contradicts it. Raises: ClockUnsure."""
    if clock.is_due:
        clock.compare()
    return clock.now()


def wake() -> None:
    """Let the loops of this process that wait for events look again."""
    if Bell._shared is not None:
        Bell._shared.ring()


class Bell:
    """Rings whenever the store has recorded something: one subscription per process."""

    _shared: Bell | None = None
    _guard = threading.Lock()

    def __new__(cls, store: EventStore, stop: threading.Event) -> Bell:
        with cls._guard:
            if cls._shared is None:
                cls._shared = super().__new__(cls)
                cls._shared._start(store, stop)
            return cls._shared

    def _start(self, store: EventStore, stop: threading.Event) -> None:
        self.rings = 0
        self._changed = threading.Condition()
        self._stop = stop
        listen = threading.Thread(target=self._listen, args=(store,), name="bell", daemon=True)
        listen.start()

    def _listen(self, store: EventStore) -> None:
        while not self._stop.is_set():
            try:
                head = store.head()
                connection.close()  # nothing more is read over it
                told = store.subscribe(
                    after=head, only=frozenset(), stop=self._stop, idle_seconds=IDLE_SECONDS
                )
                reached, began = None, time.monotonic()
                for each in told:
                    idle = time.monotonic() - began >= IDLE_SECONDS
                    if each.position != reached or not idle:
                        self.ring()
                        self._stop.wait(BELL_RESTS_SECONDS)
                    reached, began = each.position, time.monotonic()
            except (StoreError, DatabaseError) as lost:
                log.warning("bell.waiting", error=str(lost).strip())
                connection.close()
                self._stop.wait(STANDBY_SECONDS)
        connection.close()
        with self._guard:
            type(self)._shared = None  # a loop that starts later needs one that listens
        with self._changed:
            self._changed.notify_all()

    def ring(self) -> None:
        """Ring."""
        with self._changed:
            self.rings += 1
            self._changed.notify_all()

    def wait(self, seen: int, seconds: float) -> None:
        """Wait until it has rung since `seen`, at most `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self.rings != seen or self._stop.is_set(), seconds)
