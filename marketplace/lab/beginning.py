"""Where a stretch of the log is folded from: the newest snapshot that was taken well before it."""

from __future__ import annotations

from datetime import datetime, timedelta

from ledger.eventstore.port import EventStore
from marketplace.domain.book import READS
from marketplace.snapshots import snapshots_for
from marketplace.snapshots.port import Snapshot

AHEAD = timedelta(minutes=10)
"""How much earlier than the stretch the last fact of a snapshot must have been.

The log is in order of appends, not of moments: what says a moment of its own, as agents do, or a
process with another clock, may stand before something older. Nothing is that far off.
"""


def snapshot_before(store: EventStore, market: str, since: datetime) -> Snapshot | None:
    """Return the newest snapshot with nothing of what happened since, if the log bears it out."""
    snapshots = snapshots_for(store)
    for version in reversed(snapshots.versions(market)):
        if not _decided_before(store, market, version, since - AHEAD):
            continue  # told by one decision, without reading a large book
        snapshot = snapshots.at(market, version)
        if snapshot is None or not snapshot.is_in(store):
            continue
        page = store.read_all(after=snapshot.tail.before, limit=1, only=READS)
        last = [each.event.at for each in page.events]  # type: ignore[attr-defined]  # all have it
        if all(at < since - AHEAD for at in last):
            return snapshot
    return None


def _decided_before(store: EventStore, market: str, version: int, moment: datetime) -> bool:
    if version == 0:
        return True
    decision = next(iter(store.read_stream(f"market-{market}", after_version=version - 1)), None)
    return decision is not None and decision.event.at < moment  # type: ignore[attr-defined]
