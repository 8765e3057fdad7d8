"""Keeps snapshots of a market's book, apart from its engine, by folding the market's log itself.

Writing a large book down takes seconds, for which an engine would stand still. The log has all it
takes: the book as the last decision left it. Whoever starts from that goes through the facts that
no decision knew, as after any other fold.

Between two snapshots it only counts what is new and holds no book: reading the last one back costs
less than a second copy of every book in memory. Killed at any step, it has written a snapshot
whole or not at all, and the next keeper goes on from the last there is.
"""

from __future__ import annotations

import threading
from datetime import datetime

import structlog

from ledger.collecting import uncollected
from ledger.eventstore.port import START, EventStore
from marketplace.domain.book.book import READS
from marketplace.domain.facts.instants import from_above
from marketplace.folding import FORGET_AFTER, PAGE, folded
from marketplace.snapshots.port import Snapshots, usable

SNAPSHOT_FACTS = 20_000
"""Facts and decisions after which the book is kept anew, in a market of up to ten thousand bids and
leases; in a larger one as many as there are, twice. What a fold reads at most, nearly."""

log = structlog.get_logger()


def due_of(bids_and_leases: int, snapshot_facts: int = SNAPSHOT_FACTS) -> int:
    """Return the facts after which a book is kept anew: the more, the longer keeping it takes."""
    return max(snapshot_facts, 2 * bids_and_leases)


class Keeper:
    """One market's keeper. Not for threads: one loop calls `run_once` again and again."""

    _one_at_a_time = threading.Lock()
    """Of all keepers of a process, so that its memory is that of one book."""

    def __init__(
        self,
        store: EventStore,
        market: str,
        *,
        snapshots: Snapshots,
        snapshot_facts: int = SNAPSHOT_FACTS,
    ) -> None:
        self._store, self._market, self._snapshots = store, market, snapshots
        self._stream = f"market-{market}"
        self._snapshot_facts = self._due = snapshot_facts
        self._position = START
        # At first it is not known how much came since the last snapshot: that is looked up.
        self._new, self._has_decided = snapshot_facts, True

    def run_once(self, *, now: datetime) -> int:
        """Count what is new; once it is enough, fold it and keep the book.

        Returns: how many facts and decisions the fold read; 0: no snapshot was due.

        Raises: StoreError, or whatever else went wrong; the next call starts from the log.
        """
        if not self._is_due():
            return 0
        with self._one_at_a_time, uncollected():
            return self._fold_and_keep(now)

    def _is_due(self) -> bool:
        """Count on, without looking into what is counted."""
        while not (self._has_decided and self._new >= self._due):
            page = self._store.read_all(after=self._position, limit=PAGE, only=READS)
            self._new += len(page.events)
            # Without a decision there is no other book to keep, however many facts wait for one.
            self._has_decided |= any(each.stream == self._stream for each in page.events)
            self._position = page.next_position
            if page.caught_up:
                break
        return self._has_decided and self._new >= self._due

    def _fold_and_keep(self, now: datetime) -> int:
        folding = folded(self._store, self._market, self._snapshots)
        book = folding.book
        has_decided = folding.version > folding.began
        is_kept = has_decided and folding.read >= self._due
        if is_kept:
            book.forget_before(from_above(now - FORGET_AFTER))
            self._snapshots.keep(folding.snapshot())
            counts = {"bids": len(book.bids), "leases": len(book.held)}
            log.info("snapshot.kept", market=self._market, version=folding.version, **counts)
        self._position, self._due = (
            folding.position,
            due_of(len(book.bids) + len(book.held), self._snapshot_facts),
        )
        self._new = 0 if is_kept else folding.read
        self._has_decided = has_decided and not is_kept
        return folding.read if is_kept else 0


def is_overdue(
    store: EventStore,
    market: str,
    snapshots: Snapshots,
    *,
    snapshot_facts: int = SNAPSHOT_FACTS,
) -> bool:
    """Tell if twice as much came since the last snapshot as one is kept after.

    Then no keeper is at work, or it fails. An engine that decides nothing leaves nothing to keep.
    """
    snapshot = usable(snapshots, store, market)
    position, version, due = START, 0, snapshot_facts
    if snapshot is not None:
        position, version = snapshot.next_position, snapshot.version
        due = due_of(len(snapshot.state.bids) + len(snapshot.state.held), snapshot_facts)
    new, has_decided, stream = 0, False, f"market-{market}"
    while not (has_decided and new > 2 * due):
        page = store.read_all(after=position, limit=PAGE, only=READS)
        fresh = [each for each in page.events if each.stream != stream or each.version > version]
        new += len(fresh)
        has_decided |= any(each.stream == stream for each in fresh)
        position = page.next_position
        if page.caught_up:
            break
    return has_decided and new > 2 * due
