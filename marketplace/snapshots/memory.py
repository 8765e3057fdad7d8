"""Snapshots in memory, as bytes: for tests and simulations."""

from __future__ import annotations

from marketplace.snapshots.codec import decode, encode
from marketplace.snapshots.port import Snapshot, thinned


class MemorySnapshots:
    """The snapshots of each market by position."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[int, tuple[int, bytes]]] = {}

    def latest(self, market: str) -> Snapshot | None:
        """Return the newest snapshot."""
        kept = self._kept.get(market)
        return None if not kept else decode(kept[max(kept)][1])

    def keep(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, and fewer of the older ones."""
        kept = self._kept.setdefault(snapshot.state.market, {})
        kept[snapshot.tail.position] = snapshot.version, encode(snapshot)
        for position in kept.keys() - thinned(list(kept)):
            del kept[position]

    def versions(self, market: str) -> list[int]:
        """Return the versions of which there are snapshots, rising."""
        return sorted({version for version, _ in self._kept.get(market, {}).values()})

    def at(self, market: str, version: int) -> Snapshot | None:
        """Return the newest snapshot of a version."""
        kept = self._kept.get(market, {})
        found = [position for position, (known, _) in kept.items() if known == version]
        return decode(kept[max(found)][1]) if found else None
