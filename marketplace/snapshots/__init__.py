"""Snapshots of order books: where a fold may start instead of at the first event."""

from __future__ import annotations

from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import EventStore
from marketplace.snapshots.memory import MemorySnapshots
from marketplace.snapshots.port import Snapshots


def snapshots_for(store: EventStore) -> Snapshots:
    """Return where the snapshots of a store's books are kept: a store in memory has none."""
    if isinstance(store, MemoryStore):
        return MemorySnapshots()
    from marketplace.snapshots.postgres import PostgresSnapshots

    return PostgresSnapshots()
