"""The single-writer loop of one market: read, decide, append everything decided at once.

The engine goes through the log fact by fact, as if it had been there when each came: a new bid is
matched with what is free, new supply with the bids that wait, an extension is decided. So its
grants do not depend on how often it runs or how much it reads at once. Every `round_seconds` it
clears the patient bids in one round, beside itself where it is told how: then nobody who comes
meanwhile waits for it. What one pass decides is ONE append to `market-<name>`, at the
version the book rests on: a second engine, or one that slept, is refused by the version, throws its
book away and folds the log again.

A grant binds once it is taken up (`commands.grants`). One that is refused, since what it rests on
had changed, comes back as a fact: its capacity is free, and its bid is decided on again.

It keeps nothing but the book. After a crash at any step another one folds the log: decisions are
there or they are not, and what came after the last decision's `through` is gone through again.
The fold starts from a snapshot that the keeper made of the log, so that nobody here waits for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID, uuid4

import structlog

from ledger.collecting import uncollected
from ledger.domain.ids import BidId, named
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import (
    START,
    EventStore,
    Meta,
    NewEvent,
    OutcomeUnknown,
    Recorded,
    StreamMoved,
)
from marketplace.beside import Beside
from marketplace.commands.bids import expire_bid, press_bid
from marketplace.domain.book.book import READS, Book
from marketplace.domain.clearing.fills import PRESENT, Rules
from marketplace.domain.decisions.decide import RoundUnsound, follow_up, on_fact, on_round
from marketplace.domain.facts.events import MarketEvent, NothingDecided
from marketplace.domain.facts.faults import Fault
from marketplace.domain.facts.instants import EPOCH, Millis, from_above
from marketplace.domain.orderbook.triggers import Trigger
from marketplace.domain.rounds.early_round import is_called
from marketplace.folding import FORGET_AFTER, PAGE, Folding, folded
from marketplace.round_beside import RoundBeside
from marketplace.round_time import guards_of_a_round
from marketplace.snapshots.memory import MemorySnapshots
from marketplace.snapshots.port import Snapshots

APPEND_MAX = 500
"""Decisions after which a pass appends what it has and goes on: bounds the size of an append."""
APPEND_ATTEMPTS_MAX = 5
UNDECIDED_MAX = 20_000
"""Facts without a decision after which it says that there was none to make: bounds what a fold
has to go through in a quiet market, whose log holds the facts of busy ones."""
CALLS_EVERY = timedelta(seconds=20)
"""How often it is looked for bids that cannot wait for the next round."""
FORGET_EVERY = timedelta(hours=1)

log = structlog.get_logger()


class Engine:
    """One market's engine. Not for threads: one loop calls `run_once` again and again."""

    def __init__(
        self,
        store: EventStore,
        market: str,
        *,
        round_seconds: int = 60,
        rules: Rules = PRESENT,
        snapshots: Snapshots | None = None,
        beside: Beside | None = None,
    ) -> None:
        """Begin without a book. beside: begins what works a round out; None: rounds are cleared
        within a pass, which waits for them."""
        self._store = store
        self._snapshots: Snapshots = MemorySnapshots() if snapshots is None else snapshots
        self._rules = rules
        self._market = market
        self._stream = f"market-{market}"
        self._round_every = timedelta(seconds=round_seconds)
        self._by = Meta(actor=f"loop:engine-{market}")
        self._beside = None if beside is None else RoundBeside(market, beside)
        self._book: Book | None = None
        self._now = self._round_at = self._forgot_at = self._called_at = EPOCH
        self._position, self._version, self._undecided = START, 0, 0
        self._waiting: list[Recorded] = []
        self._decided: list[MarketEvent] = []
        self._append_id = uuid4()
        self.folded = 0, 0
        """At which version of the market's stream its last fold began, and how much that read."""

    def run_once(self, *, now: datetime) -> int:
        """Take in what is new, decide, append; return how many decisions and expiries that made.

        Where another engine decided meanwhile, nothing of this pass stands: the next call folds
        the log again.

        Raises: StoreError, or whatever else went wrong; the next call starts from the log.
        """
        try:
            return self._run(max(now, self._now))
        except StreamMoved:
            log.warning("engine.fenced", market=self._market)
            self._throw_away()
            return 0
        except Exception:
            # Whatever it was, a page may have been taken in by half.
            self._throw_away()
            raise

    @property
    def round_words(self) -> str:
        """Return how rounds beside the engine are doing; empty: there was none."""
        return "" if self._beside is None else self._beside.words

    @property
    def round_is_out(self) -> bool:
        """Tell if a round is being worked out beside."""
        return self._beside is not None and self._beside.out_since is not None

    def _throw_away(self) -> None:
        self._book = None
        if self._beside is not None:
            self._beside.forget()

    def _run(self, now: datetime) -> int:
        self._now = now
        if self._book is None:
            self._book, self._called_at = self._started(self._fold()), now
        book, made = self._book, 0
        waiting, self._waiting = self._waiting, []
        made += self._go_through(book, waiting) + self._read_on(book)
        made += self._rounds(book)
        if self._undecided >= UNDECIDED_MAX and not self._decided:
            self._decided.append(
                NothingDecided(market=self._market, through=book.read_to, at=self._now)
            )
        made += self._append()
        made += self._expire(book.dead(self._over_before))
        made += self._press(book.returns.due(book.bids, self._millis))
        if now - self._forgot_at >= FORGET_EVERY:
            self._forgot_at = now
            book.forget_before(from_above(now - FORGET_AFTER))
        return made

    # --- reading ---------------------------------------------------------------------------

    def _fold(self) -> Folding:
        """Bring a book to where the last decision left it; later facts wait."""
        return folded(self._store, self._market, self._snapshots)

    def _started(self, folding: Folding) -> Book:
        """Go on from a book; what waits is gone through first."""
        self._decided, self._undecided = [], 0
        self._position, self._version = folding.position, folding.version
        self._waiting = [recorded for _, recorded in folding.waiting]
        self._round_at = folding.book.round_at or EPOCH
        self.folded = folding.began, folding.read
        return folding.book

    def _read_on(self, book: Book) -> int:
        """Go through what came since it was looked last; return how much was appended."""
        made = 0
        while True:
            page = self._store.read_all(after=self._position, limit=PAGE, only=READS)
            made += self._go_through(book, page.events)
            self._position = page.next_position
            if page.caught_up:
                return made

    def _go_through(self, book: Book, facts: Iterable[Recorded]) -> int:
        """Take in facts one by one, decide on each; return how much was appended."""
        made = 0
        for recorded in facts:
            if recorded.stream == self._stream:
                if recorded.version > self._version:
                    raise StreamMoved(self._stream, self._version, recorded.version)
                continue
            trigger = book.apply(recorded.event, recorded.position)
            book.read_to = recorded.position
            self._undecided += 1
            if trigger is not None:
                self._decide(book, trigger)
            if len(self._decided) >= APPEND_MAX:
                made += self._append()
        return made

    # --- deciding --------------------------------------------------------------------------

    def _decide(self, book: Book, trigger: Trigger) -> None:
        round_id = self._next_id("round")
        try:
            events = on_fact(
                book,
                trigger,
                now=self._millis,
                round_id=round_id,
                rules=self._rules,
                tell=self._left_out,
            )
        except Exception:
            # It works on forks of the book: nothing is decided on this fact, all else goes on.
            log.exception("fact.undecided", market=self._market, fact=str(trigger))
            return
        self._keep(book, events)
        left = follow_up(book, trigger, events) if events else None
        if left is not None:
            self._decide(book, left)

    def _rounds(self, book: Book) -> int:
        """Clear a round if it is time, or take in one that is back; return what was appended."""
        made, beside = 0, self._beside
        if beside is not None and beside.is_back:
            made += self._take_in(book, beside)
        if beside is not None and beside.out_since is not None:
            return made
        if self._now - self._round_at < self._round_every and not self._is_called(book):
            return made
        self._round_at = self._now
        if beside is None:
            self._clear_round(book)
            return made
        made += self._append()
        round_id, rules = uuid4(), self._rules
        beside.begin(book, self._version, now=self._millis, round_id=round_id, rules=rules)
        return made

    def _take_in(self, book: Book, beside: RoundBeside) -> int:
        """Take in a round that is back; return how much was appended."""
        made = self._append()  # what came at once does not wait for it to be read,
        with uncollected():  # thousands of grants stay
            told = beside.told()
            made += self._read_on(book) + self._append()  # nor for it to be asked again
            if told is not None:
                self._keep(book, beside.events(book, told))
            return made + self._append()

    def _clear_round(self, book: Book) -> None:
        round_id = self._next_id("round")
        try:
            events = on_round(
                book,
                now=self._millis,
                round_id=round_id,
                rules=self._rules,
                guards=guards_of_a_round(),
                warn=self._dropped,
                tell=self._set_aside,
            )
        except RoundUnsound as unsound:
            # The bids wait for the next round; nobody is granted what cannot be vouched for.
            broken = unsound.__cause__
            log.error("round.unsound", market=self._market, faults=str(unsound), exc_info=broken)
            return
        self._keep(book, events)

    def _dropped(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            log.error("round.grant-dropped", market=self._market, fault=str(fault))

    def _is_called(self, book: Book) -> bool:
        """Tell if a round has to come sooner than its time; looked at now and then only."""
        if self._round_every <= CALLS_EVERY or self._now - self._called_at < CALLS_EVERY:
            return False
        self._called_at = self._now
        return is_called(book, since=from_above(self._round_at), now=self._millis)

    def _set_aside(self, bid_id: BidId | None, unsound: RoundUnsound) -> None:
        self._warn_of("round.bid-set-aside", bid_id, unsound)

    def _left_out(self, bid_id: BidId | None, unsound: RoundUnsound) -> None:
        self._warn_of("fact.bid-left-out", bid_id, unsound)

    def _warn_of(self, what: str, bid_id: BidId | None, unsound: RoundUnsound) -> None:
        said = {"bid": bid_id and str(bid_id), "faults": str(unsound)}
        log.error(what, market=self._market, **said, exc_info=unsound.__cause__)

    def _keep(self, book: Book, events: Sequence[MarketEvent]) -> None:
        book.decided(events, book.read_to)
        self._decided += events

    @property
    def _over_before(self) -> Millis:
        """Return by when a bid must have had its last chance to be ended now: a round that is out
        may be a bid's last, as long as it takes."""
        out_since = None if self._beside is None else self._beside.out_since
        return self._millis if out_since is None else min(self._millis, out_since)

    @property
    def _millis(self) -> Millis:
        return from_above(self._now)

    def _next_id(self, what: str) -> UUID:
        return named(self._append_id)(f"{what}{len(self._decided)}")

    # --- writing ---------------------------------------------------------------------------

    def _append(self) -> int:
        """Append what was decided, all of it or nothing, at the version the book rests on."""
        if not self._decided:
            return 0
        id_of = named(self._append_id)
        fresh = [NewEvent(id_of(str(index)), event) for index, event in enumerate(self._decided)]
        for attempt in range(1, APPEND_ATTEMPTS_MAX + 1):
            try:
                appended = self._store.append(
                    self._stream, fresh, expected=self._version, by=self._by
                )
                break
            except OutcomeUnknown:
                # Asked again with the same ids it is written once, whichever reply was lost.
                if attempt == APPEND_ATTEMPTS_MAX:
                    raise
        self._version, self._undecided = appended.version, 0
        self._decided, self._append_id = [], uuid4()
        return len(fresh)

    def _press(self, bid_ids: Iterable[BidId]) -> int:
        """Say of the rests of paused work that they cannot wait longer; read as facts then."""
        for_each = partial(press_bid, market=self._market, by=self._by, now=self._now)
        return self._each(bid_ids, for_each)

    def _expire(self, bid_ids: Iterable[BidId]) -> int:
        """End bids that can no longer be met; their own streams decide."""
        return self._each(bid_ids, partial(expire_bid, by=self._by, now=self._now))

    def _each(self, bid_ids: Iterable[BidId], ask: Callable[..., object]) -> int:
        asked = 0
        for bid_id in bid_ids:
            try:
                ask(self._store, bid_id=bid_id)
                asked += 1
            except Refusal as refusal:
                # One bid of which that cannot be said must not hold up the market.
                log.error("bid.stuck", bid=str(bid_id), code=refusal.code)
        return asked
