"""The order book as this process knows it, read from the log whenever somebody asks.

It is the engine's own `Book`, folded by the same rules, so a quote or an explanation comes from
the very code that clears. It decides nothing: what it says may be out of date a moment later.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid5
from weakref import WeakKeyDictionary

import structlog

from ledger.collecting import uncollected
from ledger.domain.ids import BidId
from ledger.domain.money import Money, Rate
from ledger.domain.refusal import Refusal
from ledger.domain.span import Window
from ledger.eventstore.port import EventStore
from listings.domain.events import OfferPublished, ReclaimStep
from marketplace.domain.bids.bid import BidTerms, hold_of, place
from marketplace.domain.book.book import READS, Book
from marketplace.domain.book.snapshot import restored
from marketplace.domain.book.suspension import explained, left_out
from marketplace.domain.clearing.continuous import clear
from marketplace.domain.clearing.fills import Clearing, Fill, Lane, model_of
from marketplace.domain.decisions.decide import Guards, RoundUnsound, patient_cleared, would_get
from marketplace.domain.facts.events import BidPlaced, Share
from marketplace.domain.facts.instants import from_above
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.host_reliability import together
from marketplace.domain.orderbook.listed_offer import Listed
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.eligibility import Explanation
from marketplace.queries.service import Service, service_of
from marketplace.round_time import REST_SECONDS_MAX, SEARCH_SECONDS_MAX, guard, stopwatch
from marketplace.snapshots import snapshots_for
from marketplace.snapshots.port import Tail, usable

PAGE = 1_000
QUOTE_LIFE = timedelta(seconds=30)
"""How long a quote is shown as current; nothing is kept free for it."""
QUOTES = UUID("b1d5c0de-0000-4000-8000-0ffea4000001")


BROKEN = (
    ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError,
    RoundUnsound,
)  # fmt: skip
"""What a mistake in the rules looks like: nothing that whoever asks could have done otherwise."""

log = structlog.get_logger()


class BookBusy(Refusal):
    """The order book is being read by others. Nothing has changed; ask again in a moment."""


class MarketCannotTell(Refusal):
    """The market cannot work that out at the moment. Nothing has changed; bids can be placed."""


class _Reader:
    """One market's book and how far it has read.

    What was read may turn out never to have happened: a transaction that was rolled back, a
    database put back to an older state. So each reading starts at the last fact known, and not
    behind other events that came after it: they may be gone, and facts have their places. If it
    is not there any more, everything is read anew, from the market's last snapshot on.
    """

    def __init__(self, market: str) -> None:
        self.lock = threading.RLock()
        self._market, self._stream = market, f"market-{market}"
        self._is_new = True

    def _start(self, store: EventStore) -> None:
        self._is_new = False
        with uncollected():
            snapshot = usable(snapshots_for(store), store, self._market)
            book = None if snapshot is None else restored(snapshot.state)
        if snapshot is None or book is None:
            self.book = Book(self._market)
            self._tail, self._version = Tail(), 0
        else:
            self.book = book
            self._tail, self._version = snapshot.tail, snapshot.version

    def catch_up(self, store: EventStore) -> None:
        if self._is_new:
            self._start(store)
        if not self._read_on(store):
            self._start(store)
            self._read_on(store)

    def _read_on(self, store: EventStore) -> bool:
        """Take in what is new; tell if the last fact known is still there."""
        after, known = self._tail.before, self._tail.last_id
        while True:
            page = store.read_all(after=after, limit=PAGE, only=READS)
            events = page.events
            if known is not None:
                if not events or events[0].id != known:
                    return False
                events, known = events[1:], None
            for recorded in events:
                self._tail.note(recorded)
                if recorded.stream == self._stream and recorded.version <= self._version:
                    continue  # in the snapshot already
                self.book.apply(recorded.event, recorded.position)
                self.book.read_to = recorded.position
            after = page.next_position
            if page.caught_up:
                return True


_readers: WeakKeyDictionary[EventStore, dict[str, _Reader]] = WeakKeyDictionary()
_readers_lock = threading.Lock()


@contextmanager
def book_of(store: EventStore, market: str, *, wait_seconds: float | None = None) -> Iterator[Book]:
    """Lend a market's book as of now. Read it inside the block only, and do not change it.

    wait_seconds: how long others who read it are waited for; None: as long as it takes.
    Raises: BookBusy.
    """
    with _readers_lock:
        reader = _readers.setdefault(store, {}).setdefault(market, _Reader(market))
    if not reader.lock.acquire(timeout=-1 if wait_seconds is None else wait_seconds):
        raise BookBusy
    try:
        try:
            reader.catch_up(store)
        except Exception:
            # Half a page may have been taken in: the next one starts afresh.
            with _readers_lock:
                _readers[store].pop(market, None)
            raise
        try:
            yield reader.book
        except BROKEN as broken:
            # A mistake of ours. The book may be changed by half: the next one starts afresh.
            log.exception("book.broken", market=market)
            with _readers_lock:
                _readers[store].pop(market, None)
            raise MarketCannotTell from broken
    finally:
        reader.lock.release()


@dataclass(frozen=True, slots=True)
class Promise:
    """What owners promise of so many GPUs: steps of notice and fee, the least first, and grace."""

    gpus: int
    steps: tuple[ReclaimStep, ...]
    grace_seconds: int


@dataclass(frozen=True, slots=True)
class Quote:
    """What a bid would get if it were placed now. Not binding; nothing is kept for it.

    gpus: how many it would get; a bid that makes do with less may get fewer than it asks for.
    cost: at the quoted price; None where nothing would be matched. hold: what would be set aside.
    own: it would be its organisation's own GPUs, for nothing. reliability_ppm: the share of leases
    that the hosts it would get did not break off; None: too few have ended. promises: what a
    reclaim would give and pay. service: what is promised of the service, and a miss would credit.
    """

    placed: BidPlaced
    lane: Lane
    price: Rate | None
    window: Window | None
    gpu_model: str
    hosts: int
    gpus: int
    cost: Money | None
    hold: Money
    explanation: Explanation
    expires_at: datetime
    own: bool = False
    reliability_ppm: int | None = None
    promises: tuple[Promise, ...] = ()
    service: tuple[Service, ...] = ()
    cuts: int = 0
    """Leases that would end sooner for it: interrupted, taken back, or their rest bought."""


def preview(store: EventStore, *, terms: BidTerms, now: datetime) -> Quote:
    """Clear the market as it is with one more bid in it, and write nothing.

    Raises: what `bid.place` refuses.
    """
    placed = place(terms, now=now)
    lane: Lane = "instant" if placed.patience == "immediate" else "round"
    with book_of(store, placed.market) as book:
        bid = OpenBid.of(placed, since=book.read_to + 1)
        millis = from_above(now)
        clearing = _cleared_with(book, bid, millis)
        fill = next((fill for fill in clearing.fills if fill.bid.bid_id == bid.bid_id), None)
        calendar = clearing.calendar if fill is None else _without(clearing, fill)
        explanation = book.explain(bid, now=millis, calendar=calendar)
        got = _got(book, bid, fill, millis)
        offers = () if got is None else got.offers
        records = {listed.terms.host_id: listed.record for listed in offers}
        reliability = together(records.values())
        cost = None if got is None else got.price.charge(got.window.millis * len(offers))
        foreign = None if got is None or got.own else got.agreed
        service = (
            () if foreign is None or cost is None else service_of(foreign, book.promises, cost)
        )
    return Quote(
        placed=placed,
        lane=lane,
        price=None if got is None else got.price,
        window=None if got is None else got.window,
        gpu_model="" if got is None else got.gpu_model,
        hosts=len(records),
        gpus=len(offers),
        cost=cost,
        hold=hold_of(placed, placed.limit),
        explanation=explanation,
        expires_at=now + QUOTE_LIFE,
        own=got is not None and got.own,
        reliability_ppm=reliability,
        promises=() if foreign is None else _promises(foreign),
        service=service,
        cuts=0 if got is None else got.cuts,
    )


@dataclass(frozen=True, slots=True)
class _Got:
    """What a bid would get. offers, agreed: of each of its GPUs, and what a reclaim would give."""

    price: Rate
    window: Window
    gpu_model: str
    offers: tuple[Listed, ...]
    own: bool
    cuts: int
    agreed: tuple[OfferPublished | Share, ...]


def _got(book: Book, bid: OpenBid, fill: Fill | None, now: int) -> _Got | None:
    """Return what clearing gave a bid, or else what is for sale, taken back or interrupted for it.

    In a round the clearing has looked for that as well. Work may also be paused for a bid that
    would have to wait for what is free, if it seeks the soonest start.
    """
    is_later = fill is not None and fill.placement.starts > bid.soon(now).latest_start
    if fill is not None and not (is_later and bid.seeks_soonest and book.leases.pausable):
        offers = [listed for listed, _ in fill.placement.gpus]
        price = Rate(fill.price, bid.shape.currency)
        model = model_of(fill.placement)
        terms = tuple(listed.terms for listed in offers)
        return _Got(price, fill.window, model, tuple(offers), fill.own, len(fill.cuts), terms)
    if bid.terms.patience != "immediate":
        return None
    granted = would_get(book, bid, now=now, round_id=uuid5(QUOTES, str(bid.bid_id)))
    if granted is None:
        return None
    # Of a rest that is sold on it is what its lease was granted on, not what the offer says now.
    agreed = tuple(share for share in granted.shares for _ in share.gpu_uuids)
    listed = tuple(book.offers[share.offer_id] for share in agreed)
    model, cuts = granted.gpu_model, len(granted.cuts)
    return _Got(granted.price, granted.window, model, listed, granted.own, cuts, agreed)


def _promises(agreed: Sequence[OfferPublished | Share]) -> tuple[Promise, ...]:
    """Return what the owners of some GPUs promise, and for how many each. agreed: of each GPU."""
    counted = Counter(
        (
            (ReclaimStep(terms.notice_seconds, terms.reclaim_fee_ppm), *terms.reclaim_steps),
            terms.grace_seconds,
        )
        for terms in agreed
    )
    return tuple(Promise(gpus, steps, grace) for (steps, grace), gpus in counted.items())


def _cleared_with(book: Book, bid: OpenBid, now: int) -> Clearing:
    """Clear the lane of a bid as if it were in the book."""
    round_id = uuid5(QUOTES, str(bid.bid_id))
    if bid.terms.patience == "immediate":
        return clear(book, [bid], now=now, round_id=round_id)
    queue = sorted([*book.patient(), bid], key=lambda each: each.round_order)
    aside = left_out(book.aside, queue, now=now)
    return patient_cleared(
        book,
        [each for each in queue if now <= each.lapses and each.bid_id not in aside],
        now=now,
        round_id=round_id,
        guards=Guards(guard(SEARCH_SECONDS_MAX), stopwatch(REST_SECONDS_MAX)),
    )


def _without(clearing: Clearing, fill: Fill) -> Calendar:
    calendar = clearing.calendar.fork()
    for _, uuid in fill.placement.gpus:
        calendar.drop(uuid, fill.lease_id)
    return calendar


def explain_bid(
    store: EventStore,
    *,
    market: str,
    bid_id: UUID,
    now: datetime,
    wait_seconds: float | None = None,
) -> Explanation | None:
    """Walk the funnel of a bid that waits; None for one that does not wait any more.

    wait_seconds, Raises: as of book_of.
    """
    with book_of(store, market, wait_seconds=wait_seconds) as book:
        bid = book.bids.get(BidId(bid_id))
        if bid is None:
            return None
        return explained(
            book.aside, bid, book.explain(bid, now=from_above(now)), now=from_above(now)
        )
