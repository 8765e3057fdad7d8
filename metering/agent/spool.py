"""The agent's memory on disk: an append-only log that survives kill -9 at any byte.

The log is a row of segment files. A line is `<crc32 in hex> <JSON list of records>\n`: the records
of one append stand in one line, so they are all there or none is. Each run of the agent begins a
segment of its own, so nothing is ever written behind a torn line. Every segment begins with a
`head` record that holds the whole state but for what waits to be sent; older segments are dropped
when nothing in them waits any more.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]

SEGMENT_BYTES = 1024 * 1024
BYTES_MAX = 64 * 1024 * 1024
RESERVE_BYTES = 4 * 1024 * 1024
"""What only urgent records (ends of leases) may use above the bound."""
SUFFIX = ".log"


class SpoolFull(Exception):
    """The records could not be kept: the spool is at its bound, or the disk would not take them.

    Nothing was kept of them; the caller keeps them in mind and tries again.
    """


class Spool:
    """The log in one folder. Open it, `replay()` it to the end, then `begin()`, then append."""

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        bytes_max: int = BYTES_MAX,
        write: Callable[[int, bytes], int] = os.write,
        sync: Callable[[int], None] = os.fsync,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._bytes_max = bytes_max
        self._write = write
        self._sync = sync
        self._sizes = {
            int(path.stem): path.stat().st_size
            for path in folder.iterdir()
            if path.suffix == SUFFIX and path.stem.isdigit()
        }
        self._file: int | None = None
        self._head: Callable[[], Record] | None = None
        self.damaged_lines = 0

    @property
    def segment(self) -> int:
        """The number of the segment that is being written."""
        return max(self._sizes, default=0)

    @property
    def bytes_used(self) -> int:
        return sum(self._sizes.values())

    def replay(self) -> Iterator[tuple[int, Record]]:
        """Yield every kept record, oldest first, with the number of its segment.

        A line that is torn or damaged is skipped and counted in `damaged_lines`; a torn last line
        of a segment is what a kill leaves, and was never reported as kept.
        """
        for number in sorted(self._sizes):
            with self._path(number).open("rb") as file:
                for line in file:
                    records = _decode(line)
                    if records is None:
                        self.damaged_lines += 1
                        continue
                    for record in records:
                        yield number, record

    def begin(self, head: Callable[[], Record]) -> None:
        """Start this run's own segment; `head` gives the state to put at the top of each.

        Raises: SpoolFull.
        """
        self._head = head
        self._open_segment()

    def append(self, records: Sequence[Record], *, urgent: bool = False, sync: bool = True) -> int:
        """Keep the records, all or none, and return the number of their segment.

        urgent: may use the reserve above the bound. sync: on return they survive a power cut;
        without it they survive a kill, which suffices for what can be asked again.
        Raises: SpoolFull.
        """
        line = _encode(records)
        bound = self._bytes_max + (RESERVE_BYTES if urgent else 0)
        if self.bytes_used + len(line) > bound:
            raise SpoolFull(f"the spool has reached its bound of {bound} bytes")
        if self._file is None or self._sizes[self.segment] + len(line) > self._segment_bytes:
            self._open_segment()
        self._put(line, sync=sync)
        return self.segment

    def drop_before(self, number: int) -> None:
        """Remove the segments before `number`; the one being written always stays."""
        for old in [each for each in self._sizes if each < min(number, self.segment)]:
            self._path(old).unlink(missing_ok=True)
            del self._sizes[old]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012d}{SUFFIX}"

    def _open_segment(self) -> None:
        assert self._head is not None, "begin() comes before append()"
        number = self.segment + 1
        previous = self._file
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        try:
            file = os.open(self._path(number), flags, 0o600)
        except OSError as error:
            raise SpoolFull(f"no new segment: {error.strerror}") from error
        self._file = file
        self._sizes[number] = 0
        try:
            self._put(_encode([self._head()]), sync=True)
            self._sync_folder()
        except (SpoolFull, OSError) as error:
            os.close(file)
            self._path(number).unlink(missing_ok=True)
            del self._sizes[number]
            self._file = previous
            raise SpoolFull(str(error)) from error
        if previous is not None:
            os.close(previous)

    def _put(self, line: bytes, *, sync: bool) -> None:
        assert self._file is not None
        size = self._sizes[self.segment]
        try:
            done = 0
            while done < len(line):
                done += self._write(self._file, line[done:])
            if sync:
                self._sync(self._file)
        except OSError as error:
            try:
                os.ftruncate(self._file, size)
            except OSError:
                # A torn line stays behind; what comes next must not be written after it.
                os.close(self._file)
                self._file = None
            raise SpoolFull(f"the disk did not take it: {error.strerror}") from error
        self._sizes[self.segment] = size + len(line)

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            self._sync(folder)
        finally:
            os.close(folder)


def _encode(records: Sequence[Record]) -> bytes:
    text = json.dumps(records, separators=(",", ":"), allow_nan=False).encode()
    return b"%08x %b\n" % (zlib.crc32(text), text)


def _decode(line: bytes) -> list[Record] | None:
    checksum, space, text = line[:8], line[8:9], line[9:-1]
    if space != b" " or line[-1:] != b"\n" or b"%08x" % zlib.crc32(text) != checksum:
        return None
    records: list[Record] = json.loads(text)
    return records
