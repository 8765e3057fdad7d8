"""A round is replayed from the snapshot before it, and comes out as it did from the first event."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from pytest_django.plugin import DjangoDbBlocker

from ledger.eventstore.postgres import PostgresStore
from marketplace.domain.facts.events import RoundCleared
from marketplace.models import SnapshotRow
from marketplace.replay.round import book_at, replay_round
from marketplace.snapshots.memory import MemorySnapshots
from marketplace.snapshots.port import AGES_MAX, NEWEST, thinned
from marketplace.snapshots.postgres import PostgresSnapshots
from tests.kept import kept
from tests.marketplace.support.market import Market

ROUNDS = 24


@pytest.fixture(scope="module")
def traded(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Market]:
    """A market that had many rounds, with a snapshot every few facts."""
    with kept(django_db_blocker) as made:
        market = Market(PostgresStore())
        market.keep(PostgresSnapshots(), facts=4)
        for number in range(ROUNDS):
            market.offer(f"host {number}", gpus=2)
            market.bid(f"bid {number}", gpus=1 + number % 2)
            market.bid(f"patient {number}", patience="patient", hours=2)
            market.run()
            market.wait(minutes=2)
    yield market
    made.end()


@pytest.fixture
def market(traded: Market, db: None) -> Market:
    return traded


def rounds(market: Market) -> list[RoundCleared]:
    events = [recorded.event for recorded in market.decisions()]
    return [event for event in events if isinstance(event, RoundCleared)]


def test_every_round_comes_out_identical_wherever_its_fold_begins(market: Market) -> None:
    cleared = rounds(market)

    outcomes = {
        replay_round(market.store, market="main", round_id=e.round_id).outcome for e in cleared
    }

    assert len(cleared) > ROUNDS
    assert outcomes == {"identical"}


def test_it_is_folded_from_the_snapshot_before_it(market: Market) -> None:
    last = rounds(market)[-1]

    from_snapshot = book_at(market.store, "main", last.round_id)
    SnapshotRow.objects.all().delete()
    from_the_start = book_at(market.store, "main", last.round_id)

    assert 2 * from_snapshot.facts < from_the_start.facts
    assert from_snapshot.book.read_to == from_the_start.book.read_to
    assert set(from_snapshot.book.bids) == set(from_the_start.book.bids)
    assert set(from_snapshot.book.held) == set(from_the_start.book.held)


def test_a_damaged_snapshot_is_passed_over(market: Market) -> None:
    last = rounds(market)[-1]
    SnapshotRow.objects.update(body=b"nonsense")

    found = book_at(market.store, "main", last.round_id)

    assert found.facts > 2 * ROUNDS
    assert replay_round(market.store, market="main", round_id=last.round_id).outcome == "identical"


def test_older_snapshots_are_kept_ever_farther_apart() -> None:
    kept: set[int] = set()
    for position in range(0, 20_000_000, 20_000):
        kept = thinned([*kept, position])
        assert len(kept) <= NEWEST + AGES_MAX
    newest = max(kept)

    for age in (20_000, 100_000, 1_000_000, 10_000_000):
        nearest = max(position for position in kept if position <= newest - age)
        assert newest - age - nearest <= 2 * age


def test_the_newest_stay(market: Market) -> None:
    positions = sorted(SnapshotRow.objects.values_list("position", flat=True))

    assert NEWEST < len(positions) < ROUNDS
    assert PostgresSnapshots().latest("main") == PostgresSnapshots().at(
        "main", PostgresSnapshots().versions("main")[-1]
    )


def test_snapshots_in_memory_are_found_by_version() -> None:
    market, snapshots = Market(), MemorySnapshots()
    market.keep(snapshots, facts=2)
    for number in range(6):
        market.offer(f"host {number}")
        market.bid(f"bid {number}")
        market.run()
        market.wait(seconds=timedelta(minutes=1).total_seconds())

    versions = snapshots.versions("main")

    assert len(versions) > 2
    for version in versions:
        found = snapshots.at("main", version)
        assert found is not None
        assert found.version == version
    assert snapshots.at("main", 10_000) is None
    assert snapshots.latest("main") == snapshots.at("main", versions[-1])
