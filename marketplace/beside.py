"""Work that takes seconds, done in a fork of this process while it goes on.

A fork sees the book as it was at that moment, without a copy being made first: pages are copied as
either side writes to them. It has the compiled kernels too. It does nothing but compute: it closes
what is open at once, so that it holds no connection, and with it no lock, of a process that is
gone; it writes no log; it ends without any clean-up, which would be its parent's. It ends when the
thread does that forked it.

What may have been in other threads' hands at that moment is not touched: no import is begun there,
nothing is compiled, no database asked. Should it hang all the same, its time is up some day.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

SECONDS_MAX = 300.0
"""After so long it is ended."""
NICENESS = 3
"""It gives way to who decides at once."""
OUTPUT = 3
"""The one descriptor beside standard input, output and error that it keeps."""
FILES_MAX = 65_536
READ_BYTES = 1 << 20
LENGTH = struct.Struct(">Q")
LOST = "lost"
"""Begins what is said where the last work did not come back."""
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


class Lost(Exception):
    """What was worked out beside did not come back."""


class Out(Protocol):
    """Work that is out."""

    @property
    def is_over(self) -> bool:
        """Tell if it has an end, or should have."""
        ...

    def result(self) -> bytes:
        """Return what it came to, once it is over. Raises: Lost."""
        ...

    def stop(self) -> None:
        """End it: nobody waits for it any more."""
        ...


Beside = Callable[[Callable[[], bytes]], Out]
"""What begins work beside this process."""


def nobody() -> None:
    """Wake nobody."""


class Forked:
    """Work in a fork. Its result is read by a thread, so that it never waits to be read.

    wake: called once it is over, from that thread.
    """

    def __init__(
        self,
        work: Callable[[], bytes],
        *,
        wake: Callable[[], object] = nobody,
        seconds_max: float = SECONDS_MAX,
    ) -> None:
        reads, writes = os.pipe()
        parent = os.getpid()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
            try:
                self._child = os.fork()
            except OSError as refused:
                os.close(reads)
                os.close(writes)
                raise Lost(f"it could not be begun: {refused.strerror}") from refused
            if not self._child:
                _be_the_child(work, parent, writes)
        os.close(writes)
        self._due = time.monotonic() + seconds_max
        self._reads, self._wake = reads, wake
        self._told, self._ended, self._status = b"", threading.Event(), 0
        self._guard = threading.Lock()
        threading.Thread(target=self._read, name="beside", daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Tell if it has an end, or should have."""
        return self._ended.is_set() or time.monotonic() > self._due

    def result(self) -> bytes:
        """Return what it came to, once it is over. Raises: Lost."""
        if not self._ended.is_set():
            self.stop()
            raise Lost("it took too long")
        told = self._told
        whole = len(told) >= LENGTH.size and LENGTH.unpack_from(told)[0] == len(told) - LENGTH.size
        if self._status or not whole:
            raise Lost(_words_of(self._status, told))
        return told[LENGTH.size :]

    def stop(self) -> None:
        """End it."""
        with self._guard:  # once it is reaped, its number may be another's
            if not self._ended.is_set():
                os.kill(self._child, signal.SIGKILL)

    def _read(self) -> None:
        parts = []
        with suppress(OSError):
            while part := os.read(self._reads, READ_BYTES):
                parts.append(part)
        os.close(self._reads)
        with self._guard:
            self._status = os.waitpid(self._child, 0)[1]
            self._told = b"".join(parts)
            self._ended.set()
        self._wake()


def _words_of(status: int, told: bytes) -> str:
    """Say how work ended that came to nothing."""
    if os.WIFSIGNALED(status):
        return f"it was ended by signal {os.WTERMSIG(status)}"
    why = told[LENGTH.size :].decode(errors="replace")
    return f"it failed: {why}" if why else f"it ended with {os.waitstatus_to_exitcode(status)}"


def _be_the_child(work: Callable[[], bytes], parent: int, writes: int) -> None:
    """Work, write what that came to, and end; in the fork."""
    status = 1
    try:
        gc.disable()  # it would write to all there is
        _end_with(parent)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        if writes != OUTPUT:
            os.dup2(writes, OUTPUT)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        os.closerange(OUTPUT + 1, FILES_MAX if limit == resource.RLIM_INFINITY else limit)
        with suppress(OSError):
            os.nice(NICENESS)
        _go_first()
        try:
            told = work()
            status = 0
        except Exception as broken:  # told to the parent, which raises it
            told = repr(broken).encode()
        _write(LENGTH.pack(len(told)) + told)
    finally:
        os._exit(status)


def _end_with(parent: int) -> None:
    """End when the thread that forked us does, where the system can see to that."""
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _go_first() -> None:
    """Be the one that goes where memory is short."""
    with suppress(OSError):
        handle = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(handle, b"1000")
        os.close(handle)


def _write(told: bytes) -> None:
    view = memoryview(told)
    while view:
        view = view[os.write(OUTPUT, view) :]
