"""Snapshots in memory, as bytes: for tests and simulations."""

from __future__ import annotations

from marketplace.snapshots.codec import decode, encode
from marketplace.snapshots.port import Snapshot


class MemorySnapshots:
    """The newest snapshot of each market."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def latest(self, market: str) -> Snapshot | None:
        """Return the newest snapshot."""
        body = self._kept.get(market)
        return None if body is None else decode(body)

    def keep(self, snapshot: Snapshot) -> None:
        """Keep a snapshot in place of the one before."""
        self._kept[snapshot.state.market] = encode(snapshot)
