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
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Literal
from uuid import UUID, uuid4

import structlog
from django.core import signing

from ledger.domain.refusal import Forbidden, Invalid
from marketplace.storage.port import LINK_SECONDS, BlobKey, Link, StorageAway, StorageFull

PREFIX = "/blobs/"
SALT = "offpeak.blob"
NEW = "new"
"""Where a blob is as long as it is not whole."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Way = Literal["put", "get"]

log = structlog.get_logger()


class LinkNotGood(Forbidden):
    """That link is not of this market, is for something else, or its time is over.

    Ask for a new one.
    """


class BlobLengthWrong(Invalid):
    """Those are not as many bytes as the blob has."""


class BlobNotItsName(Invalid):
    """Those bytes are not what the blob's name says.

    Whoever sent them read something else before: a file that changed meanwhile.
    """


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a link lets its holder do."""

    way: Way
    key: BlobKey
    size: int


class FolderStorage:
    """Blobs below `root`, by organisation."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put_link(self, key: BlobKey, size: int) -> Link:
        """Return a link of the market itself."""
        headers = {"Content-Type": "application/octet-stream"}
        return Link(_signed("put", key, size), headers)

    def get_link(self, key: BlobKey) -> Link:
        """Return a link of the market itself."""
        return Link(_signed("get", key, 0))

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

    def open(self, key: BlobKey) -> BinaryIO | None:
        """Open a blob for whoever streams it."""
        try:
            return self._file(key).open("rb", buffering=0)
        except FileNotFoundError:
            return None

    def receive(self, ticket: Ticket) -> Receiving:
        """Begin to take a blob in.

        Raises: StorageFull, StorageAway.
        """
        return Receiving(self.root / NEW / uuid4().hex, self._file(ticket.key), ticket)

    def write(self, key: BlobKey, body: bytes) -> None:
        """Take it as any other, without a link."""
        receiving = self.receive(Ticket("put", key, len(body)))
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


class Receiving:
    """A blob on its way in: counted and hashed as it comes, never held as a whole.

    Each step by whatever thread, one after the other: a file that is closed while another thread
    still writes could be somebody else's by then.
    Raises in every step: StorageFull, StorageAway.
    """

    def __init__(self, draft: Path, file: Path, ticket: Ticket) -> None:
        self._draft, self._file, self._ticket = draft, file, ticket
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
            if self._taken > self._ticket.size:
                raise BlobLengthWrong(bytes_wanted=self._ticket.size)
            self._digest.update(data)
            left = memoryview(data)
            while left and not self._out.closed:
                left = left[self._out.write(left) :]

    def finish(self) -> None:
        """Give it its name, if it is what that says.

        Raises: BlobLengthWrong, BlobNotItsName.
        """
        if self._taken != self._ticket.size:
            raise BlobLengthWrong(bytes=self._taken, bytes_wanted=self._ticket.size)
        if self._digest.hexdigest() != self._ticket.key.sha256:
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


def _signed(way: Way, key: BlobKey, size: int) -> str:
    said = [way, str(key.tenant_id), key.sha256, size]
    return PREFIX + signing.dumps(said, salt=SALT)


def ticket_of(token: str, way: Way) -> Ticket:
    """Return what the last part of a link lets its holder do.

    Raises: LinkNotGood.
    """
    try:
        said, tenant, sha256, size = signing.loads(token, salt=SALT, max_age=LINK_SECONDS)
    except (signing.BadSignature, ValueError):
        raise LinkNotGood() from None
    if said != way:
        raise LinkNotGood()
    return Ticket(way, BlobKey(UUID(tenant), sha256), size)
