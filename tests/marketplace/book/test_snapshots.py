"""A fold that starts from a snapshot ends where a fold of the whole log does."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.eventstore.port import START, Page, Position
from ledger.eventstore.postgres import PostgresStore
from marketplace.domain.book.book import Book
from marketplace.domain.book.snapshot import state_of
from marketplace.domain.facts.events import RoundCleared
from marketplace.engine import Engine
from marketplace.models import SnapshotRow
from marketplace.queries.books import book_of
from marketplace.snapshots.memory import MemorySnapshots
from marketplace.snapshots.port import Snapshot, Snapshots, usable
from marketplace.snapshots.postgres import PostgresSnapshots
from tests.marketplace.support.market import MARKET, Market
from tests.marketplace.support.random_market import Crowd, Lane
from tests.marketplace.support.snapshots import kept

ACTS = 60


def test_nothing_in_a_book_is_forgotten() -> None:
    made_from_the_rest = {"calendar", "catalogue", "leases", "offers", "owners", "queue", "returns"}
    only_for_speed = {"_desk", "_dying", "_screened", "_shapes_max"}
    in_the_state = {
        *("market", "bids", "coming", "held", "told", "aside", "resales", "quotas"),
        *("read_to", "round_at", "least_runs", "quarantine", "agents", "promises", "granted_bids"),
    }

    assert set(vars(Book(MARKET))) == made_from_the_rest | only_for_speed | in_the_state


@given(st.randoms(use_true_random=True), st.integers(0, ACTS - 1))
@settings(max_examples=40, deadline=None)
def test_a_book_goes_on_from_a_snapshot_as_if_nothing_had_been(random: Random, when: int) -> None:
    crowd, whole = Crowd(random), Lane(Book(MARKET))
    other: Lane | None = None

    for act in range(ACTS):
        if act == when:
            other = Lane(kept(whole.book))
        for event, position in crowd.acts(whole.book):
            decided = whole.take_in(event, position, now=crowd.now)
            if other is not None:
                assert other.take_in(event, position, now=crowd.now) == decided

    assert other is not None
    assert state_of(other.book) == state_of(whole.book)
    assert other.book.dead(1 << 60) == whole.book.dead(1 << 60)


class Killed(Exception):
    """The process is gone."""


class DyingSnapshots(MemorySnapshots):
    """Kills the keeper at a snapshot, before it is written or after."""

    die: str | None = None
    made = 0

    def keep(self, snapshot: Snapshot) -> None:
        if self.die == "before":
            raise Killed
        super().keep(snapshot)
        self.made += 1
        if self.die == "after":
            raise Killed


def act(market: Market, number: int) -> None:
    """Let an offer and two bids come, and now and then a lease end, a pass after each."""
    market.offer(f"offer{number}", gpus=2, at=1)
    market.bid(f"wanted{number}", gpus=1, at=2)
    run(market)
    market.bid(f"too cheap {number}", at=0.5)
    run(market)
    if number % 2:
        market.close(f"wanted{number}")
    market.wait(minutes=1)
    run(market)


def run(market: Market) -> None:
    """Let engine and keeper do one pass; if they are killed, new ones do it."""
    try:
        market.run()
    except Killed:
        snapshots = market.engine._snapshots
        assert isinstance(snapshots, DyingSnapshots)
        die, snapshots.die = snapshots.die, None
        use(market, snapshots)
        market.run()
        snapshots.die = die


def use(market: Market, snapshots: Snapshots) -> None:
    """Let new processes be engine and keeper; a snapshot is kept every few facts."""
    market.keep(snapshots, facts=4)


def what_was_decided(market: Market) -> list[tuple[object, ...]]:
    """Return the decisions without the ids that are new each time."""
    return [
        (type(event), getattr(event, "bid_id", None), getattr(event, "window", None))
        for event in (recorded.event for recorded in market.decisions())
    ]


def where_it_reads(market: Market) -> list[Position]:
    """Return the positions after which a pass of the engine reads."""
    read: list[Position] = []
    read_all = market.store.read_all

    def reading(**how: Any) -> Page:
        read.append(how["after"])
        return read_all(**how)

    market.store.read_all = reading  # type: ignore[method-assign]
    market.run()
    return read


@pytest.mark.parametrize("die", ["before", "after"])
def test_killed_at_every_snapshot_they_decide_the_same(die: str) -> None:
    plain, market, snapshots = Market(), Market(), DyingSnapshots()
    use(market, snapshots)

    for number in range(8):
        act(plain, number)
        snapshots.die = die if number > 2 else None
        act(market, number)

    assert snapshots.made > 2
    assert what_was_decided(market) == what_was_decided(plain)


def test_a_new_engine_reads_only_what_came_after_the_snapshot() -> None:
    market, snapshots = Market(), MemorySnapshots()
    use(market, snapshots)
    for number in range(6):
        act(market, number)
    snapshot = usable(snapshots, market.store, MARKET)
    assert snapshot is not None

    use(market, snapshots)

    assert min(where_it_reads(market)) == snapshot.tail.before > START


def test_a_snapshot_of_facts_that_never_happened_is_ignored() -> None:
    market, other, snapshots = Market(), Market(), MemorySnapshots()
    use(market, snapshots)
    for number in range(3):
        act(market, number)
    other.offer("another past", at=1)
    other.bid("b", at=2)

    other.engine = Engine(other.store, MARKET, snapshots=snapshots)
    other.run()

    assert usable(snapshots, market.store, MARKET) is not None
    assert usable(snapshots, other.store, MARKET) is None
    assert other.grant("b") is not None


def test_a_snapshot_whose_last_decision_is_not_in_the_log_is_ignored() -> None:
    market, snapshots = Market(), MemorySnapshots()
    use(market, snapshots)
    for number in range(3):
        act(market, number)
    snapshot = usable(snapshots, market.store, MARKET)
    assert snapshot is not None

    snapshots.keep(replace(snapshot, decision_id=uuid4()))

    assert usable(snapshots, market.store, MARKET) is None


def test_a_decision_by_an_engine_that_had_read_less_sets_the_snapshot_aside() -> None:
    market, snapshots = Market(), MemorySnapshots()
    market.keep(snapshots, facts=1)
    market.offer("a", at=1)
    market.bid("b", at=2)
    market.run()
    assert usable(snapshots, market.store, MARKET) is not None
    slow = RoundCleared(
        market=MARKET,
        round_id=uuid4(),
        lane="instant",
        through=1,
        bids=0,
        offers=1,
        grants=0,
        gpus=0,
        unmatched=(),
        price_low=0,
        price_high=0,
        rule="",
        at=market.now,
    )
    market.put(f"market-{MARKET}", slow)

    market.engine = Engine(market.store, MARKET, snapshots=snapshots)

    assert START in where_it_reads(market)


@pytest.mark.django_db
def test_a_damaged_snapshot_is_passed_over_for_the_one_before() -> None:
    market, snapshots = Market(), PostgresSnapshots()
    use(market, snapshots)
    for number in range(4):
        act(market, number)
    newest, before = SnapshotRow.objects.order_by("-id")[:2]
    SnapshotRow.objects.filter(id=newest.id).update(body=bytes(newest.body)[:-1] + b"?")

    found = snapshots.latest(MARKET)

    assert found is not None
    assert found.tail.position == before.position < newest.position


@pytest.mark.django_db
def test_a_snapshot_of_another_form_is_not_read() -> None:
    market, snapshots = Market(), PostgresSnapshots()
    use(market, snapshots)
    act(market, 0)
    act(market, 1)
    assert snapshots.latest(MARKET) is not None

    SnapshotRow.objects.update(form="of another release")

    assert snapshots.latest(MARKET) is None
    assert snapshots.latest("elsewhere") is None


@pytest.mark.django_db
def test_a_web_process_starts_from_the_snapshot_of_the_keeper() -> None:
    market = Market(PostgresStore())
    use(market, PostgresSnapshots())
    for number in range(4):
        act(market, number)
    whole = Book(MARKET)
    for recorded in market.events():
        whole.apply(recorded.event, recorded.position)
        whole.read_to = recorded.position

    with book_of(market.store, MARKET) as book:
        assert SnapshotRow.objects.exists()
        assert state_of(book) == state_of(whole)
