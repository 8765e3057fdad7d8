"""Where a stretch of the log begins, and the newest snapshot from which it can be reached.

The log is in order of appends, not of moments: what says a moment of its own, as agents do, or a
process with another clock, may stand before something older. So a stretch is a place in the log,
told by what the engine had read: what its last decision before the stretch knew is history.
"""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Any

from ledger.eventstore.port import START, EventStore, Position, Recorded
from marketplace.domain.book.book import READS
from marketplace.domain.facts.events import DECISIONS
from marketplace.snapshots import snapshots_for
from marketplace.snapshots.port import Snapshot

PAGE = 1_000


def place_of(store: EventStore, market: str, since: datetime) -> Position | None:
    """Return the position after which the stretch begins; None: nothing happened in it.

    It begins with the first record of something not before `since`, among those that the engine
    had not read when it last decided anything before. What stands behind it is of the stretch,
    and what stands before it is history, whatever moments they say.
    """
    position = _read_before(store, market, since)
    while True:
        page = store.read_all(after=position, limit=PAGE, only=READS)
        before = position
        for each in page.events:
            if each.event.at >= since:  # type: ignore[attr-defined]  # all have it
                return before
            before = each.position
        position = page.next_position
        if page.caught_up:
            return None


def _read_before(store: EventStore, market: str, since: datetime) -> Position:
    """Return how far the engine had read when it last decided anything before a moment."""
    stream = f"market-{market}"

    def is_before(version: int) -> bool:
        recorded = next(iter(store.read_stream(stream, after_version=version - 1)), None)
        return recorded is not None and recorded.event.at < since  # type: ignore[attr-defined]

    ahead = 1
    while is_before(ahead):
        ahead *= 2
    low, high = ahead // 2, ahead  # low: known to be before, or none is; high: not before
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_before(middle) else (low, middle)
    while low > 0:
        behind = max(0, low - PAGE)
        page = list(islice(store.read_stream(stream, after_version=behind), low - behind))
        decided = [_through(each) for each in page if isinstance(each.event, DECISIONS)]
        if decided:
            return Position(decided[-1])
        low = behind
    return START


def _through(recorded: Recorded) -> int:
    event: Any = recorded.event
    return int(event.through)


def snapshot_before(store: EventStore, market: str, place: Position) -> Snapshot | None:
    """Return the newest snapshot of nothing that stands after a place, if the log bears it out."""
    snapshots = snapshots_for(store)
    for version in reversed(snapshots.versions(market)):
        if not _stands_before(store, market, version, place):
            continue  # told by one decision, without reading a large book
        snapshot = snapshots.at(market, version)
        if snapshot is None or snapshot.tail.position > place or not snapshot.is_in(store):
            continue
        return snapshot
    return None


def _stands_before(store: EventStore, market: str, version: int, place: Position) -> bool:
    if version == 0:
        return True
    decision = next(iter(store.read_stream(f"market-{market}", after_version=version - 1)), None)
    return decision is not None and decision.position <= place
