"""Nothing is decided on a time that other clocks contradict.

The wall clock of one machine is moved: by hand, by a time service that was wrong, by a virtual
machine that slept. So it is held against two others: how much time went by since it was last
believed (which nobody can set), and the database's. What they contradict is waited out. Where wall
clock and database go on to agree on the new time, as where both are on one machine whose clock was
put right, it is believed after SETTLED.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog
from django.db import connection

from ledger.domain.refusal import Refusal

STEP_MAX = timedelta(seconds=2)
"""What the wall clock may differ from the time that went by; slow drift is followed."""
APART_MAX = timedelta(seconds=5)
"""What it may differ from the database's."""
DRIFT = 0.001
"""What clocks that are being put right gradually may gain or lose, of the time that goes by."""
SETTLED = timedelta(seconds=60)
COMPARED_EVERY_SECONDS = 5.0
BELIEVED_EVERY_SECONDS = 10.0

log = structlog.get_logger()


class ClockUnsure(Refusal):
    """The clock of this server was moved, or differs from the database's: nothing is decided by it.

    Repeat the request with the same Idempotency-Key in a minute.
    """

    status = 503


def _elapsed() -> float:
    """Return seconds that nobody can set; where the system has it, those asleep are counted."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


def ask_database() -> datetime:
    """Return the database's time."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
    assert row is not None
    told: datetime = row[0]
    return told


class Clock:
    """The wall clock of this process, as far as it may be believed. For many threads."""

    def __init__(
        self,
        *,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        elapsed: Callable[[], float] = _elapsed,
    ) -> None:
        self._wall, self._elapsed = wall, elapsed
        self.begin()

    def begin(self) -> None:
        """Believe the wall clock as it is now, as a process does at its birth."""
        self._guard = threading.Lock()
        self._believed = self._wall(), self._elapsed()
        self._database: tuple[datetime, float] | None = None
        self._moved_by, self._moved_since = timedelta(), 0.0
        self._told = ""
        self.turned_back = 0
        """How often an earlier time was believed after a later one: what was kept in memory of the
        later one is wrong since."""

    @property
    def is_due(self) -> bool:
        """Tell if it is time to compare it with the database's."""
        known = self._database
        return known is None or self._elapsed() - known[1] >= COMPARED_EVERY_SECONDS

    def compare(self, ask: Callable[[], datetime] = ask_database) -> None:
        """Look at the database's clock.

        Raises: what `ask` raises; what was known of it before stays known.
        """
        began = self._elapsed()
        told = ask()
        ended = self._elapsed()
        self._database = told, (began + ended) / 2

    def now(self) -> datetime:
        """Return the time. Raises: ClockUnsure."""
        wall, doubt = self._look()
        if doubt:
            raise ClockUnsure(doubt=doubt)
        return wall

    def doubt(self) -> str:
        """Say what contradicts the wall clock; empty where nothing does."""
        return self._look()[1]

    def _look(self) -> tuple[datetime, str]:
        with self._guard:
            wall, elapsed = self._wall(), self._elapsed()
            apart = self._apart(wall, elapsed)
            doubt = ""
            if abs(apart) > APART_MAX:
                doubt = f"this server's clock is {_words(apart)} of the database's"
            moved = self._moved(wall, elapsed, trusted=not doubt)
            if moved:
                doubt = doubt or f"this server's clock was put {_words(moved)} of where it was"
            if doubt != self._told:
                self._told = doubt
                log.warning("clock.unsure" if doubt else "clock.sure", doubt=doubt)
            return wall, doubt

    def _apart(self, wall: datetime, elapsed: float) -> timedelta:
        """Return by how much the wall clock is ahead of the database's."""
        if self._database is None:
            return timedelta()
        told, at = self._database
        slack = timedelta(seconds=DRIFT * (elapsed - at))
        apart = wall - (told + timedelta(seconds=elapsed - at))
        return apart if abs(apart) > slack else timedelta()

    def _moved(self, wall: datetime, elapsed: float, *, trusted: bool) -> timedelta:
        """Return by how much the wall clock was moved since it was last believed; 0 if believed.

        trusted: the database does not contradict it.
        """
        then, at = self._believed
        gone = elapsed - at
        moved = wall - then - timedelta(seconds=gone)
        most = STEP_MAX + timedelta(seconds=DRIFT * gone)
        if abs(moved) <= most:
            self._moved_by = timedelta()
            if gone >= BELIEVED_EVERY_SECONDS:
                self._believed = wall, elapsed
            return timedelta()
        if abs(moved - self._moved_by) > most or not trusted:
            self._moved_by, self._moved_since = moved, elapsed
        if trusted and elapsed - self._moved_since >= SETTLED.total_seconds():
            log.warning("clock.believed", moved_seconds=moved.total_seconds())
            self._believed, self._moved_by = (wall, elapsed), timedelta()
            self.turned_back += moved < timedelta()
            return timedelta()
        return moved


def _words(apart: timedelta) -> str:
    seconds = abs(apart.total_seconds())
    return f"{seconds:.0f} s {'ahead' if apart > timedelta() else 'behind'}"


clock = Clock()
"""This process's."""
os.register_at_fork(after_in_child=clock.begin)


def end_when_turned_back(stop: threading.Event) -> None:
    """Set `stop` when an earlier time is believed again: books in memory are of a later one."""

    def watch() -> None:
        while not stop.wait(1.0):
            if clock.turned_back:
                log.error("clock.turned-back")
                stop.set()

    threading.Thread(target=watch, name="clock", daemon=True).start()
