"""Logs of work that may still grow: files on this machine, each byte at its offset in the stream.

A log is a folder's files `STREAM.OFFSET`, parts by the offset of their first byte. The sizes of
the files are the only truth about what is there; so several web processes take and read one log,
and a kill at any moment loses nothing that was answered. The head and the tail are kept, and
whoever reads across what was dropped is told how much that was.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import UUID

from marketplace.storage.port import StorageAway, StorageFull

HEAD_BYTES = 8 * 2**20
TAIL_BYTES = 56 * 2**20
PARTS_MAX = 64
FOLLOWED_SECONDS = 20.0
"""So long after a follower last said so a log counts as followed."""
LOCKS = 64
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Outcome = Literal["taken", "ahead", "closed"]


@dataclass(frozen=True, slots=True)
class LogKey:
    """One stream of what a host ran for a lease. attempt: which run there, from 1."""

    lease_id: UUID
    host_id: UUID
    attempt: int
    stream: str

    @property
    def folder(self) -> str:
        """Return the name of the folder in which the attempt's streams are."""
        return f"{self.lease_id}/{self.host_id}.{self.attempt}"


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes that follow each other. base: the offset of the first."""

    base: int
    size: int

    @property
    def end(self) -> int:
        """Return the offset after the last byte."""
        return self.base + self.size


class OpenLogs:
    """The logs below `root`. Safe for threads and processes: who writes holds a lock meanwhile.

    Raises in what reads or writes: StorageFull, StorageAway.
    """

    def __init__(
        self, root: Path, *, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES
    ) -> None:
        self.root = root
        self._head_bytes, self._tail_bytes = head_bytes, tail_bytes

    def begin(self, key: LogKey) -> None:
        """Make room for a log, with nothing in it."""
        with self._locked(key), _told():
            if not self.parts(key):
                self._folder(key).mkdir(parents=True, exist_ok=True, mode=0o700)
                self._part(key, 0).touch(mode=0o600)

    def append(
        self, key: LogKey, offset: int, data: bytes, *, skipped: bool = False, ended: bool = False
    ) -> tuple[Outcome, int]:
        """Add bytes where the log ends; return what became of them, and where it ends now.

        What is known already is left out. Bytes further on are `ahead`, unless `skipped` says that
        those between are nowhere any more. ended: nothing follows. A log that was not begun is
        `closed`, and so is one that has ended.
        """
        with self._locked(key), _told():
            parts, marks = self._look(key)
            if not parts or "closed" in marks:
                return "closed", parts[-1].end if parts else 0
            size, final = parts[-1].end, self.final_size(key) if "end" in marks else None
            if final is not None:
                return "taken" if offset + len(data) <= final else "closed", size
            if offset > size and not skipped:
                return "ahead", size
            if offset <= size:
                offset, data = size, data[size - offset :]
            self._write(key, parts, offset, data)
            if ended:
                self._mark(key, "end").write_text(str(offset + len(data)))
            return "taken", offset + len(data)

    def parts(self, key: LogKey) -> list[Part]:
        """Return what is there, in order; empty for a log that was not begun."""
        return self._look(key)[0]

    def _look(self, key: LogKey) -> tuple[list[Part], set[str]]:
        """Return the parts of a log in order, and its marks: one look at the folder for both."""
        found, marks, prefix = list[Part](), set[str](), f"{key.stream}."
        with suppress(FileNotFoundError), os.scandir(self._folder(key)) as entries:
            for entry in entries:
                if not entry.name.startswith(prefix):
                    continue
                base = entry.name[len(prefix) :]
                if not (base.isascii() and base.isdigit()):
                    marks.add(base)
                    continue
                with suppress(FileNotFoundError):  # dropped meanwhile
                    found.append(Part(int(base), entry.stat().st_size))
        found.sort(key=lambda part: part.base)
        return found, marks

    def size(self, key: LogKey) -> int | None:
        """Return where a log ends; None for one that is not here."""
        parts = self.parts(key)
        return parts[-1].end if parts else None

    def final_size(self, key: LogKey) -> int | None:
        """Return where a log ends for ever, which is said with its last bytes; None before."""
        try:
            text = self._mark(key, "end").read_text()
        except FileNotFoundError:
            return None
        return int(text) if text else None

    def read(self, key: LogKey, offset: int, most: int) -> tuple[int, bytes]:
        """Return where bytes begin, and at most so many; later than asked where some are dropped.

        No bytes: that is all for now.
        """
        while True:
            for part in self.parts(key):
                if offset < part.end:
                    start = max(offset, part.base)
                    try:
                        with self._part(key, part.base).open("rb", buffering=0) as file:
                            return start, os.pread(file.fileno(), most, start - part.base)
                    except FileNotFoundError:
                        break  # dropped meanwhile: look again
            else:
                return offset, b""

    def written_at(self, key: LogKey) -> float:
        """Return when a log was last written, in seconds since 1970."""
        folder = self._folder(key)
        names = [f"{key.stream}.{part.base}" for part in self.parts(key)]
        return max((folder / name).stat().st_mtime for name in names)

    def follow(self, lease_id: UUID) -> None:
        """Note that somebody reads a lease's log along."""
        with suppress(OSError):
            self.root.joinpath(str(lease_id)).mkdir(parents=True, exist_ok=True, mode=0o700)
            self.root.joinpath(str(lease_id), "followed").touch()

    def is_followed(self, lease_id: UUID) -> bool:
        """Tell if somebody reads a lease's log along."""
        try:
            at = self.root.joinpath(str(lease_id), "followed").stat().st_mtime
        except OSError:
            return False
        return time.time() - at < FOLLOWED_SECONDS

    def known(self) -> Iterator[LogKey]:
        """Yield every log that is here."""
        for lease in _folders(self.root):
            for attempt in _folders(lease):
                host, _, number = attempt.name.partition(".")
                with suppress(ValueError):
                    ids = UUID(lease.name), UUID(host), int(number)
                    bases = {name.partition(".")[0] for name in os.listdir(attempt)}
                    yield from (LogKey(*ids, stream) for stream in sorted(bases))

    def close(self, key: LogKey) -> None:
        """Take nothing more for a log."""
        with self._locked(key), _told():
            self._mark(key, "closed").touch()

    def remove(self, key: LogKey) -> None:
        """Remove a log from here; the folder goes with the last one in it."""
        folder = self._folder(key)
        with self._locked(key), _told():
            for part in self.parts(key):
                self._part(key, part.base).unlink(missing_ok=True)
            for mark in ("end", "closed"):
                self._mark(key, mark).unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()
                (folder.parent / "followed").unlink(missing_ok=True)
                folder.parent.rmdir()

    def _write(self, key: LogKey, parts: list[Part], offset: int, data: bytes) -> None:
        """Write behind the last part; drop what is then too much between head and tail."""
        last = parts[-1]
        if offset > last.end:
            last = Part(offset, 0)
            parts.append(last)
        left = memoryview(data)
        while True:
            if left and last.size >= self._head_bytes:
                last = Part(last.end, 0)
                parts.append(last)
            some = left[: self._head_bytes - last.size]
            with self._part(key, last.base).open("ab", buffering=0) as file:
                written = file.write(some) if some else 0
            last = Part(last.base, last.size + written)
            parts[-1], left = last, left[written:]
            if not left:
                break
        tail = parts[1:]
        while sum(part.size for part in tail) > self._tail_bytes or len(tail) >= PARTS_MAX:
            self._part(key, tail.pop(0).base).unlink(missing_ok=True)

    @contextmanager
    def _locked(self, key: LogKey) -> Iterator[None]:
        """Hold one of a few locks, which many logs share: they are never removed."""
        at = self.root / "locks" / str(key.lease_id.int % LOCKS)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        with _told():
            try:
                lock = os.open(at, flags, 0o600)
            except FileNotFoundError:
                at.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                lock = os.open(at, flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _folder(self, key: LogKey) -> Path:
        return self.root / key.folder

    def _part(self, key: LogKey, base: int) -> Path:
        return self._folder(key) / f"{key.stream}.{base}"

    def _mark(self, key: LogKey, what: str) -> Path:
        return self._folder(key) / f"{key.stream}.{what}"


def dropped_bytes(parts: list[Part]) -> int:
    """Return how many bytes are missing between the parts of a log."""
    end, dropped = 0, 0
    for part in parts:
        dropped += part.base - end
        end = part.end
    return dropped


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(each for each in folder.iterdir() if each.is_dir() and each.name != "locks")
    except FileNotFoundError:
        return []


@contextmanager
def _told() -> Iterator[None]:
    """Say what an error of the disk means for us."""
    try:
        yield
    except OSError as error:
        raise (StorageFull() if error.errno in FULL else StorageAway()) from error
