"""Several markets: which regions each has, where hosts and bids go, and what is shown of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from config.env import Env
from config.wiring import loop_groups, loops
from ledger.domain.ids import BidId
from ledger.eventstore.memory import MemoryStore
from listings.domain.markets import (
    Market as Place,
)
from listings.domain.markets import (
    MarketsUnclear,
    MarketUnknown,
    market_of_region,
    named,
    read_markets,
    within_reach,
)
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.bids.routing import Look, choose
from marketplace.domain.book.book import Book
from marketplace.domain.facts.events import ExtensionGranted, RoundCleared
from marketplace.domain.facts.policy_events import HalfLifeSet
from tests.conftest import NOON
from tests.marketplace.support.market import Market, rate

HOUR = timedelta(hours=1)
THREE = read_markets("main", "eu=eu; us=us-east, us-west")
BID = BidId(UUID(int=1))


def test_a_market_has_its_regions_and_what_lies_in_them() -> None:
    assert (Place("main"), Place("eu", ("eu",)), Place("us", ("us-east", "us-west"))) == THREE
    found = {region: market_of_region(THREE, region) for region in ("eu", "eu-west", "us-east-1")}
    assert found == {"eu": "eu", "eu-west": "eu", "us-east-1": "us"}
    assert market_of_region(THREE, "europe") == market_of_region(THREE, "us") == "main"


@pytest.mark.parametrize(
    "text",
    ["eu", "eu=", "EU=eu", "main=eu", "eu=eu;eu=us", "eu=eu;west=eu-west", "a=eu-west;b=eu"],
)
def test_markets_that_cannot_be_told_apart_are_refused(text: str) -> None:
    with pytest.raises(MarketsUnclear):
        read_markets("main", text)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["main", "eu", "us"]),
        ("region=eu", ["eu"]),
        ("region=eu-west", ["eu"]),
        ("region=us", ["main", "us"]),
        ("region=us-east", ["us"]),
        ("region=asia", ["main"]),
        ("region=us-west,eu-west", ["eu", "us"]),
        ("region=us-west,asia", ["main", "us"]),
        ("region!=us-west", ["main", "eu", "us"]),
        ("region!=us", ["main", "eu"]),
        ("region=eu region!=eu", ["main"]),
    ],
)
def test_a_bid_is_looked_for_where_there_can_be_hosts(query: str, names: list[str]) -> None:
    asked = read_query(query)

    assert within_reach(THREE, asked.regions, asked.not_regions) == names


def test_a_market_that_is_not_there_is_refused() -> None:
    with pytest.raises(MarketUnknown):
        named(THREE, "asia")


def route(*looks: Look) -> tuple[str, str]:
    found = choose(looks, bid_id=BID, earliest=NOON, now=NOON)
    assert [each.market for each in found.considered] == [look.market for look in looks]
    return found.market, found.because


def test_the_cheapest_with_room_now_comes_first() -> None:
    dear = Look("main", rate(3), NOON)
    cheap = Look("eu", rate(2), NOON)
    cheaper_later = Look("us", rate(1), NOON + HOUR)

    assert route(dear, cheap, cheaper_later) == ("eu", "cheapest-now")


def test_without_room_now_the_soonest_start_counts() -> None:
    late, later = NOON + HOUR, NOON + 2 * HOUR

    assert route(Look("main", rate(1), later), Look("eu", rate(2), late), Look("us")) == (
        "eu",
        "soonest",
    )


def test_without_any_room_the_least_crowded_counts() -> None:
    nothing = Look("main", fitting=0, wanted=0)
    crowded = Look("eu", fitting=8, wanted=9)
    calm = Look("us", fitting=2, wanted=1)

    assert route(nothing, crowded, calm) == ("us", "least-waited-for")
    assert route(nothing, Look("eu")) == ("main", "nowhere")


def test_each_market_has_a_loop_and_a_process_of_its_own() -> None:
    env = replace(Env(), markets="eu=eu;us=us")
    names = {loop.name for loop in loops(env)}

    assert {"clearing", "clearing-eu", "clearing-us"} <= names
    groups = loop_groups(env)
    assert groups["engine-eu"] == ("clearing-eu",)
    assert {"snapshots", "snapshots-eu", "snapshots-us"} <= set(groups["snapshots"]), "no engine's"
    assert {loop for group in groups.values() for loop in group} >= names - {"bursting", "reaper"}


def test_engines_of_two_markets_in_one_log_leave_each_other_alone() -> None:
    store = MemoryStore()
    main, eu = Market(store), Market(store, name="eu")
    main.offer("here")
    eu.offer("there")
    main.bid("a", gpus=1)
    eu.bid("b", gpus=1)
    eu.bid("c", gpus=1, deadline=NOON + HOUR)

    assert main.run() > 0
    assert eu.run() > 0

    assert list(main.grants()) != list(eu.grants())
    assert (len(main.grants()), len(eu.grants())) == (1, 1)


def test_a_lease_is_in_the_book_of_its_market_only() -> None:
    store = MemoryStore()
    main, eu = Market(store), Market(store, name="eu")
    for market in (main, eu):  # quotas of one count nothing of the other either
        market.put("quotas", HalfLifeSet(market=market.name, seconds=3_600, at=NOON))
    main.offer("m")
    eu.offer("e")
    eu.bid("x", hours=2)
    for market in (main, eu):
        market.run()
    until = NOON + 4 * HOUR

    eu.extend("x", until)
    for market in (main, eu):
        market.run()

    assert [each.event for each in main.decisions()] == []
    granted = eu.decisions()[-1].event
    assert isinstance(granted, ExtensionGranted)
    assert granted.ends_at == until


def test_rounds_of_one_market_leave_what_another_has_set_aside() -> None:
    store = MemoryStore()
    main, eu = Market(store), Market(store, name="eu")
    book = Book("main")
    main.bid("x", patience="patient", hours=1)
    main.run()
    eu.bid("y", patience="patient", hours=1)
    eu.wait(minutes=2)
    eu.run()

    for each in main.events():
        book.apply(each.event, each.position)

    cleared = [each.event for each in main.decisions() if isinstance(each.event, RoundCleared)]
    others = [each.event for each in eu.decisions() if isinstance(each.event, RoundCleared)]
    assert book.round_at == cleared[-1].at < others[-1].at
