"""Ranges of count and duration, and budgets: as much as there is, never less than the least."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.money import MILLIS_PER_HOUR, NANOS_PER_UNIT, Money
from marketplace.commands.bids import place_bid
from marketplace.domain.book.book import Book
from marketplace.domain.facts.events import BidPlaced, LeaseGranted
from marketplace.domain.facts.instants import from_above
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import place
from marketplace.domain.placement.sizes import fit
from tests.conftest import NOON
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import Market, rate, somebody
from tests.marketplace.support.site import HOUR, TERMS, Site

WEEK = NOON + timedelta(days=7)


@pytest.fixture
def market() -> Market:
    return Market()


def size(granted: LeaseGranted | None) -> tuple[int, timedelta] | None:
    """Return how many GPUs were granted and for how long."""
    if granted is None:
        return None
    gpus = sum(len(share.gpu_uuids) for share in granted.shares)
    return gpus, granted.window.ends_at - granted.window.starts_at


def test_a_bid_takes_as_many_gpus_as_there_are(market: Market) -> None:
    market.offer("a", gpus=3)
    market.bid("x", gpus=8, gpus_min=2)

    market.run()

    assert size(market.grant("x")) == (3, HOUR)
    audit(market.events())


def test_with_fewer_than_the_least_it_waits(market: Market) -> None:
    market.offer("a", gpus=1)
    market.bid("x", gpus=8, gpus_min=2)
    market.run()
    alone = market.grant("x")

    market.offer("b", host="a", gpus=3, only=[1, 2])
    market.run()

    assert alone is None
    assert size(market.grant("x")) == (3, HOUR)


def test_it_takes_all_it_asks_for_where_it_can(market: Market) -> None:
    market.offer("a", gpus=8)
    market.bid("x", gpus=8, gpus_min=1, hours=4, duration_min_seconds=60)

    market.run()

    assert size(market.grant("x")) == (8, 4 * HOUR)


def test_a_bid_takes_the_longest_there_is_to_the_second(market: Market) -> None:
    market.offer("a", windows=[(NOON, NOON + timedelta(hours=2, seconds=7))])
    market.bid("x", hours=6, duration_min_seconds=3_600)

    market.run()

    assert size(market.grant("x")) == (1, timedelta(hours=2, seconds=7))


def test_more_gpus_come_before_more_time(market: Market) -> None:
    market.offer("long", gpus=2, windows=[(NOON, NOON + 6 * HOUR)])
    market.offer("wide", gpus=4, windows=[(NOON, NOON + 2 * HOUR)])
    market.bid("x", gpus=4, gpus_min=1, hours=6, duration_min_seconds=3_600)

    market.run()

    assert size(market.grant("x")) == (4, 2 * HOUR)


def test_a_gang_takes_what_several_hosts_have(market: Market) -> None:
    for host in ("a", "b", "c"):
        market.offer(host, gpus=2)
    market.bid("x", gpus=16, gpus_min=4, gang=True)

    market.run()

    assert size(market.grant("x")) == (6, HOUR)


def test_immediate_or_cancel_takes_a_part_where_fill_or_kill_takes_nothing(market: Market) -> None:
    market.offer("a", gpus=3)
    market.bid("kill", gpus=8, good_till="fill-or-kill")
    market.bid("cancel", gpus=8, gpus_min=1, good_till="immediate-or-cancel")

    market.run()

    assert market.grant("kill") is None
    assert size(market.grant("cancel")) == (3, HOUR)


def test_a_lease_minimum_is_met_by_the_longer_size_only(market: Market) -> None:
    market.offer("a", lease_min=3 * HOUR, windows=[(NOON, NOON + 4 * HOUR)])
    market.bid("short", hours=2, duration_min_seconds=60)
    market.bid("long", hours=6, duration_min_seconds=60)

    market.run()

    assert market.grant("short") is None
    assert size(market.grant("long")) == (1, 4 * HOUR)


def test_the_whole_of_a_bid_goes_where_less_of_it_could_not(market: Market) -> None:
    market.offer("dear", at=2)
    market.offer("cheap, for long", at=1, lease_min=timedelta(hours=2))
    market.bid("x", at=3, hours=3, duration_min_seconds=1_800)

    market.run()

    granted = market.grant("x")
    assert size(granted) == (1, 3 * HOUR)
    assert granted is not None and granted.price == rate(1)


def test_in_a_round_too_it_takes_what_is_left(market: Market) -> None:
    market.offer("a", gpus=4, windows=[(NOON, NOON + HOUR)])
    market.bid("x", patience="patient", gpus=3, at=5)
    market.bid("y", patience="patient", gpus=4, gpus_min=1, at=2)

    market.run()

    assert size(market.grant("x")) == (3, HOUR)
    assert size(market.grant("y")) == (1, HOUR)


def test_a_waiting_bid_is_served_when_its_least_becomes_free(market: Market) -> None:
    market.bid("x", gpus=4, gpus_min=2, hours=8, duration_min_seconds=3_600)
    market.run()

    market.offer("a", gpus=2, windows=[(NOON, NOON + 3 * HOUR)])
    market.run()

    assert size(market.grant("x")) == (2, 3 * HOUR)


def test_the_hold_shrinks_to_what_was_granted() -> None:
    site = Site()
    site.offer("a", gpus=2, at=1, windows=[(NOON, NOON + 3 * HOUR)])
    terms = replace(TERMS, gpus=4, gpus_min=1, duration_min_seconds=3_600)
    place_bid(site.store, terms=terms, by=somebody(), now=NOON)
    whole = site.account.held

    site.go()

    assert whole == Money(4 * 4 * 3 * NANOS_PER_UNIT)
    assert site.account.held == Money(2 * 3 * NANOS_PER_UNIT)


def test_a_budget_caps_the_price(market: Market) -> None:
    market.offer("a", gpus=2, at=2)
    market.bid("x", gpus=2, hours=2, at=5, budget=Money(7 * NANOS_PER_UNIT))
    market.bid("y", gpus=2, hours=2, at=5, budget=Money(8 * NANOS_PER_UNIT))

    market.run()

    assert market.grant("x") is None
    granted = market.grant("y")
    assert granted is not None and granted.price == rate(2)


def test_a_budget_caps_what_a_waiting_bid_pays_to_supply_that_comes(market: Market) -> None:
    market.bid("x", gpus=2, hours=2, at=5, budget=Money(7 * NANOS_PER_UNIT))
    market.run()

    market.offer("a", gpus=2, at=1)
    market.run()

    granted = market.grant("x")
    assert granted is not None and granted.price == rate("1.75")


def test_with_a_budget_fewer_gpus_may_cost_more_each(market: Market) -> None:
    market.offer("a", gpus=4, at=2)
    market.bid("x", gpus=4, gpus_min=1, hours=1, at=3, budget=Money(5 * NANOS_PER_UNIT))

    market.run()

    assert size(market.grant("x")) == (2, HOUR)


def test_what_is_set_aside_is_the_budget_where_that_is_less() -> None:
    site = Site()
    terms = replace(TERMS, budget=Money(5 * NANOS_PER_UNIT))

    place_bid(site.store, terms=terms, by=somebody(), now=NOON)

    assert site.account.held == Money(5 * NANOS_PER_UNIT)


def test_the_explanation_counts_the_least_that_would_do(market: Market) -> None:
    market.offer("a", gpus=3, at=5)
    market.bid("x", gpus=8, gpus_min=2, at=1)
    book = Book("main")
    for recorded in market.events():
        book.apply(recorded.event, recorded.position)
    [bid] = book.bids.values()

    told = book.explain(bid, now=from_above(NOON))

    assert told.reason == "limit"
    assert told.price_needed == rate(5)
    assert book.reason(bid, now=from_above(NOON), calendar=book.calendar) == "limit"


HOURS = st.integers(1, 6)
WINDOWS = st.lists(st.tuples(st.integers(0, 6), HOURS), min_size=1, max_size=2)
OFFERS = st.lists(
    st.tuples(st.integers(1, 3), WINDOWS, st.integers(1, 4), st.integers(0, 4)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=40, deadline=None)
@given(
    offers=OFFERS,
    gpus=st.integers(1, 4),
    hours=st.integers(1, 5),
    least=st.tuples(st.integers(1, 4), st.integers(1, 5)),
    gang=st.booleans(),
    budget=st.none() | st.integers(1, 40),
)
def test_the_size_found_is_the_largest_of_all_that_are_possible(
    offers: list[tuple[int, list[tuple[int, int]], int, int]],
    gpus: int,
    hours: int,
    least: tuple[int, int],
    gang: bool,
    budget: int | None,
) -> None:
    market = Market()
    for number, (count, windows, floor, lease_min) in enumerate(offers):
        spans: list[tuple[datetime, datetime]] = []
        for starts, length in windows:
            spans.append((NOON + starts * HOUR, NOON + (starts + length) * HOUR))
        market.offer(
            f"o{number}",
            gpus=count,
            windows=spans,
            at=floor,
            lease_min=max(timedelta(minutes=1), lease_min * HOUR),
        )
    market.bid(
        "x",
        gpus=gpus,
        hours=hours,
        at=3,
        gang=gang,
        gpus_min=min(least[0], gpus),
        duration_min_seconds=min(least[1], hours) * 3_600,
        budget=None if budget is None else Money(budget * NANOS_PER_UNIT),
        deadline=NOON + 12 * HOUR,
    )
    book = Book("main")
    for recorded in market.events():
        book.apply(recorded.event, recorded.position)
    [bid] = book.bids.values()
    entries, now = book.entries(bid.shape), from_above(NOON)

    found = fit(bid, entries, book.calendar, now=now)

    # Every size in whole hours, largest first: windows and minima are in whole hours too.
    sizes = [
        (count, length * MILLIS_PER_HOUR)
        for count in range(gpus, bid.gpus_min - 1, -1)
        for length in range(hours, bid.duration_min // MILLIS_PER_HOUR - 1, -1)
    ]
    best = next(
        (each for each in sizes if place(bid.sized(*each), entries, book.calendar, now=now)), None
    )
    if found is None:
        assert best is None
        return
    sized, placement = found
    assert best is not None
    assert sized.gpus == best[0]
    assert sized.duration >= best[1]
    if budget is None:
        assert (sized.gpus, sized.duration) == best
    assert len(placement.gpus) == sized.gpus
    assert placement.floor <= sized.limit <= 3 * NANOS_PER_UNIT
    cost = sized.limit * sized.gpus * sized.duration // MILLIS_PER_HOUR
    assert budget is None or cost <= budget * NANOS_PER_UNIT


def test_a_bid_without_ranges_is_in_its_only_size() -> None:
    market = Market()
    market.bid("x", gpus=2)
    [placed] = [each.event for each in market.events() if isinstance(each.event, BidPlaced)]
    bid = OpenBid.of(placed, since=1)

    assert not bid.has_ranges
    assert bid.least is bid
    assert bid.limit == bid.reach == bid.rate
