"""Good till its deadline or a moment, immediate or cancel, fill or kill."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ledger.domain.money import Money
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import load
from marketplace.commands.bids import place_bid
from marketplace.domain.bids import bounds
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts.events import BidExpired, LeaseGranted, RoundCleared, Workload
from tests.conftest import NOON
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import Market, named, rate, somebody
from tests.marketplace.support.site import BID, HOUR, TERMS, Site

NOW_OR_NEVER = ("immediate-or-cancel", "fill-or-kill")


@pytest.fixture
def market() -> Market:
    return Market()


def expired(market: Market) -> dict[Any, str]:
    return {
        recorded.event.bid_id: recorded.event.reason
        for recorded in market.events()
        if isinstance(recorded.event, BidExpired)
    }


@pytest.mark.parametrize("word", NOW_OR_NEVER)
def test_a_bid_that_waits_for_nothing_is_filled_at_once_or_over(market: Market, word: str) -> None:
    market.offer("a", at=1)
    market.bid("x", good_till=word)
    market.bid("y", good_till=word, deadline=NOON + HOUR)

    market.run()
    market.run()

    assert market.grant("x") is not None
    assert market.grant("y") is None
    assert expired(market) == {named("bid y"): "not-at-once"}
    audit(market.events())


@pytest.mark.parametrize("word", NOW_OR_NEVER)
def test_supply_that_comes_later_is_not_for_it(market: Market, word: str) -> None:
    market.bid("x", good_till=word)
    market.bid("y")
    market.offer("a", gpus=2, at=1)

    market.run()

    assert market.grant("x") is None
    assert market.grant("y") is not None
    assert expired(market) == {named("bid x"): "not-at-once"}


def told_by(passes: int) -> tuple[list[Any], dict[Any, str]]:
    """Return what is decided when the engine looks after every fact, or once at the end."""
    market = Market()

    def look() -> None:
        if passes > 1:
            market.run()

    market.bid("a", good_till="immediate-or-cancel")
    look()
    market.offer("one", gpus=2, at=1)
    look()
    market.bid("b", good_till="fill-or-kill", gpus=3, deadline=NOON + HOUR)
    look()
    market.bid("c", good_till="immediate-or-cancel", gpus=4, gpus_min=1, deadline=NOON + HOUR)
    look()
    market.offer("two", gpus=4, at=1)
    look()
    market.bid("d", gpus=4)
    market.run()
    granted = [
        (event.bid_id, event.shares, event.window)
        for event in (recorded.event for recorded in market.decisions())
        if isinstance(event, LeaseGranted)
    ]
    return granted, expired(market)


def test_what_is_decided_does_not_depend_on_how_often_the_engine_looks() -> None:
    assert told_by(1) == told_by(2)
    granted, ended = told_by(1)
    assert [bid_id for bid_id, *_ in granted] == [named("bid c"), named("bid d")]
    assert set(ended) == {named("bid a"), named("bid b")}


def test_another_engine_ends_what_a_killed_one_had_refused(market: Market) -> None:
    market.bid("x", good_till="fill-or-kill")
    market.engine._expire = lambda bid_ids: 0  # type: ignore[method-assign]  # killed before it
    market.run()
    market.offer("a", at=1)

    market.new_engine().run_once(now=market.now)

    assert market.grant("x") is None
    assert expired(market) == {named("bid x"): "not-at-once"}


def test_a_bid_is_told_why_before_it_ends(market: Market) -> None:
    market.offer("a", at=5)
    market.bid("x", at=2, good_till="immediate-or-cancel")

    market.run()

    cleared = [each.event for each in market.decisions() if isinstance(each.event, RoundCleared)]
    assert [(each.bid_id, each.reason) for each in cleared[0].unmatched] == [
        (named("bid x"), "limit")
    ]


def test_a_bid_is_good_till_its_moment_and_no_longer(market: Market) -> None:
    until = NOON + timedelta(minutes=10)
    for word in ("x", "y"):
        market.bid(word, good_till="good-till-moment", good_until=until, deadline=NOON + 1.5 * HOUR)
    market.wait(minutes=10)
    market.offer("a", at=1)
    market.run()
    at_the_moment = market.grant("x")

    market.wait(seconds=1)
    market.offer("b", at=1)
    market.run()

    assert at_the_moment is not None
    assert market.grant("y") is None
    assert expired(market) == {named("bid y"): "good-till"}


def test_a_patient_bid_is_good_till_a_moment_too(market: Market) -> None:
    market.bid(
        "x",
        patience="patient",
        good_till="good-till-moment",
        good_until=NOON + timedelta(minutes=10),
    )
    market.run()
    market.wait(minutes=11)
    market.offer("a", at=1)

    market.run()

    assert market.grant("x") is None
    assert expired(market) == {named("bid x"): "good-till"}


def test_its_money_is_given_back_at_once() -> None:
    site = Site()
    terms = replace(TERMS, good_till="fill-or-kill")
    place_bid(site.store, terms=terms, by=somebody(), now=NOON)
    held = site.account.held

    site.go()

    bid = load(site.store, Bid, BID)
    assert bid is not None and bid.state == "expired"
    assert held > Money(0)
    assert site.account.held == Money(0)


REFUSED: list[tuple[type[Refusal], dict[str, Any]]] = [
    (bounds.GoodTillUnfit, {"good_until": NOON + 2 * HOUR}),
    (bounds.GoodTillUnfit, {"good_till": "good-till-moment"}),
    (bounds.GoodTillUnfit, {"good_till": "good-till-moment", "good_until": NOON}),
    (bounds.GoodTillUnfit, {"good_till": "good-till-moment", "good_until": NOON + 99 * HOUR}),
    (bounds.NeverWaits, {"good_till": "immediate-or-cancel", "patience": "patient"}),
    (bounds.FillOrKillIsWhole, {"good_till": "fill-or-kill", "gpus_min": 1}),
    (bounds.MinimumOutOfBounds, {"gpus_min": 0}),
    (bounds.MinimumOutOfBounds, {"gpus_min": 3}),
    (bounds.MinimumOutOfBounds, {"duration_min_seconds": 59}),
    (bounds.MinimumOutOfBounds, {"duration_min_seconds": 4 * 3_600 + 1}),
    (bounds.BudgetOutOfBounds, {"budget": Money(0)}),
    (bounds.BudgetOutOfBounds, {"budget": Money(1, "EUR")}),
]


@pytest.mark.parametrize(("refusal", "changed"), REFUSED)
def test_terms_that_cannot_be_are_refused_and_set_nothing_aside(
    refusal: type[Refusal], changed: dict[str, Any]
) -> None:
    site = Site()

    with pytest.raises(refusal):
        place_bid(site.store, terms=replace(TERMS, **changed), by=somebody(), now=NOON)

    assert load(site.store, Bid, BID) is None
    assert site.account.held == Money(0)


def test_a_minimum_that_is_the_whole_is_none() -> None:
    site = Site()
    terms = replace(TERMS, gpus_min=2, duration_min_seconds=4 * 3_600, limit=rate(2))

    place_bid(site.store, terms=terms, by=somebody(), now=NOON)
    place_bid(site.store, terms=replace(terms, gpus_min=None), by=somebody(), now=NOON)

    bid = load(site.store, Bid, BID)
    assert bid is not None
    assert (bid.terms.gpus_min, bid.terms.duration_min_seconds) == (None, None)


def test_the_memory_of_a_workload_is_shared_by_the_fewest_gpus_that_would_do() -> None:
    site = Site()
    workload = Workload(kind="inference-7b")
    terms = replace(TERMS, gpus=8, gpus_min=1, workload=workload, limit=rate("0.50"))

    place_bid(site.store, terms=terms, by=somebody(), now=NOON)

    bid = load(site.store, Bid, BID)
    assert bid is not None
    assert bid.terms.request.memory_mib_min == 18 * 1024


@pytest.mark.parametrize("text", [*bounds.GOOD_TILL_WORDS, "2026-01-05T18:00:00Z"])
def test_how_long_it_waits_reads_back_as_it_is_written(text: str) -> None:
    assert bounds.write_good_till(*bounds.read_good_till(text)) == text


def test_a_moment_is_read_with_its_offset() -> None:
    assert bounds.read_good_till("2026-01-05T18:00:00+01:00") == (
        "good-till-moment",
        datetime(2026, 1, 5, 17, tzinfo=UTC),
    )


@pytest.mark.parametrize("text", ["", "ioc", "tomorrow", "2026-01-05", "2026-13-05T18:00:00Z"])
def test_what_is_neither_a_word_nor_a_moment_is_refused(text: str) -> None:
    with pytest.raises(bounds.GoodTillUnreadable):
        bounds.read_good_till(text)


def test_a_moment_without_an_offset_is_refused() -> None:
    with pytest.raises((bounds.TimeWithoutZone, bounds.GoodTillUnreadable)):
        bounds.read_good_till("2026-01-05T18:00:00")
