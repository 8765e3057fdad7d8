"""Why a bid that ended unmatched was not matched: the book of its last moment, explained.

The book is folded from the log up to the fact that ended the bid, from the newest snapshot before;
the moment is the last at which the bid could have begun.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID
from weakref import WeakKeyDictionary

from ledger.collecting import uncollected
from ledger.domain.ids import BidId
from ledger.eventstore.port import START, EventStore, Position, Recorded
from marketplace.domain.book.book import READS, Book
from marketplace.domain.book.snapshot import restored
from marketplace.domain.facts.events import BidCancelled, BidExpired
from marketplace.domain.facts.instants import from_above, moment
from marketplace.domain.placement.eligibility import Explanation
from marketplace.snapshots import snapshots_for
from marketplace.snapshots.port import Snapshot

PAGE = 1_000
FACTS_MAX = 50_000
"""Facts from the snapshot before on, beyond which it is not told."""
KEPT_MAX = 128
"""Answers kept by this process: they never change."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What stood in the way of a bid at its last moment."""

    explanation: Explanation
    at: datetime


def explain_ended(store: EventStore, *, market: str, bid_id: UUID) -> Ended | None:
    """Walk the funnel of a bid as it was when it ended.

    None for one that waits, was granted, or ended too far behind the newest snapshot before.
    """
    with _lock:
        kept = _kept.setdefault(store, OrderedDict())
        known = kept.get(bid_id)
    if known is None:
        known = _explained(store, market, BidId(bid_id))
        if known is not None:
            with _lock:
                kept[bid_id] = known
                while len(kept) > KEPT_MAX:
                    kept.popitem(last=False)
    return known


_kept: WeakKeyDictionary[EventStore, OrderedDict[UUID, Ended]] = WeakKeyDictionary()
_lock = threading.Lock()


def _explained(store: EventStore, market: str, bid_id: BidId) -> Ended | None:
    ended = [
        each
        for each in store.read_stream(f"bid-{bid_id}")
        if isinstance(each.event, BidExpired | BidCancelled)
    ]
    if not ended:
        return None
    with uncollected():
        book = _book_before(store, market, ended[0])
    bid = None if book is None else book.bids.get(bid_id)
    if book is None or bid is None:
        return None
    event = ended[0].event
    assert isinstance(event, BidExpired | BidCancelled)
    at: int = from_above(event.at)
    if bid.waits:
        at = max(bid.earliest, min(at, bid.last_chance))
    return Ended(book.explain(bid, now=at), moment(at))


def _book_before(store: EventStore, market: str, end: Recorded) -> Book | None:
    """Return the book just before a fact; None: too many facts lie before it."""
    start = _snapshot_before(store, market, end.position)
    stream, version, position, taken = f"market-{market}", 0, START, 0
    if start is None:
        book = Book(market)
    else:
        book = restored(start.state)
        version, position = start.version, start.next_position
    while True:
        page = store.read_all(after=position, limit=PAGE, only=READS)
        for each in page.events:
            if each.position >= end.position:
                return book
            if each.stream == stream and each.version <= version:
                continue  # in the snapshot: appended before it was taken, read after
            book.apply(each.event, each.position)
            book.read_to = each.position
        taken += len(page.events)
        position = page.next_position
        if taken > FACTS_MAX:
            return None
        if page.caught_up:
            return book


def _snapshot_before(store: EventStore, market: str, end: Position) -> Snapshot | None:
    """Return the newest snapshot of nothing that came later, if the log bears it out."""
    snapshots, stream = snapshots_for(store), f"market-{market}"
    for version in reversed(snapshots.versions(market)):
        decision = next(iter(store.read_stream(stream, after_version=max(0, version - 1))), None)
        if version and (decision is None or decision.position >= end):
            continue  # told by one decision, without reading a large book
        snapshot = snapshots.at(market, version)
        if snapshot is not None and snapshot.tail.position < end and snapshot.is_in(store):
            return snapshot
    return None
