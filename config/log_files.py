"""The logs of processes that a supervisor started: nobody else's to read, and of bounded size.

A child writes to a pipe; what arrives is redacted once more, because not every line of a process
comes from its logging, and goes to a file that is renamed when it is full.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import IO

BYTES_MAX = 5_000_000
"""Of one file. A process has at most KEPT + 1 of them."""
KEPT = 2
LINE_BYTES_MAX = 64_000


class LogFile:
    """A file of lines that starts anew when it is full; the last few are kept beside it."""

    def __init__(self, path: Path, *, bytes_max: int = BYTES_MAX, kept: int = KEPT) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._kept = kept
        self._file: IO[bytes] | None = None
        self._size = 0

    def write(self, line: bytes) -> None:
        """Write a line. One that the disk does not take is lost: the process goes on."""
        with suppress(OSError):
            if self._file is None:
                self._open()
            elif self._size + len(line) > self._bytes_max:
                self.close()
                self._rotate()
                self._open()
            assert self._file is not None
            self._file.write(line)
            self._size += len(line)

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, 0o600)
        os.fchmod(descriptor, 0o600)
        self._size = os.fstat(descriptor).st_size
        self._file = os.fdopen(descriptor, "wb", buffering=0)
        if self._size >= self._bytes_max:
            self.close()
            self._rotate()
            self._open()

    def _rotate(self) -> None:
        names = [self._path, *(self._older(number) for number in range(1, self._kept + 1))]
        for newer, older in reversed(list(pairwise(names))):
            with suppress(FileNotFoundError):
                newer.replace(older)
        with suppress(FileNotFoundError):
            self._path.unlink()

    def _older(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def pump(source: IO[bytes], to: LogFile, redact: Callable[[str], str]) -> threading.Thread:
    """Write what a process says to its log until it has closed its end."""

    def write_all() -> None:
        with source:
            whole = True
            while line := source.readline(LINE_BYTES_MAX):
                ends = line.endswith(b"\n")
                # The rest of a line that is too long is dropped: its start was redacted as a whole.
                if whole:
                    text = redact(line.decode(errors="replace").rstrip("\n"))
                    to.write(text.encode(errors="replace") + b"\n")
                whole = ends
        to.close()

    thread = threading.Thread(target=write_all, name="log", daemon=True)
    thread.start()
    return thread
