"""What work prints, in files of bounded size: its head and its tail, each byte at its offset.

`stdout.log` is the newest part; older ones are `stdout.log.OFFSET`, by the offset of their first
byte. An offset counts all bytes of the stream since the work began, so nothing that is dropped
moves it. Only the standard library is imported: the keeper runs this file on its own.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

PARTS_MAX = 8
"""The head, and the newest seven."""
TRIES_MAX = 20
PART_BYTES_MIN = 256


class Output:
    """The writer of one stream; in all its parts up to `bytes_max`.

    When the disk is full what comes is dropped, for the work must go on; once there is room, a
    line in its place says how many bytes that were.
    """

    def __init__(self, path: Path, bytes_max: int) -> None:
        self._path = path
        self._part_bytes = max(PART_BYTES_MIN, bytes_max // PARTS_MAX)
        self._base = _end_of_older(older(path))
        self._file = path.open("ab", buffering=0)
        self._bytes = self._file.tell()
        self._lost = 0

    def write(self, data: bytes) -> None:
        """Append."""
        if self._lost:
            said = f"\n[offpeak: {self._lost} bytes were lost here: the disk was full]\n".encode()
            if self._put_all(said) < len(said):
                self._lost += len(data)
                return
            self._lost = 0
        self._lost += len(data) - self._put_all(data)

    def close(self) -> None:
        """Write no more."""
        self._file.close()

    def _put_all(self, data: bytes) -> int:
        """Return how many of the bytes are written."""
        written = 0
        with suppress(OSError, ValueError):
            while written < len(data):
                if self._bytes >= self._part_bytes:
                    self._turn()
                room = self._part_bytes - self._bytes
                count = self._file.write(data[written : written + room]) or 0
                self._bytes += count
                written += count
        return written

    def _turn(self) -> None:
        """Begin a new part, and drop the oldest one after the head where there are too many."""
        known = older(self._path)
        surplus = max(0, len(known) + 2 - PARTS_MAX)
        for _, part in known[1 : 1 + surplus]:
            part.unlink(missing_ok=True)
        new = self._path.with_name(self._path.name + ".new")
        file = new.open("wb", buffering=0)
        os.replace(self._path, self._path.with_name(f"{self._path.name}.{self._base}"))
        os.replace(new, self._path)
        self._file.close()
        self._file = file
        self._base, self._bytes = self._base + self._bytes, 0


def older(path: Path) -> list[tuple[int, Path]]:
    """Return the older parts by the offset of their first byte, the head first."""
    prefix = path.name + "."
    found = []
    with suppress(FileNotFoundError):
        for name in os.listdir(path.parent):
            base = name.removeprefix(prefix)
            if name.startswith(prefix) and base.isascii() and base.isdigit():
                found.append((int(base), path.parent / name))
    return sorted(found)


def read_output(path: Path, offset: int, most: int) -> tuple[int, bytes, int]:
    """Return where bytes begin, those bytes, and how many the stream has had in all.

    They begin later than asked where what was there is dropped. The writer goes on meanwhile, so
    the newest part is opened first, and all is looked at again if it is not the newest any more.
    """
    for _ in range(TRIES_MAX):
        with suppress(FileNotFoundError):
            newest = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                known = older(path)
                base = _end_of_older(known)
                about = os.fstat(newest)
                if about.st_ino != path.stat().st_ino:
                    continue
                size = base + about.st_size
                if offset >= base:
                    return offset, os.pread(newest, most, offset - base), size
                start, data = _read_older(known, offset, most)
                return (start, data, size) if data else (base, os.pread(newest, most, 0), size)
            finally:
                os.close(newest)
    return offset, b"", 0


def _read_older(known: list[tuple[int, Path]], offset: int, most: int) -> tuple[int, bytes]:
    for base, part in known:
        if offset < base + part.stat().st_size:
            start = max(offset, base)
            with part.open("rb", buffering=0) as file:
                return start, os.pread(file.fileno(), most, start - base)
    return offset, b""


def _end_of_older(known: list[tuple[int, Path]]) -> int:
    if not known:
        return 0
    base, part = known[-1]
    return base + part.stat().st_size
