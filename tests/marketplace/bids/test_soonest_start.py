"""A bid may rather start sooner than pay less, and the rest of work that was cut short does."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marketplace.domain.bids.bounds import SoonestIsAtOnce
from marketplace.domain.facts.events import LeaseGranted, Workload
from marketplace.domain.facts.instants import from_above
from marketplace.domain.placement.placement import place
from tests.conftest import NOON
from tests.marketplace.support.going import Going
from tests.marketplace.support.market import Market, rate
from tests.marketplace.support.rounds import book_of
from tests.marketplace.support.site import TERMS

HOUR = timedelta(hours=1)


def taken_until(market: Market, word: str, at: float, hours: int, *, gpus: int = 1) -> None:
    """List GPUs at a floor that are free only after some hours."""
    windows = [(NOON + hours * HOUR, NOON + 48 * HOUR)]
    market.offer(word, gpus=gpus, at=at, windows=windows)


def granted(market: Market, word: str) -> LeaseGranted:
    found = market.grant(word)
    assert found is not None, f"{word} got nothing"
    return found


def hours_to(moment: datetime) -> float:
    return (moment - NOON) / HOUR


@pytest.mark.parametrize(("seeks", "starts", "price"), [("cheapest", 6, 1), ("soonest", 0, 3)])
def test_it_starts_sooner_at_a_higher_price(seeks: str, starts: int, price: int) -> None:
    market = Market()
    taken_until(market, "cheap", 1, 6)
    taken_until(market, "middling", 2, 2)
    taken_until(market, "dear", 3, 0)
    market.bid("b", at=4, seeks=seeks)
    market.run()

    lease = granted(market, "b")
    assert (hours_to(lease.window.starts_at), lease.price) == (starts, rate(price))


def test_it_never_pays_more_than_its_limit() -> None:
    market = Market()
    taken_until(market, "cheap", 1, 6)
    taken_until(market, "middling", 2, 2)
    taken_until(market, "dear", 3, 0)
    market.bid("b", at="2.5", seeks="soonest")
    market.run()

    lease = granted(market, "b")
    assert (hours_to(lease.window.starts_at), lease.price) == (2, rate(2))


def test_of_those_that_start_as_soon_it_takes_the_cheapest() -> None:
    market = Market()
    for word, at in (("dear", 3), ("cheap", 1), ("middling", 2)):
        taken_until(market, word, at, 0)
    market.bid("b", at=4, seeks="soonest")
    market.run()

    assert granted(market, "b").price == rate(1)


def test_a_gang_that_seeks_it_starts_sooner_too() -> None:
    market = Market()
    taken_until(market, "cheap", 1, 6, gpus=2)
    taken_until(market, "here", 2, 1)
    taken_until(market, "there", 3, 1)
    market.bid("b", gpus=2, at=4, gang=True, seeks="soonest")
    market.run()

    lease = granted(market, "b")
    assert hours_to(lease.window.starts_at) == 1
    assert len({share.host_id for share in lease.shares}) == 2


def test_what_would_be_enough_is_said_by_price_all_the_same() -> None:
    market = Market()
    taken_until(market, "cheap", 1, 6)
    taken_until(market, "dear", 3, 0)
    bid_id = market.bid("b", at="0.5", seeks="soonest")
    market.run()

    book = book_of(market)
    told = book.explain(book.bids[bid_id], now=from_above(NOON))
    assert told.price_needed == rate(1)


def test_one_that_waits_is_served_as_it_seeks() -> None:
    """What comes has two prices: it takes the dear one, which begins at once."""
    market = Market()
    market.bid("b", at=4, seeks="soonest")
    market.run()
    market.offer(
        "later", host="h", gpus=2, only=[0], at=1, windows=[(NOON + 6 * HOUR, NOON + 48 * HOUR)]
    )
    market.offer("now", host="h", gpus=2, only=[1], at=3)
    market.run()

    # Each offer is a fact of its own, and the first that serves it is taken.
    assert hours_to(granted(market, "b").window.starts_at) == 6
    market.bid("c", at=4, seeks="soonest")
    market.run()
    assert hours_to(granted(market, "c").window.starts_at) == 0


def test_the_rest_of_interrupted_work_goes_on_soon_and_waits_for_no_round() -> None:
    site = Going()
    site.offer("cheap", gpus=2, at=1, windows=[(NOON + 9 * HOUR, NOON + 48 * HOUR)])
    site.offer("home", gpus=2, at="1.5", windows=[(NOON, NOON + 5 * HOUR)])
    site.offer("dear", gpus=2, at="2.5", windows=[(NOON + HOUR, NOON + 48 * HOUR)])
    site.want(resume=True, workload=Workload("other", checkpoint_seconds=1), seeks="soonest")
    site.begin()
    site.wait(minutes=55)
    site.reclaim_at()
    site.wait(minutes=5)
    site.stop()

    second = site.bid_at(2).terms
    assert (second.seeks, second.patience) == ("soonest", "immediate")
    assert site.lease_at(2).starts_at == NOON + HOUR
    assert site.lease_at(2).terms.price == rate("2.5")


def test_a_round_is_not_asked_for_the_soonest_start() -> None:
    site = Going()

    with pytest.raises(SoonestIsAtOnce):
        site.want(patience="patient", seeks="soonest")

    assert TERMS.seeks == "cheapest"


@settings(deadline=None, max_examples=60)
@given(
    offers=st.lists(
        st.tuples(st.integers(1, 6), st.integers(0, 20), st.integers(1, 3)), min_size=1, max_size=7
    ),
    gpus=st.integers(1, 3),
    limit=st.integers(1, 7),
    gang=st.booleans(),
)
def test_nothing_starts_sooner_and_nothing_is_cheaper_then(
    offers: list[tuple[int, int, int]], gpus: int, limit: int, gang: bool
) -> None:
    market = Market()
    for number, (at, hours, count) in enumerate(offers):
        taken_until(market, f"o{number}", at, hours, gpus=count)
    bid_id = market.bid("b", gpus=gpus, at="0.1", gang=gang, seeks="soonest")
    market.run()
    book = book_of(market)
    bid, now = book.bids[bid_id], from_above(NOON)
    unit = rate(1).nanos_per_gpu_hour

    placed = place(bid, book.entries(bid.shape), book.calendar, now=now, limit=limit * unit)

    fits = sum if gang else max
    possible = [
        (hours, level)
        for hours in {hours for _, hours, _ in offers}
        for level in range(1, limit + 1)
        if fits(count if at <= level and since <= hours else 0 for at, since, count in offers)
        >= gpus
    ]
    found = None if placed is None else ((placed.starts - now) // 3_600_000, placed.floor // unit)
    assert found == min(possible, default=None)
