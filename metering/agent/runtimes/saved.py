"""The file in which work says up to when it is safe.

The file is the work's own, and so is what it says. It is read as a file, never through a link, and
not beyond a line.
"""

from __future__ import annotations

import os
import stat
import time
from datetime import datetime
from pathlib import Path

from ..reconcile import epoch_ms

VARIABLE = "OFFPEAK_CHECKPOINT"
LINE_BYTES_MAX = 64


def written_ms(path: Path, *, now_ms: int) -> int | None:
    """Return the moment up to which the work says that it is safe; None: it said nothing.

    An empty file means: up to when it was last touched. Else its line is an RFC 3339 time, for
    work that takes a while to write down what it had at that moment.

    now_ms: by the agent's clock, which the system's need not agree with.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            return None
        line = os.read(file, LINE_BYTES_MAX + 1)
    except OSError:
        return None
    finally:
        os.close(file)
    if line.strip():
        return _moment_ms(line)
    age_ms = time.time_ns() // 1_000_000 - about.st_mtime_ns // 1_000_000
    return now_ms - max(0, age_ms)


def _moment_ms(line: bytes) -> int | None:
    try:
        moment = datetime.fromisoformat(line.decode("ascii").strip())
    except ValueError:
        return None
    return None if moment.tzinfo is None else epoch_ms(moment)
