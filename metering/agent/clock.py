"""The agent's time: UTC in whole milliseconds that only ever moves forward.

Lengths come from CLOCK_BOOTTIME, which no clock step touches and which runs on through suspend.
It is mapped to UTC once, by one offset kept on disk while work runs, so that the intervals of a
lease fit together even across a restart of the agent or a step of the wall clock.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from functools import cache
from pathlib import Path
from typing import Protocol

log = logging.getLogger(__name__)

DRIFT_NS_MAX = 50_000_000
"""A kept offset within 50 ms of the wall clock is kept even when no work runs."""


class Clock(Protocol):
    """What the agent asks of time."""

    def now_ms(self) -> int:
        """Return UTC in milliseconds; never less than the answer before."""
        ...

    def wall_us(self) -> int:
        """Return the wall clock in microseconds, the time base of the driver's samples."""
        ...

    def at_boot_ns(self, boot_ns: int) -> int:
        """Return the UTC milliseconds of a CLOCK_BOOTTIME reading in nanoseconds."""
        ...

    def boot_ns_at(self, utc_ms: int) -> int:
        """Return the CLOCK_BOOTTIME reading in nanoseconds at a moment of this clock."""
        ...


class SystemClock:
    """The host's clock.

    offset_ns: UTC minus CLOCK_BOOTTIME; taken now when not given.
    """

    def __init__(self, offset_ns: int | None = None) -> None:
        self.offset_ns = _offset_now_ns() if offset_ns is None else offset_ns

    def now_ms(self) -> int:
        return self.at_boot_ns(boot_ns())

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def at_boot_ns(self, boot_ns: int) -> int:
        return (boot_ns + self.offset_ns) // 1_000_000

    def boot_ns_at(self, utc_ms: int) -> int:
        return utc_ms * 1_000_000 - self.offset_ns

    @classmethod
    def kept_in(cls, path: Path, *, work_runs: bool) -> SystemClock:
        """Return the clock whose offset is kept in the file `path`.

        The offset is taken anew after a reboot, and when the wall clock was set while no work
        runs. While work runs it stays, whatever happens to the wall clock.
        """
        fresh = cls()
        try:
            kept = json.loads(path.read_text())
            offset_ns, boot = int(kept["offset_ns"]), kept["kernel_boot_id"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            boot = None
        if boot == kernel_boot_id() and (
            work_runs or abs(offset_ns - fresh.offset_ns) <= DRIFT_NS_MAX
        ):
            return cls(offset_ns)
        new, record = path.with_suffix(".new"), {"offset_ns": fresh.offset_ns}
        try:
            new.write_text(json.dumps(record | {"kernel_boot_id": kernel_boot_id()}))
            os.replace(new, path)
        except OSError as error:
            # On a full disk work has to be ended in time as well. The next start takes it anew.
            log.warning("the clock's offset is not kept: %s", error)
        return fresh


class ManualClock:
    """A clock that stands still until it is moved: for tests and accelerated demos."""

    def __init__(self, now_ms: int) -> None:
        self._now_us = now_ms * 1000
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        return self._now_us // 1000

    def wall_us(self) -> int:
        return self._now_us

    def at_boot_ns(self, boot_ns: int) -> int:
        raise NotImplementedError("a manual clock has no boot time: use a simulated runtime")

    def boot_ns_at(self, utc_ms: int) -> int:
        raise NotImplementedError("a manual clock has no boot time: use a simulated runtime")

    def advance(self, milliseconds: int) -> None:
        """Move forward."""
        assert milliseconds >= 0
        with self._lock:
            self._now_us += milliseconds * 1000


def boot_ns() -> int:
    """Return CLOCK_BOOTTIME in nanoseconds."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@cache
def kernel_boot_id() -> str:
    """Return the id the kernel drew at boot; CLOCK_BOOTTIME readings compare only within it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _offset_now_ns() -> int:
    # The wall clock is read between two readings of the other, so a pause in between shows.
    best: tuple[int, int] | None = None
    for _ in range(5):
        before, wall, after = boot_ns(), time.time_ns(), boot_ns()
        pause, offset = after - before, wall - (before + after) // 2
        if best is None or pause < best[0]:
            best = (pause, offset)
    assert best is not None
    return best[1]
