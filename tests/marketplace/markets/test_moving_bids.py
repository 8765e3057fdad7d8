"""A bid that waits in vain goes to a market that would serve it: when, and never to two at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.ids import BidId
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Appended, Expect, Meta, NewEvent, load
from marketplace.domain.bids.bid import Bid
from marketplace.domain.bids.routing import (
    MOVES_MAX,
    PAUSE,
    PAUSE_MAX,
    Look,
    ask_move,
    better,
    pause_after,
)
from marketplace.domain.book.book import Book
from marketplace.domain.facts.events import BidFilled, BidHandedOn, LeaseGranted
from tests.conftest import NOON
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import Market, named, rate
from tests.marketplace.support.two_markets import EU, ask, later, two

HOUR = timedelta(hours=1)


def book_of(market: Market) -> Book:
    """Return a market's book as whoever reads all of the log has it."""
    book = Book(market.name)
    for recorded in market.events():
        book.apply(recorded.event, recorded.position)
    return book


def waiting(*markets: Market) -> dict[str, list[BidId]]:
    return {market.name: list(book_of(market).bids) for market in markets}


def test_it_is_handed_on_and_served_and_its_terms_and_age_stay() -> None:
    main, eu = two()
    bid_id = main.bid("b", at=2)
    main.run()
    eu.offer("there")
    later(main, eu, minutes=6)

    assert ask(main, "b")
    main.run()
    moved = book_of(eu).bids[bid_id]
    eu.run()

    granted = eu.grants()[bid_id]
    assert moved.terms.at == NOON
    assert moved.terms.hold_id == bid_id
    assert moved.terms.market == "eu"
    assert granted.market == "eu"
    assert main.grants() == {}


@pytest.mark.parametrize(
    ("looks", "to"),
    [
        ([Look("main"), Look("eu", rate(2), NOON), Look("us", rate(1), NOON + HOUR)], "us"),
        ([Look("main", rate(9), NOON + 5 * HOUR), Look("eu", rate(1), NOON)], None),
        ([Look("main"), Look("eu")], None),
        ([Look("eu", rate(1), NOON)], "eu"),
    ],
)
def test_it_moves_only_from_a_market_that_has_nothing_for_it(
    looks: list[Look], to: str | None
) -> None:
    found = better(looks, market="main")
    assert (None if found is None else found.market) == to


def test_it_waits_longer_after_each_move_and_stays_at_last() -> None:
    pauses = [pause_after(moves) for moves in range(8)]
    assert pauses[:3] == [PAUSE, 2 * PAUSE, 4 * PAUSE]
    assert pauses[-1] == PAUSE_MAX

    main, eu = two()
    main.bid("b")
    assert not ask(main, "b")
    later(main, minutes=5)
    assert not ask(main, "b", moves=1)
    assert not ask(main, "b", moves=MOVES_MAX)
    assert ask(main, "b")
    assert not ask(main, "b"), "it was asked just now"
    assert waiting(main, eu) == {"main": [BidId(named("bid b"))], "eu": []}


def test_a_bid_that_may_go_to_a_cloud_or_is_over_stays() -> None:
    main, _ = two()
    main.bid("b")
    bid = load(main.store, Bid, named("bid b"))
    assert bid is not None
    now = NOON + HOUR

    assert ask_move(bid, market="main", to=EU, moves=0, now=now)
    for other in (
        replace(bid, terms=replace(bid.terms, burst_allowed=True)),
        replace(bid, state="cancelled"),
    ):
        assert ask_move(other, market="main", to=EU, moves=0, now=now) == []


def test_what_is_amended_while_it_is_on_its_way_holds_in_its_new_market() -> None:
    main, eu = two()
    bid_id = main.bid("b", at=2)
    main.run()
    later(main, eu, minutes=6)
    ask(main, "b")
    before = main.engine  # it has read neither
    main.amend("b", at=5, deadline=NOON + 9 * HOUR)
    before.run_once(now=main.now)

    bid = book_of(eu).bids[bid_id]
    assert (bid.limit, bid.deadline - bid.earliest) == (rate(5).nanos_per_gpu_hour, 9 * 3_600_000)


def test_a_bid_withdrawn_on_its_way_comes_nowhere() -> None:
    main, eu = two()
    main.bid("b", at=2)
    main.run()
    later(main, eu, minutes=6)
    ask(main, "b")
    main.cancel("b")
    main.run()
    eu.offer("there")
    eu.run()

    assert waiting(main, eu) == {"main": [], "eu": []}
    assert eu.grants() == {}
    assert book_of(eu).coming == {}


