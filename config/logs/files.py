"""The logs of processes that a supervisor started: nobody else's to read, and of bounded size.

A child writes to a pipe; what arrives is redacted once more, because not every line of a process
comes from its logging, and goes to a file that is renamed when it is full.
"""

from __future__ import annotations

import os
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


class Lines:
    """What a process says, as it arrives: each line is redacted and goes to its log."""

    def __init__(self, to: LogFile, redact: Callable[[str], str]) -> None:
        self._to = to
        self._redact = redact
        self._begun = b""
        self._too_long = False

    def add(self, said: bytes) -> None:
        """Take what has arrived; write those lines that have ended.

        The rest of a line that is too long is dropped: its start was redacted as a whole.
        """
        *ended, begun = (self._begun + said).split(b"\n")
        for line in ended:
            if not self._too_long:
                self._write(line)
            self._too_long = False
        if self._too_long:
            begun = b""
        elif len(begun) >= LINE_BYTES_MAX:
            self._write(begun)
            begun, self._too_long = b"", True
        self._begun = begun

    def close(self) -> None:
        """Write what was begun, and close the log."""
        if self._begun:
            self._write(self._begun)
        self._begun = b""
        self._to.close()

    def _write(self, line: bytes) -> None:
        text = self._redact(line[:LINE_BYTES_MAX].decode(errors="replace"))
        self._to.write(text.encode(errors="replace") + b"\n")
