"""A bid that asks for a level of service goes only to offers whose owners promise it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from listings.domain.sla_events import SlaTerms
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.book.snapshot import restored, state_of
from marketplace.domain.facts.events import Patience, RoundCleared
from marketplace.domain.verification.verify_round import faults
from marketplace.explain.bid_advice import advise
from marketplace.queries.books import book_of, explain_bid
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, Market
from tests.marketplace.support.promising import promise

BRIEF = [(NOON, NOON + timedelta(minutes=90))]
PATIENCE = pytest.mark.parametrize("patience", ["immediate", "patient"])


def hosts_of(market: Market, word: str) -> set[str]:
    granted = market.grant(word)
    gpus = () if granted is None else [u for each in granted.shares for u in each.gpu_uuids]
    return {uuid.split(":")[0] for uuid in gpus}


@PATIENCE
@pytest.mark.parametrize(
    ("query", "constraint"), [("starts<=2m", "starts"), ("availability>=0.99", "availability")]
)
def test_a_bid_goes_to_who_promises_what_it_asks_for(
    patience: Patience, query: str, constraint: str
) -> None:
    market = Market()
    for at, host in enumerate(("nothing", "less", "enough"), 1):
        market.offer(host, at=at, windows=BRIEF)
    promise(market, "less", start=121, below=989_999)
    promise(market, "enough", start=120, below=990_000)
    bids = {
        word: market.bid(word, at=9, request=read_query(query), patience=patience)
        for word in ("one", "other")
    }

    market.run()

    assert hosts_of(market, "one") | hosts_of(market, "other") == {"enough"}
    [waits] = [bid_id for word, bid_id in bids.items() if market.grant(word) is None]
    told = explain_bid(market.store, market=MARKET, bid_id=waits, now=market.now)
    assert told is not None and told.reason == "taken"
    assert [stage.left for stage in told.funnel if stage.constraint == constraint] == [1]


@PATIENCE
@pytest.mark.parametrize(
    ("query", "reason"), [("starts<=2m", "starts"), ("availability>=0.99", "availability")]
)
def test_a_bid_waits_for_what_nobody_promises_and_says_so(
    patience: Patience, query: str, reason: str
) -> None:
    market = Market()
    market.offer("a", windows=BRIEF)
    promise(
        market,
        "a",
        start=60 if reason == "availability" else None,
        below=999_000 if reason == "starts" else 0,
    )
    bid_id = market.bid("b", at=9, request=read_query(query), patience=patience)

    market.run()

    assert market.grants() == {}
    told = explain_bid(market.store, market=MARKET, bid_id=bid_id, now=market.now)
    assert told is not None and told.reason == reason
    advice = advise(market.store, market=MARKET, bid_id=bid_id, now=market.now)
    assert [change.what for change in advice or ()] == [reason]


@PATIENCE
def test_it_is_served_once_an_owner_promises_it(patience: Patience) -> None:
    market = Market()
    market.offer("a", windows=BRIEF)
    market.bid("b", at=9, request=read_query("starts<=1m"), patience=patience)
    market.run()
    assert market.grants() == {}

    market.wait(minutes=2)
    promise(market, "a", start=60)
    market.run()

    assert hosts_of(market, "b") == {"a"}


@PATIENCE
def test_a_promise_that_is_taken_back_serves_no_more_bids_that_ask_for_it(
    patience: Patience,
) -> None:
    market = Market()
    market.offer("a", gpus=2, windows=BRIEF)
    promise(market, "a", start=60)
    promise(market, "a")
    market.bid("asks", at=9, request=read_query("starts<=1m"), patience=patience)
    market.bid("plain", at=9, patience=patience)

    market.run()

    assert market.grant("asks") is None
    assert hosts_of(market, "plain") == {"a"}


def test_who_promises_more_keeps_its_place() -> None:
    market = Market()
    market.offer("first", windows=BRIEF)
    market.offer("second", windows=BRIEF)
    promise(market, "first", start=60)
    market.bid("b", at=9)

    market.run()

    assert hosts_of(market, "b") == {"first"}


def test_promises_are_in_a_snapshot_and_end_with_their_offer() -> None:
    market = Market()
    market.offer("a", windows=BRIEF)
    market.offer("b", windows=BRIEF)
    promise(market, "a", start=60, below=999_000)
    promise(market, "b", start=60)
    market.change_offer("b", "withdraw")

    with book_of(market.store, MARKET) as book:
        again = restored(state_of(book))

    (listed,) = again.offers.values()
    assert listed.kind.level == (60, 999_000)
    assert list(again.promises.said) == [listed.offer_id]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("starts<=1m", "promises no start within 60 seconds"),
        ("availability>=0.99", "promises no availability of 990000 millionths"),
    ],
)
@pytest.mark.parametrize("left", [SlaTerms(start_by_seconds=61, late_credit_ppm=1), None])
def test_a_round_that_placed_a_bid_on_less_than_it_asks_for_is_not_appended(
    query: str, said: str, left: SlaTerms | None
) -> None:
    market = Market()
    market.offer("a", windows=BRIEF)
    promise(market, "a", start=60, below=990_000)
    market.bid("b", at=9, request=read_query(query), patience="patient")
    with book_of(market.store, MARKET) as book:
        before = restored(state_of(book))
    market.run()
    granted = market.grant("b")
    assert granted is not None
    (cleared,) = [e.event for e in market.decisions() if isinstance(e.event, RoundCleared)]
    assert faults(before, cleared, [granted]) == []

    if left is None:
        before.promises.said.clear()
    else:
        before.promises.said[granted.shares[0].offer_id] = left

    assert any(said in fault.said for fault in faults(before, cleared, [granted]))
