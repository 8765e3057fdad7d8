"""Which process begins as the work of a lease, noted by itself before it becomes the work.

Between the start of the command and the record of it its keeper may be killed. Then nobody would
know the work: it would go on for ever, unmetered, on a card that others lease. So the process
notes itself first, and dies with its keeper until it has.

With the standard library alone: the keeper uses it as a script (see keeper.py).
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING or __package__:
    from .family import kill_all, stat_of
else:
    from family import kill_all, stat_of

PR_SET_PDEATHSIG = 1
NAME = "child"
BYTES = 96
NOBODY = -1
"""No process is below it."""


class Noted:
    """The note of one start; made by the keeper, written by the process that it starts."""

    def __init__(self, folder: Path, open_files: ExitStack) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._file = os.open(folder / NAME, flags, 0o600)
        open_files.callback(os.close, self._file)
        os.posix_fallocate(self._file, 0, BYTES)
        self._keeper, self._boot = os.getpid(), _boot_id()

    def write(self) -> None:
        """Write down who this process is. Raises: OSError where its keeper is dead."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        stat = stat_of(os.getpid())
        if stat is None or os.getppid() != self._keeper:
            raise ProcessLookupError(3, "its keeper is dead")
        note = f"{stat.pid} {stat.ticks} {self._boot}"
        os.pwrite(self._file, note.encode().ljust(BYTES), 0)
        libc.prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)


def noted_in(folder: Path) -> tuple[int, int] | None:
    """Return the process that began as the work of a folder, and its start; None: none did.

    It leads a session. None also of one that a restart of the host ended.
    """
    try:
        pid, ticks, boot = (folder / NAME).read_text().split()
        return (int(pid), int(ticks)) if boot == _boot_id() else None
    except (OSError, ValueError):
        return None


def end_noted(folder: Path) -> None:
    """Kill what began of work whose keeper died before it could write of that.

    By its session, whose number no other process has while one of it lives.
    """
    if (noted := noted_in(folder)) is None:
        return
    session, ticks = noted
    first = stat_of(session)
    if first is None or first.ticks == ticks:
        kill_all(NOBODY, session=session)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
