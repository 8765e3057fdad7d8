"""A market's book from its log: facts go in where the engine that decided had read them.

A decision says up to where its engine had read (`through`). So the book of a decision is made of
the facts up to there, whatever else stood in the log by then; later ones wait until a decision
that knew them comes, or an engine that goes through them.
"""

from __future__ import annotations

from collections import deque
from datetime import timedelta

from ledger.collecting import uncollected
from ledger.eventstore.port import START, EventStore, Position, Recorded
from marketplace.domain.book.book import READS, Book
from marketplace.domain.book.snapshot import restored, state_of
from marketplace.domain.facts.events import DECISIONS
from marketplace.snapshots.port import Snapshot, Snapshots, Tail, usable

PAGE = 1_000
FORGET_AFTER = timedelta(days=1)
"""How long a book knows what is over, at least."""


class Overtaken(Exception):
    """An engine decided that had read less than the snapshot: the book is to be folded without."""


class Folding:
    """A book on its way through the log, from a snapshot or from the first event.

    book: as the last decision left it. version, decision_id: of that decision. began: at which
    version. position: where reading goes on. read: how many facts and decisions came since then.
    waiting: the facts that no decision knew, each with the position of what stands before it.
    """

    def __init__(
        self, market: str, snapshot: Snapshot | None = None, *, last: int | None = None
    ) -> None:
        """Begin. last: the last decision that is taken in; None: all are."""
        self._last_version = last
        self._stream = f"market-{market}"
        if snapshot is None:
            snapshot = Snapshot(state_of(Book(market)), Tail(), START, 0, None)
        self.book = restored(snapshot.state)
        self.version = self.began = snapshot.version
        self.decision_id = snapshot.decision_id
        self.position = self._next = self._last = snapshot.next_position
        self.read = 0
        self.waiting: deque[tuple[Position, Recorded]] = deque()
        self._start, self._read_before = snapshot.tail, self.book.read_to
        self._taken: tuple[Position, Recorded] | None = None

    def read_page(self, store: EventStore) -> bool:
        """Take in one more page; tell if that was all there is.

        Raises: Overtaken; StoreError. After either the book is of no use any more.
        """
        page = store.read_all(after=self.position, limit=PAGE, only=READS)
        for recorded in page.events:
            if recorded.stream != self._stream:
                self.waiting.append((self._last, recorded))
            elif self._last_version is not None and recorded.version > self._last_version:
                pass
            elif recorded.version > self.version:
                self._decided(recorded)
            else:  # in the snapshot: it stands behind the facts that waited there
                self.read -= 1
            self._last = recorded.position
        self.position = page.next_position
        self.read += len(page.events)
        return page.caught_up

    def _decided(self, recorded: Recorded) -> None:
        event = recorded.event
        if isinstance(event, DECISIONS):
            if event.through < self._read_before:
                raise Overtaken(self._stream, recorded.version)
            self.take_in(event.through)
        self.book.apply(event, recorded.position)
        self.version, self.decision_id = recorded.version, recorded.id

    def take_in(self, through: int) -> None:
        """Fold the facts up to a position."""
        book, waiting = self.book, self.waiting
        while waiting and waiting[0][1].position <= through:
            self._taken = waiting.popleft()
            fact = self._taken[1]
            book.apply(fact.event, fact.position)
            book.read_to = self._next = fact.position

    def snapshot(self) -> Snapshot:
        """Return the book as it is now. Whoever starts from it reads what waits here once more."""
        tail = self._start
        if self._taken is not None:
            before, fact = self._taken
            tail = Tail(before, fact.position, fact.id)
        return Snapshot(state_of(self.book), tail, self._next, self.version, self.decision_id)


def to_the_end(folding: Folding, store: EventStore) -> Folding:
    """Return a book that has gone through all of the log.

    Raises: Overtaken; StoreError.
    """
    with uncollected():
        while not folding.read_page(store):
            pass
    return folding


def folded(store: EventStore, market: str, snapshots: Snapshots) -> Folding:
    """Return a market's book as its log has it, from the last snapshot if that holds."""
    with uncollected():
        snapshot = usable(snapshots, store, market)
        if snapshot is not None:
            try:
                return to_the_end(Folding(market, snapshot), store)
            except Overtaken:
                pass
        return to_the_end(Folding(market), store)
