"""A round of the engine that is worked out beside it, in a fork: one at a time in a market.

The engine goes on deciding on what comes. What the fork works out is a proposal: the engine asks
each grant again on its book as it is when the round comes back (`decisions.meanwhile`), and appends
what holds in one append, fenced as ever. A round that does not come back is lost; the bids wait for
the next one.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

import structlog

from ledger.domain.ids import BidId, LeaseId
from ledger.eventstore import codec
from marketplace.beside import LOST, Beside, Lost, Out
from marketplace.domain.book.book import Book
from marketplace.domain.clearing.fills import Rules
from marketplace.domain.decisions.decide import RoundUnsound, on_round
from marketplace.domain.decisions.meanwhile import Spans, Worked, on_return, worked
from marketplace.domain.facts.events import MarketEvent, Posed
from marketplace.domain.facts.faults import Fault
from marketplace.domain.facts.instants import Millis
from marketplace.domain.rounds.vetting import Part
from marketplace.round_time import guards_of_a_round

NEEDED = ("marketplace.domain.rounds.batch_clearing", "highspy")
"""What a round imports when it is first cleared: here, so that no fork begins an import."""
FAULTS_TOLD_MAX = 5

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Told:
    """What a fork says. dropped, aside: of whom the engine is to write in its log, and why."""

    worked: Worked | None
    unsound: str = ""
    dropped: tuple[str, ...] = ()
    aside: tuple[tuple[str, str], ...] = ()


def work_out(book: Book, *, now: int, round_id: UUID, rules: Rules) -> bytes:
    """Clear a round under the engine's guards, and write down what it comes to; in the fork."""
    parts: dict[LeaseId, Part] = {}
    dropped: list[Fault] = []
    aside: list[tuple[str, str]] = []

    def set_aside(bid_id: BidId | None, unsound: RoundUnsound) -> None:
        aside.append((str(bid_id), f"{unsound} ({unsound.__cause__!r})"))

    found: Worked | None = None
    why = ""
    try:
        events = on_round(
            book,
            now=now,
            round_id=round_id,
            rules=rules,
            guards=guards_of_a_round(),
            parts=parts,
            warn=dropped.extend,
            tell=set_aside,
        )
        found = worked(events, parts)
    except RoundUnsound as unsound:
        why = f"{unsound} ({unsound.__cause__!r})"
    told = Told(found, why, tuple(str(each) for each in dropped), tuple(aside))
    return codec.encode(told)


@dataclass(frozen=True, slots=True)
class _OnItsWay:
    """A round that is out. before: what was held of each GPU where it was posed."""

    out: Out
    at: Millis
    posed: Posed
    before: Spans
    began: float


class RoundBeside:
    """The rounds of one engine that are worked out beside it. words: how the last one is doing."""

    def __init__(self, market: str, beside: Beside) -> None:
        self._market, self._beside = market, beside
        self._round: _OnItsWay | None = None
        self._lost = 0
        self.words = ""

    @property
    def out_since(self) -> Millis | None:
        """Return the moment of the round that is out; no other begins before it is back."""
        return None if self._round is None else self._round.at

    def begin(self, book: Book, version: int, *, now: Millis, round_id: UUID, rules: Rules) -> None:
        """Begin a round on the book as it is. version: of the last decision in it."""
        if not any(now <= bid.lapses for bid in book.patient()):
            return
        for name in NEEDED:
            with suppress(ImportError):
                importlib.import_module(name)
        posed, before, began = Posed(version, book.read_to), book.calendar.spans(), time.monotonic()

        def work() -> bytes:
            return work_out(book, now=now, round_id=round_id, rules=rules)

        try:
            self._round = _OnItsWay(self._beside(work), now, posed, before, began)
        except Lost as lost:
            self._is_lost(lost)

    @property
    def is_back(self) -> bool:
        """Tell if a round is over: `told` reads what it came to."""
        return self._round is not None and self._round.out.is_over

    def told(self) -> Told | None:
        """Return what the round that is back came to; None: it is lost.

        That takes a while where it grants thousands, and asks nothing of the book.
        """
        assert self._round is not None
        try:
            told = codec.decode_as(Told, self._round.out.result())
        except Lost as lost:
            self._round = None
            self._is_lost(lost)
            return None
        self._write_down(told)
        return told

    def events(self, book: Book, told: Told) -> Sequence[MarketEvent]:
        """Return what holds of what the round came to; nothing where that is unsound."""
        assert self._round is not None
        this, self._round = self._round, None
        overtaken: list[Fault] = []
        try:
            if told.unsound:
                raise RoundUnsound(told.unsound)
            came, posed, before = told.worked, this.posed, this.before
            events = on_return(book, came, posed=posed, before=before, tell=overtaken.extend)
        except Exception as unsound:
            # The bids wait for the next round; nobody is granted what cannot be vouched for.
            log.error("round.unsound", market=self._market, faults=str(unsound), exc_info=True)
            self._is_lost(Lost("it was found unsound"))
            return []
        self._lost, seconds = 0, time.monotonic() - this.began
        leases = {each.lease_id for each in overtaken}
        self.words = f"back after {seconds:.1f} s, {len(leases)} grants overtaken"
        if leases:
            faults = [str(each) for each in overtaken[:FAULTS_TOLD_MAX]]
            log.info("round.overtaken", market=self._market, first=faults, grants=len(leases))
        return events

    def forget(self) -> None:
        """End a round that rests on a book that is thrown away."""
        if self._round is not None:
            self._round.out.stop()
            self._round = None

    def _is_lost(self, lost: Lost) -> None:
        self._lost += 1
        again = f" ({self._lost} in a row)" if self._lost > 1 else ""
        self.words = f"{LOST}: {lost}{again}"
        log.error("round.lost", market=self._market, why=str(lost), rounds=self._lost)

    def _write_down(self, told: Told) -> None:
        for fault in told.dropped:
            log.error("round.grant-dropped", market=self._market, fault=fault)
        for bid_id, faults in told.aside:
            log.error("round.bid-set-aside", market=self._market, bid=bid_id, faults=faults)
