"""Blobs in a folder of this machine, sent and read through the web process by signed links.

A blob is written to a file without a name that others look for, and gets its name when all its
bytes are on the disk and are what the name says. So a cut, a kill or a power failure leaves it
whole or absent.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import BinaryIO
from uuid import uuid4

import structlog

from marketplace.storage import tickets
from marketplace.storage.port import (
    BlobKey,
    BlobLengthWrong,
    BlobNotItsName,
    Link,
    StorageAway,
    StorageFull,
)

NEW = "new"
"""Where a blob is as long as it is not whole."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

log = structlog.get_logger()


class FolderStorage:
    """Blobs below `root`, by organisation."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """Return nothing: no link leads away from the market."""
        return ()

    def put_link(self, key: BlobKey, size: int) -> Link:
        """Return a link of the market itself."""
        return tickets.put_link(key, size)

    def get_link(self, key: BlobKey) -> Link:
        """Return a link of the market itself."""
        return tickets.get_link(key)

    def sizes(self, keys: Sequence[BlobKey]) -> Mapping[BlobKey, int]:
        """Look each up: a name is given only to what is whole."""
        found = {}
        for key in keys:
            with suppress(FileNotFoundError, NotADirectoryError):
                found[key] = self._file(key).stat().st_size
        return found

    def read(self, key: BlobKey) -> bytes | None:
        """Return all of it."""
        try:
            return self._file(key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as fault:
            raise StorageAway() from fault

    def open(self, key: BlobKey) -> OpenFile | None:
        """Open its file."""
        try:
            return OpenFile(self._file(key).open("rb", buffering=0))
        except FileNotFoundError:
            return None

    def receive(self, key: BlobKey, size: int) -> Receiving:
        """Begin to write a file without a name."""
        return Receiving(self.root / NEW / uuid4().hex, self._file(key), key, size)

    def write(self, key: BlobKey, body: bytes) -> None:
        """Take it as any other, without a link."""
        receiving = self.receive(key, len(body))
        try:
            receiving.write(body)
            receiving.finish()
        finally:
            receiving.end()

    def delete(self, keys: Sequence[BlobKey]) -> None:
        """Remove each."""
        for key in keys:
            with suppress(FileNotFoundError, NotADirectoryError):
                self._file(key).unlink()

    def sweep(self, *, older_than_seconds: float) -> int:
        """Remove files of transfers that nobody has written to for so long."""
        swept, before = 0, time.time() - older_than_seconds
        with suppress(FileNotFoundError):
            for left in os.scandir(self.root / NEW):
                with suppress(FileNotFoundError):
                    if left.stat().st_mtime < before:
                        os.unlink(left.path)
                        swept += 1
        return swept

    def _file(self, key: BlobKey) -> Path:
        return self.root / key.path


class OpenFile:
    """A blob's file, opened."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size

    def read(self, count: int, /) -> bytes:
        """Return more of it."""
        return self._file.read(count)

    def close(self) -> None:
        """Let go of it."""
        self._file.close()


class Receiving:
    """A blob on its way in: counted and hashed as it comes, never held as a whole.

    Each step by whatever thread, one after the other: a file that is closed while another thread
    still writes could be somebody else's by then.
    Raises in every step: StorageFull, StorageAway.
    """

    def __init__(self, draft: Path, file: Path, key: BlobKey, size: int) -> None:
        self._draft, self._file, self._key, self._size = draft, file, key, size
        self._digest, self._taken, self._alone = hashlib.sha256(), 0, Lock()
        with _told():
            draft.parent.mkdir(parents=True, exist_ok=True)
            self._out = draft.open("xb", buffering=0)

    def write(self, data: bytes) -> None:
        """Take more of it.

        Raises: BlobLengthWrong for more than was said.
        """
        with self._alone, _told():
            self._taken += len(data)
            if self._taken > self._size:
                raise BlobLengthWrong(bytes_wanted=self._size)
            self._digest.update(data)
            left = memoryview(data)
            while left and not self._out.closed:
                left = left[self._out.write(left) :]

    def finish(self) -> None:
        """Give it its name, if it is what that says.

        Raises: BlobLengthWrong, BlobNotItsName.
        """
        if self._taken != self._size:
            raise BlobLengthWrong(bytes=self._taken, bytes_wanted=self._size)
        if self._digest.hexdigest() != self._key.sha256:
            raise BlobNotItsName()
        with self._alone, _told():
            os.fdatasync(self._out.fileno())
            made = [each for each in self._file.parents if not each.exists()]
            self._file.parent.mkdir(parents=True, exist_ok=True)
            os.replace(self._draft, self._file)
            for folder in (self._file.parent, *(each.parent for each in made)):
                _settle(folder)

    def end(self) -> None:
        """Let go of it; of one that has no name yet nothing is left."""
        with self._alone:
            self._out.close()
            self._draft.unlink(missing_ok=True)


@contextmanager
def _told() -> Iterator[None]:
    """Say what an error of the file system means for whoever sends."""
    try:
        yield
    except OSError as error:
        log.warning("storage.failed", error=str(error))
        raise (StorageFull() if error.errno in FULL else StorageAway()) from error


def _settle(folder: Path) -> None:
    """See that the names in a folder outlive a power failure."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