def test_what_was_granted_before_it_was_asked_stands() -> None:
    main, eu = two()
    bid_id = main.bid("b", at=2)
    later(main, eu, minutes=6)
    main.offer("here")
    ask(main, "b")
    main.run()
    eu.offer("there")
    eu.run()

    assert list(main.grants()) == [bid_id]
    assert eu.grants() == {}
    assert not any(isinstance(each.event, BidHandedOn) for each in main.decisions())


def test_a_patient_bid_is_served_by_the_rounds_of_its_new_market() -> None:
    main, eu = two()
    bid_id = main.bid("b", at=2, patience="patient")
    main.run()
    eu.offer("there")
    later(main, eu, minutes=6)
    ask(main, "b")
    main.run()
    later(eu, minutes=2)
    eu.run()

    assert list(eu.grants()) == [bid_id]


def test_each_engine_folds_its_book_anew_with_what_was_handed_on() -> None:
    main, eu = two()
    bid_id = main.bid("b", at=2)
    main.run()
    later(main, eu, minutes=6)
    ask(main, "b")
    main.run()
    eu.run()

    main.engine, eu.engine = main.new_engine(), eu.new_engine()
    main.offer("here")
    main.run()
    eu.offer("there")
    eu.run()

    assert main.grants() == {}
    assert list(eu.grants()) == [bid_id]


class Dying(MemoryStore):
    """A store whose process is killed before an append to a market's stream, or after it."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.random, self.killing = random, True

    def append(
        self, stream: str, events: Sequence[NewEvent], *, expected: int | Expect, by: Meta
    ) -> Appended:
        chance = self.random.random() if self.killing and stream.startswith("market-") else 1
        if chance < 0.15:
            raise Killed
        appended = super().append(stream, events, expected=expected, by=by)
        if chance < 0.3:
            raise Killed
        return appended


class Killed(Exception):
    """The process is gone."""


@settings(deadline=None, max_examples=60)
@given(random=st.randoms(use_true_random=False))
def test_a_bid_is_never_open_in_two_markets_and_never_in_none(random: Random) -> None:
    store = Dying(random)
    markets = two(store)
    words: list[str] = []

    def pick() -> str:
        return random.choice(words)

    def place() -> None:
        words.append(f"b{len(words)}")
        home = random.choice(markets)
        home.bid(
            words[-1], at=random.randint(1, 3), patience=random.choice(("immediate", "patient"))
        )

    def offer() -> None:
        random.choice(markets).offer(f"o{store.head()}", at=random.randint(1, 3))

    def move() -> None:
        there = random.choice(markets)
        other = next(each for each in markets if each is not there)
        ask(there, pick(), Look(other.name, rate(1), there.now))

    def amend() -> None:
        bid = load(store, Bid, BidId(named(f"bid {(word := pick())}")))
        if bid is not None and bid.state == "open":
            markets[0].amend(word, at=random.randint(1, 4), deadline=markets[0].now + 30 * HOUR)

    def cancel() -> None:
        bid = load(store, Bid, BidId(named(f"bid {(word := pick())}")))
        if bid is not None and bid.state == "open":
            markets[0].cancel(word)

    def clear() -> None:
        market = random.choice(markets)
        try:
            market.run()
        except Killed:
            market.engine = market.new_engine()

    place()
    acts: list[Callable[[], None]] = [place, offer, move, move, amend, cancel, clear, clear, clear]
    for _ in range(40):
        random.choice(acts)()
        later(*markets, minutes=random.choice((1, 6)))
        check(markets, store)
    store.killing = False
    for market in (*markets, *markets):
        market.engine = market.new_engine()
        market.run()
    check(markets, store)
    audit(list(markets[0].events()))


def check(markets: tuple[Market, Market], store: MemoryStore) -> None:
    """Each bid waits in one book, or has one grant, or is over."""
    books = [book_of(market) for market in markets]
    granted: dict[UUID, int] = {}
    for recorded in store.read_all(limit=10_000).events:
        if isinstance(recorded.event, LeaseGranted):
            granted[recorded.event.bid_id] = granted.get(recorded.event.bid_id, 0) + 1
        assert not isinstance(recorded.event, BidFilled)
    for recorded in store.read_all(limit=10_000).events:
        if recorded.type != "marketplace.bid-placed":
            continue
        bid = load(store, Bid, recorded.event.bid_id)  # type: ignore[attr-defined]  # of a bid
        assert bid is not None
        places = [book.bids[bid.terms.bid_id] for book in books if bid.terms.bid_id in book.bids]
        if bid.state == "open":
            assert len(places) + granted.get(bid.terms.bid_id, 0) == 1
        else:
            assert places == []
        for place in places:
            assert (place.rate, place.terms.at) == (bid.limit.nanos_per_gpu_hour, bid.terms.at)
