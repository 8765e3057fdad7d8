"""Snapshots are kept apart from the engine, and one that starts from them goes on as any other."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any
from unittest.mock import patch
from uuid import UUID
from weakref import ReferenceType, ref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import EventStore, Page, Position, Recorded
from marketplace.domain.book.book import READS, Book
from marketplace.domain.book.snapshot import BookState, state_of
from marketplace.domain.decisions.decide import Guards
from marketplace.domain.facts.events import DECISIONS, NothingDecided, RoundCleared
from marketplace.domain.facts.instants import from_above
from marketplace.engine import Engine
from marketplace.folding import FORGET_AFTER, Folding, Overtaken, folded, to_the_end
from marketplace.keeper import Keeper, is_overdue
from marketplace.snapshots.memory import MemorySnapshots
from marketplace.snapshots.port import Snapshot, usable
from tests.marketplace.support.market import MARKET, Market
from tests.marketplace.support.market import named as word_id
from tests.marketplace.support.random_market import Crowd

ACTS = 40


class Behind:
    """A store as somebody sees it who has not read the last facts of others yet."""

    def __init__(self, store: EventStore, market: str = MARKET) -> None:
        self._store, self._stream = store, f"market-{market}"
        self.until: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read_all(self, **how: Any) -> Page:
        page = self._store.read_all(**how)
        if self.until is None:
            return page
        seen = [each for each in page.events if each.position <= self.until]
        return Page(seen, Position(min(page.next_position, self.until)), caught_up=True)


class Several:
    """Two engines that see the log up to different places, and a keeper, all at random."""

    def __init__(self, random: Random) -> None:
        self.random, self.crowd = random, Crowd(random)
        self.market = self.crowd.market
        self.snapshots = MemorySnapshots()
        self.views = [Behind(self.market.store) for _ in range(2)]
        self.engines = [Engine(view, MARKET) for view in self.views]
        self.known = Book(MARKET)
        """Tells the crowd what there is."""

    def act(self) -> None:
        """Let people do one thing, and perhaps an engine decide."""
        for event, position in self.crowd.acts(self.known):
            self.known.apply(event, position)
        which = self.random.choice((0, 0, 1, None))
        if which is not None:
            head, view = self.market.store.head(), self.views[which]
            view.until = max(view.until or 0, head - self.random.choice((0, 0, 1, 2, 5)))
            self.engines[which].run_once(now=self.market.now)

    def keep(self) -> Snapshot | None:
        """Let a keeper that just started keep what there is; return it."""
        keeper = Keeper(self.market.store, MARKET, snapshots=self.snapshots, snapshot_facts=0)
        keeper.run_once(now=self.market.now)
        return usable(self.snapshots, self.market.store, MARKET)


def same_ids() -> Iterator[UUID]:
    return (UUID(int=number) for number in count(1))


def goes_on(
    store: MemoryStore, snapshots: MemorySnapshots, market: Market
) -> tuple[BookState, list[object]]:
    """Return the book and the decisions of an engine that starts now, in a copy of the log."""
    mine = Market(copied(store), now=market.now)
    engine = Engine(mine.store, MARKET, snapshots=snapshots)
    ids = same_ids()
    engine._append_id = next(ids)
    with patch("marketplace.engine.uuid4", lambda: next(ids)):
        for number in range(3):
            while engine.run_once(now=mine.now):
                pass
            mine.offer(f"after {number}", gpus=4, at=0.5)
            mine.bid(f"after {number}", gpus=2, at=3)
            mine.bid(f"patient {number}", gpus=1, at=3, patience="patient")
            mine.wait(seconds=61)
        while engine.run_once(now=mine.now):
            pass
    assert engine._book is not None
    engine._book.forget_before(from_above(mine.now))
    return state_of(engine._book), [recorded.event for recorded in mine.decisions()]


def copied(store: MemoryStore) -> MemoryStore:
    copy = MemoryStore()
    copy._log = list(store._log)
    copy._streams = {stream: list(mine) for stream, mine in store._streams.items()}
    copy._by_id = dict(store._by_id)
    return copy


@pytest.fixture(autouse=True, scope="module")
def no_clock() -> Iterator[None]:
    """Let rounds take as long as they do: how far a slow machine comes is not the matter here."""
    with patch("marketplace.engine.guards_of_a_round", Guards):
        yield


@given(st.randoms(use_true_random=True), st.sets(st.integers(0, ACTS - 1), min_size=1))
@settings(max_examples=40, deadline=None)
def test_an_engine_goes_on_from_any_snapshot_as_from_the_first_fact(
    random: Random, when: set[int]
) -> None:
    several = Several(random)
    for act in range(ACTS):
        several.act()
        if act in when:
            several.keep()
    store = several.market.store
    assert isinstance(store, MemoryStore)

    whole = goes_on(store, MemorySnapshots(), several.market)
    from_snapshot = goes_on(store, several.snapshots, several.market)

    assert from_snapshot == whole


@given(st.randoms(use_true_random=True))
@settings(max_examples=40, deadline=None)
def test_a_snapshot_is_the_book_of_the_last_decision_and_says_where_to_read_on(
    random: Random,
) -> None:
    several = Several(random)
    for number in range(ACTS):
        several.act()
        if number == ACTS // 2:
            several.keep()
    snapshot = several.keep()
    store, past = several.market.store, from_above(several.market.now - FORGET_AFTER)

    whole = to_the_end(Folding(MARKET), store)
    book, unknown = by_hand(several.market)
    assert (state_of(whole.book), facts(whole)) == (state_of(book), unknown)
    whole.book.forget_before(past)
    if snapshot is None:
        assert whole.version == 0
        return
    assert (snapshot.version, snapshot.decision_id) == (whole.version, whole.decision_id)
    assert snapshot.state == state_of(whole.book)
    again = to_the_end(Folding(MARKET, snapshot), store)
    assert state_of(again.book) == state_of(whole.book)
    assert facts(again) == facts(whole)


def by_hand(market: Market) -> tuple[Book, list[Recorded]]:
    """Return the book of the last decision, and the facts that no decision knew."""
    book, waiting = Book(MARKET), list[Recorded]()
    for recorded in market.events():
        if recorded.stream != f"market-{MARKET}":
            waiting += [recorded] if recorded.type in READS else []
            continue
        through = getattr(recorded.event, "through", 0)
        for fact in [each for each in waiting if each.position <= through]:
            book.apply(fact.event, fact.position)
            book.read_to = fact.position
            waiting.remove(fact)
        book.apply(recorded.event, recorded.position)
    return book, waiting


def facts(folding: Folding) -> list[Recorded]:
    """Return what waits for a decision."""
    return [recorded for _, recorded in folding.waiting]


def test_facts_that_no_decision_knew_are_decided_by_who_starts_from_the_snapshot() -> None:
    market, snapshots = Market(), MemorySnapshots()
    view = Behind(market.store)
    slow = Engine(view, MARKET)
    market.offer("a", gpus=2)
    market.bid("known", gpus=1)
    view.until = market.store.head()
    market.bid("between", gpus=1)
    slow.run_once(now=market.now)
    market.bid("after", gpus=1)
    market.keep(snapshots, facts=1)
    assert market.keeper is not None
    market.keeper.run_once(now=market.now)
    snapshot = usable(snapshots, market.store, MARKET)
    assert snapshot is not None
    between, decided = (
        next(each.position for each in market.events() if named(each, word))
        for word in ("between", "known granted")
    )
    assert snapshot.next_position < between < decided

    market.run()

    assert len(market.grants()) == 3
    assert len(told(market)) == 3


def named(recorded: Recorded, what: str) -> bool:
    """Tell if it is the bid `between`, or the first decision."""
    if what == "between":
        return recorded.stream == f"bid-{word_id('bid between')}"
    return recorded.stream == f"market-{MARKET}" and recorded.version == 1


def told(market: Market) -> list[RoundCleared]:
    events = [recorded.event for recorded in market.decisions()]
    return [event for event in events if isinstance(event, RoundCleared)]


class Counting:
    """Whatever it stands for; `asked` are the calls."""

    def __init__(self, real: Any) -> None:
        self._real, self.asked = real, list[tuple[str, dict[str, Any]]]()

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        if not callable(real):
            return real

        def call(*args: Any, **said: Any) -> Any:
            self.asked.append((name, said))
            return real(*args, **said)

        return call

    def names(self) -> set[str]:
        return {name for name, _ in self.asked}


def test_an_engine_writes_decisions_and_nothing_else() -> None:
    market, snapshots = Market(), Counting(MemorySnapshots())
    store = Counting(market.store)
    engine = Engine(store, MARKET, snapshots=snapshots)

    with patch("marketplace.keeper.SNAPSHOT_FACTS", 1):
        for number in range(30):
            market.offer(f"host {number}")
            market.bid(f"bid {number}")
            market.wait(seconds=61)
            engine.run_once(now=market.now)

    assert snapshots.names() == {"latest"}
    assert store.names() == {"read_all", "append"}
    assert not hasattr(engine, "_tail")


def busy(facts: int, *, of: int) -> tuple[Market, Counting, Counting, Keeper]:
    """Return a market with so many facts and decisions, and a keeper for every `of` of them."""
    market, snapshots = Market(), Counting(MemorySnapshots())
    store = Counting(market.store)
    keeper = Keeper(store, MARKET, snapshots=snapshots, snapshot_facts=of)
    more(market, facts)
    return market, store, snapshots, keeper


def more(market: Market, facts: int) -> None:
    """Let bids come that nothing fits, each with a decision that says so."""
    for _ in range(facts // 2):
        market.bid(f"{market.store.head()}", gpus=1, at=9)
    market.engine.run_once(now=market.now)


def test_it_does_nothing_until_there_is_enough_and_only_counts_what_is_new() -> None:
    market, store, snapshots, keeper = busy(100, of=60)
    assert keeper.run_once(now=market.now) == 100
    head = market.store.head()
    store.asked.clear()
    snapshots.asked.clear()

    more(market, 98)
    assert keeper.run_once(now=market.now) == 0
    assert keeper.run_once(now=market.now) == 0

    assert snapshots.names() == set()
    assert {said["after"] for _, said in store.asked} == {head, market.store.head()}

    more(market, 2)
    assert keeper.run_once(now=market.now) == 100, "two for each of fifty bids"
    assert snapshots.names() == {"latest", "keep"}


def test_one_that_starts_looks_up_how_much_is_new() -> None:
    market, store, snapshots, keeper = busy(100, of=60)
    keeper.run_once(now=market.now)
    more(market, 58)

    other = Keeper(store, MARKET, snapshots=snapshots, snapshot_facts=60)
    assert other.run_once(now=market.now) == 0
    assert len(snapshots._real.versions(MARKET)) == 1

    more(market, 100)
    assert other.run_once(now=market.now) == 158


def test_it_keeps_nothing_while_no_engine_decides() -> None:
    market, _, snapshots, keeper = busy(100, of=60)
    keeper.run_once(now=market.now)
    snapshots.asked.clear()

    for number in range(300):
        market.bid(f"unheard {number}")
    assert [keeper.run_once(now=market.now) for _ in range(3)] == [0, 0, 0]
    assert snapshots.names() == set()

    market.engine.run_once(now=market.now)
    assert keeper.run_once(now=market.now) == 600


def test_it_holds_no_book_between_two_snapshots() -> None:
    market, _, _, keeper = busy(100, of=60)
    books: list[ReferenceType[Book]] = []

    def seen(*args: Any) -> Folding:
        folding = folded(*args)
        books.append(ref(folding.book))
        return folding

    with patch("marketplace.keeper.folded", seen):
        keeper.run_once(now=market.now)
    gc.collect()

    assert [book() for book in books] == [None]


def test_after_a_decision_that_knew_less_it_keeps_one_that_holds() -> None:
    market, _, snapshots, keeper = busy(100, of=60)
    keeper.run_once(now=market.now)
    less = told(market)[0]
    market.put(f"market-{MARKET}", less)
    snapshot = usable(snapshots._real, market.store, MARKET)
    assert snapshot is not None
    with pytest.raises(Overtaken):
        to_the_end(Folding(MARKET, snapshot), market.store)

    market.engine = market.new_engine()
    more(market, 200)
    assert keeper.run_once(now=market.now) > 200, "the whole log"

    newest = usable(snapshots._real, market.store, MARKET)
    assert newest is not None
    whole = to_the_end(Folding(MARKET), market.store)
    assert newest.state == state_of(whole.book)
    assert state_of(to_the_end(Folding(MARKET, newest), market.store).book) == newest.state


def test_a_quiet_market_is_not_folded_from_its_last_decision() -> None:
    """What a busy market's log holds is gone through once, not again at each start."""
    store = MemoryStore()
    quiet, loud = Market(store), Market(store, name="loud")
    quiet.offer("own")
    quiet.bid("own")
    quiet.run()
    snapshots = MemorySnapshots()
    quiet.keep(snapshots, facts=10)

    with patch("marketplace.engine.UNDECIDED_MAX", 20):
        for number in range(200):
            loud.offer(f"loud {number}")
            quiet.run()
    assert quiet.run() == 0

    ours = [each.event for each in quiet.decisions() if isinstance(each.event, DECISIONS)]
    assert [type(event) for event in ours] == [RoundCleared, *[NothingDecided] * 10]
    snapshot = usable(snapshots, store, MARKET)
    assert snapshot is not None
    assert len(facts(to_the_end(Folding(MARKET, snapshot), store))) < 20 + 20
    assert state_of(folded(store, MARKET, snapshots).book) == state_of(
        to_the_end(Folding(MARKET), store).book
    )


def test_it_is_told_where_nobody_keeps_snapshots() -> None:
    market, _, _, _ = busy(100, of=60)
    snapshots = MemorySnapshots()

    def overdue(facts: int) -> bool:
        return is_overdue(market.store, MARKET, snapshots, snapshot_facts=facts)

    assert [overdue(facts) for facts in (60, 50, 49)] == [False, False, True]
    Keeper(market.store, MARKET, snapshots=snapshots, snapshot_facts=1).run_once(now=market.now)
    assert not overdue(1)
    for number in range(300):
        market.bid(f"unheard {number}")
    assert not overdue(1), "the engine is down: there is nothing else to keep"
    market.engine.run_once(now=market.now)
    assert overdue(1)
