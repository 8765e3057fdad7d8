"""A run of the lab that begins at a snapshot comes to the same as one from the first event."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ledger.eventstore.port import START
from ledger.eventstore.postgres import PostgresStore
from marketplace.domain.clearing.fills import Rules
from marketplace.lab import comparing
from marketplace.lab.beginning import place_of, snapshot_before
from marketplace.lab.comparing import Comparison, Question, StretchTooLong, compare
from marketplace.lab.variants import Variant
from marketplace.models import SnapshotRow
from marketplace.snapshots.postgres import PostgresSnapshots
from tests.marketplace.support.market import MARKET, Market

DAYS = 3
VARIANTS = {
    "as it is": Variant(),
    "midpoint": Variant(Rules("midpoint")),
    "patient": Variant(lanes="patient", round_seconds=7_200),
    "no preemption": Variant(Rules(preemption=False)),
}


@pytest.fixture
def market(db: None) -> Market:
    """Three days with a snapshot every few facts, offers that come, pause and go, and all bids.

    Some bids and leases of each day are still there on the next, and some end only then.
    """
    market = Market(PostgresStore())
    market.keep(PostgresSnapshots(), facts=4)
    for day in range(DAYS):
        for number in range(5):
            name = f"{day}.{number}"
            if number % 2 == 0:
                until = market.now + timedelta(hours=30)
                market.offer(f"host {name}", gpus=2, windows=[(market.now, until)])
            market.bid(f"short {name}", gpus=1, hours=2, at=3)
            market.bid(f"long {name}", gpus=1 + number % 2, hours=20, at=2)
            market.bid(f"dear {name}", gpus=1, hours=1, at="0.10")
            market.bid(f"patient {name}", gpus=1, hours=3, at=2, patience="patient")
            market.run()
            market.wait(hours=5)
            market.run()
            if market.grant(f"short {name}") and number % 3 == 1:
                market.close(f"short {name}")
        market.change_offer(f"host {day}.2", "pause")
        if day:
            _the_day_after(market, day - 1)
    return market


def _the_day_after(market: Market, day: int) -> None:
    """Change what came the day before: offers, bids that wait, leases that run."""
    market.change_offer(f"host {day}.2", "resume")
    market.change_offer(f"host {day}.4", "reprice", "0.80")
    market.amend(f"dear {day}.3", at=4, deadline=market.now + timedelta(hours=9))
    market.cancel(f"dear {day}.4")
    held = [word for n in range(5) if market.grant(word := f"long {day}.{n}") is not None]
    market.reclaim(held[-1])
    market.run()


def ask(market: Market, *, hours: int, variant: Variant) -> Comparison:
    return compare(
        market.store,
        market=MARKET,
        currency="USD",
        question=Question(hours, variant, 70_000),
        present=Variant(),
        fee_ppm=50_000,
        now=market.now,
    )


@pytest.mark.parametrize(
    ("name", "hours"),
    [("as it is", 7), ("as it is", 30), ("midpoint", 7), ("patient", 7), ("no preemption", 30)],
)
def test_the_figures_are_the_same(market: Market, name: str, hours: int) -> None:
    since = market.now - timedelta(hours=hours)
    place = place_of(market.store, MARKET, since)
    assert place is not None
    start = snapshot_before(market.store, MARKET, place)
    assert start is not None and start.state.held and start.state.bids and start.state.offers

    from_snapshot = ask(market, hours=hours, variant=VARIANTS[name])
    SnapshotRow.objects.all().delete()
    from_the_start = ask(market, hours=hours, variant=VARIANTS[name])

    assert from_snapshot == from_the_start
    assert from_snapshot.recorded.grants and from_snapshot.recorded.used_millis


def test_what_was_before_the_snapshot_does_not_count_against_the_bound(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "EVENTS_MAX", 100)

    assert ask(market, hours=7, variant=Variant()).facts

    SnapshotRow.objects.all().delete()
    with pytest.raises(StretchTooLong):
        ask(market, hours=7, variant=Variant())


def test_a_damaged_snapshot_is_passed_over(market: Market) -> None:
    before = ask(market, hours=7, variant=Variant())
    SnapshotRow.objects.update(body=b"nonsense")

    assert ask(market, hours=7, variant=Variant()) == before


def test_a_snapshot_from_within_the_stretch_is_not_used(market: Market) -> None:
    since = market.now - timedelta(days=DAYS + 2)

    assert place_of(market.store, MARKET, since) == START
    assert snapshot_before(market.store, MARKET, START) is None


def test_a_stretch_is_a_place_in_the_log_whatever_moments_its_facts_say(market: Market) -> None:
    """One clock is an hour fast: the engine had read its offer before. Another is hours slow."""
    then = market.now
    market.now = then + timedelta(hours=1)
    market.offer("fast", gpus=3, windows=[(then, then + timedelta(hours=30))])
    market.now = then
    market.bid("before", gpus=1, hours=1, at=9)
    market.run()
    market.now = then + timedelta(hours=2)
    market.bid("within", gpus=1, hours=2, at=9)
    market.now = then - timedelta(hours=9)
    market.bid("slow", gpus=1, hours=2, at=9, deadline=then + timedelta(hours=20))
    market.now = then + timedelta(hours=2)
    market.run()
    market.wait(hours=3)

    from_snapshot = ask(market, hours=4, variant=Variant())
    SnapshotRow.objects.all().delete()

    assert market.grant("slow") is not None
    assert (from_snapshot.recorded.bids, from_snapshot.recorded.grants) == (2, 2)
    assert from_snapshot.again.grants == 2, "on the offer that says it came within the stretch"
    assert ask(market, hours=4, variant=Variant()) == from_snapshot
