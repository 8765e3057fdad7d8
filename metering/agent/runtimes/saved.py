"""The files in which work says up to when it is safe, and that it is alive.

The files are the work's own, and so is what they say. They are read as files, never through a link,
and not beyond a line.
"""

from __future__ import annotations

import os
import re
import stat
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from ..reconcile import epoch_ms
from .port import Work

VARIABLE = "OFFPEAK_CHECKPOINT"
HEARTBEAT = ".heartbeat"
"""Beside the file of checkpoints: "FROM UNTIL", in milliseconds since 1970."""
ALIVE_AHEAD_MS_MAX = 3_600_000
LINE_BYTES_MAX = 64
_ALIVE = re.compile(rb"([0-9]{13}) ([0-9]{13})\s*")


def heard(work: Work, checkpoint: Path, *, now_ms: int) -> Work:
    """Return the work with what it says of itself by now.

    checkpoint: the file of its checkpoints; that of its heartbeat lies beside it.
    """
    saved_ms = written_ms(checkpoint, now_ms=now_ms)
    alive_ms = beaten_ms(checkpoint.with_name(HEARTBEAT), now_ms=now_ms) or work.alive_ms
    if (saved_ms, alive_ms) == (work.saved_ms, work.alive_ms):
        return work
    return replace(work, saved_ms=saved_ms, alive_ms=alive_ms)


def beaten_ms(path: Path, *, now_ms: int) -> tuple[int, int] | None:
    """Return from when until when the work says that it is alive; None: it has no heartbeat.

    It may say so for the hour to come, and not of a time before it.
    """
    read = _line(path)
    found = None if read is None else _ALIVE.fullmatch(read[0])
    if found is None:
        return None
    since_ms, until_ms = int(found[1]), min(int(found[2]), now_ms + ALIVE_AHEAD_MS_MAX)
    return (since_ms, until_ms) if since_ms < until_ms else None


def written_ms(path: Path, *, now_ms: int) -> int | None:
    """Return the moment up to which the work says that it is safe; None: it said nothing.

    An empty file means: up to when it was last touched. Else its line is an RFC 3339 time, for
    work that takes a while to write down what it had at that moment.

    now_ms: by the agent's clock, which the system's need not agree with.
    """
    read = _line(path)
    if read is None:
        return None
    line, touched_ns = read
    if line.strip():
        return _moment_ms(line)
    age_ms = time.time_ns() // 1_000_000 - touched_ns // 1_000_000
    return now_ms - max(0, age_ms)


def _line(path: Path) -> tuple[bytes, int] | None:
    """Return the line of such a file, and when it was written; None: it is none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            return None
        return os.read(file, LINE_BYTES_MAX + 1), about.st_mtime_ns
    except OSError:
        return None
    finally:
        os.close(file)


def _moment_ms(line: bytes) -> int | None:
    try:
        moment = datetime.fromisoformat(line.decode("ascii").strip())
    except ValueError:
        return None
    return None if moment.tzinfo is None else epoch_ms(moment)
