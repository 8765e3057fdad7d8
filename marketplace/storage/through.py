"""A storage whose blobs all pass through the market, for those who cannot reach it themselves.

A bucket may be behind a firewall, or speak to no browser of another site. Its blobs then take the
way that those of a folder take: by links of the market, which hands them on piece by piece.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from marketplace.storage import tickets
from marketplace.storage.port import Arriving, BlobKey, Link, Opened, Storage

ASKED_FOR = "through"
"""The query parameter by which links through the market are asked for, with any text."""


@dataclass(frozen=True, slots=True)
class ThroughMarket:
    """The blobs of another storage, by links of the market alone."""

    storage: Storage

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
        """Ask the storage."""
        return self.storage.sizes(keys)

    def read(self, key: BlobKey) -> bytes | None:
        """Ask the storage."""
        return self.storage.read(key)

    def open(self, key: BlobKey) -> Opened | None:
        """Ask the storage."""
        return self.storage.open(key)

    def receive(self, key: BlobKey, size: int) -> Arriving:
        """Ask the storage."""
        return self.storage.receive(key, size)

    def write(self, key: BlobKey, body: bytes) -> None:
        """Ask the storage."""
        self.storage.write(key, body)

    def delete(self, keys: Sequence[BlobKey]) -> None:
        """Ask the storage."""
        self.storage.delete(keys)

    def sweep(self, *, older_than_seconds: float) -> int:
        """Ask the storage."""
        return self.storage.sweep(older_than_seconds=older_than_seconds)


def storage_for(storage: Storage, asked: Mapping[str, str]) -> Storage:
    """Return a storage with the links that somebody can use. asked: parameters of the request."""
    return ThroughMarket(storage) if ASKED_FOR in asked else storage
