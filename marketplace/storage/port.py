"""What a storage of blobs does. `tests/contracts/storages` holds every storage to this.

A blob is there as a whole or not at all, under the sha256 of its bytes and the organisation whose
it is: two organisations with the same bytes have a blob each, so that nobody learns from a storage
what others have. Bytes go straight between storage and client, by links that are good for one
blob, one way and a while; a client that cannot reach the storage sends and reads them through the
market (`through`). Whoever reads a blob checks its hash all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from ledger.domain.refusal import Invalid, Refusal

LINK_SECONDS = 900
"""How long a link is good for."""


class StorageAway(Refusal):
    """The storage for files does not answer.

    Nothing is lost: ask again in a moment.
    """

    status = 503


class StorageFull(Refusal):
    """The storage for files has no room left.

    An operator of the platform has to give it more; what was sent before is kept.
    """

    status = 507


@dataclass(frozen=True, slots=True)
class BlobKey:
    """Which blob: whose, and of which bytes."""

    tenant_id: UUID
    sha256: str

    @property
    def path(self) -> str:
        """Return its place: few enough names in each folder."""
        return f"{self.tenant_id}/{self.sha256[:2]}/{self.sha256}"


@dataclass(frozen=True, slots=True)
class Link:
    """Where to PUT or GET a blob, and with exactly which headers. A path is one of the market."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)


class BlobLengthWrong(Invalid):
    """Those are not as many bytes as the blob has."""


class BlobNotItsName(Invalid):
    """Those bytes are not what the blob's name says.

    Whoever sent them read something else before: a file that changed meanwhile.
    """


class Opened(Protocol):
    """A blob that is streamed to somebody. Each step by whatever thread, one after the other."""

    @property
    def size(self) -> int:
        """Return its bytes."""
        ...

    def read(self, count: int, /) -> bytes:
        """Return up to so many bytes more; none at its end.

        Raises: OSError.
        """
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class Arriving(Protocol):
    """A blob on its way in, counted and hashed as it comes. Each step by whatever thread.

    Raises in every step: StorageFull, StorageAway.
    """

    def write(self, data: bytes, /) -> None:
        """Take more of it.

        Raises: BlobLengthWrong for more than was said.
        """
        ...

    def finish(self) -> None:
        """Keep it, if it is what its name says.

        Raises: BlobLengthWrong, BlobNotItsName.
        """
        ...

    def end(self) -> None:
        """Let go of it; of one that is not kept nothing is left."""
        ...


class Storage(Protocol):
    """Blobs by key."""

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """Return beneath which addresses its links lead, other than the market's own."""
        ...

    def put_link(self, key: BlobKey, size: int) -> Link:
        """Return where these bytes can be sent; other bytes, or more or fewer, are refused."""
        ...

    def get_link(self, key: BlobKey) -> Link:
        """Return where a blob can be read."""
        ...

    def sizes(self, keys: Sequence[BlobKey]) -> Mapping[BlobKey, int]:
        """Return the bytes of those that are there.

        Raises: StorageAway.
        """
        ...

    def read(self, key: BlobKey) -> bytes | None:
        """Return a blob that the server itself has to read; None for one that is not there.

        Raises: StorageAway.
        """
        ...

    def open(self, key: BlobKey) -> Opened | None:
        """Open a blob for whoever streams it; None for one that is not there.

        Raises: StorageAway.
        """
        ...

    def receive(self, key: BlobKey, size: int) -> Arriving:
        """Begin to take in a blob of so many bytes.

        Raises: StorageFull, StorageAway.
        """
        ...

    def write(self, key: BlobKey, body: bytes) -> None:
        """Keep a blob that the server itself has made, as a whole or not at all.

        Raises: StorageAway, StorageFull.
        """
        ...

    def delete(self, keys: Sequence[BlobKey]) -> None:
        """Remove blobs; one that is not there is no fault.

        Raises: StorageAway.
        """
        ...

    def sweep(self, *, older_than_seconds: float) -> int:
        """Remove what broken-off transfers left; return how much."""
        ...
