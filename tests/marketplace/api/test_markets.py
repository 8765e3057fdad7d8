"""Several markets over HTTP: bids are routed, hosts go to the market of their region."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.conf import LazySettings
from django.utils import timezone

from ledger.eventstore.port import load
from ledger.eventstore.postgres import PostgresStore
from ledger.following import follow_projections
from listings.domain.markets import read_markets
from marketplace.domain.bids.bid import Bid
from marketplace.domain.bids.routing import Route
from marketplace.domain.facts.events import GpuRequest
from marketplace.projections import PROJECTIONS
from tests.access.conftest import Caller, admit
from tests.marketplace.support.market import Market
from tests.marketplace.support.over_http import with_unit

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.marketplace.support.routes")]


@pytest.fixture
def markets(db: None, settings: LazySettings) -> tuple[Market, Market]:
    """Two markets in the database; `eu` is the cheaper."""
    settings.MARKETS = read_markets("main", "eu=eu")
    now = timezone.now()
    main = Market(PostgresStore(), now=now)
    eu = Market(PostgresStore(), now=now, name="eu")
    main.offer("here", at=1, region="us")
    eu.offer("there", at="0.5")
    return main, eu


@pytest.fixture
def ada(db: None) -> Caller:
    return admit("ada-labs", "consumer", "owner")


def asked(unit: str, **more: Any) -> dict[str, Any]:
    return {
        "bid_id": str(uuid4()),
        "subscriber_id": unit,
        "gpus": 1,
        "duration_seconds": 3_600,
        "limit": "2",
        "service_class": "on-demand",
        "workload": {"kind": "other"},
        **more,
    }


def test_a_bid_goes_to_the_cheapest_and_says_why(
    markets: tuple[Market, Market], ada: Caller
) -> None:
    body = asked(with_unit(ada))

    placed = ada.post("/api/v1/bids", body)

    assert placed.status_code == 201, placed.content
    assert placed.json()["market"] == "eu"
    follow()
    why = ada.get(f"/api/v1/bids/{body['bid_id']}/route").json()
    assert (why["market"], why["because"]) == ("eu", "cheapest-now")
    assert {each["market"]: each["price"] for each in why["considered"]} == {
        "main": "1.00",
        "eu": "0.50",
    }


def test_a_limit_below_every_floor_waits_where_there_is_what_it_asks_for(
    markets: tuple[Market, Market], ada: Caller
) -> None:
    """The home market has none of that model: a bid that waits there would wait for ever."""
    _, eu = markets
    eu.offer("old", model="T4", at=3)

    placed = ada.post("/api/v1/bids", asked(with_unit(ada), query="gpu=T4", limit="0.10"))

    assert placed.json()["market"] == "eu"


def test_asked_again_it_stays_where_it_is(markets: tuple[Market, Market], ada: Caller) -> None:
    main, eu = markets
    body = asked(with_unit(ada))
    first = ada.post("/api/v1/bids", body)
    eu.change_offer("there", "withdraw")

    again = ada.post("/api/v1/bids", body)

    assert again.json()["market"] == first.json()["market"] == "eu"
    assert len(list(main.store.read_stream(f"bid-{body['bid_id']}"))) == 1


@pytest.mark.parametrize(
    ("more", "market"),
    [
        ({"market": "main"}, "main"),
        ({"markets": ["main"]}, "main"),
        ({"query": "region=us"}, "main"),
        ({"query": "region=eu"}, "eu"),
    ],
)
def test_a_bid_that_leaves_no_choice_says_so(
    markets: tuple[Market, Market], ada: Caller, more: dict[str, Any], market: str
) -> None:
    body = asked(with_unit(ada), **more)

    assert ada.post("/api/v1/bids", body).json()["market"] == market
    follow()
    why = ada.get(f"/api/v1/bids/{body['bid_id']}/route").json()
    assert (why["because"], why["considered"], why["moves"]) == ("no-choice", [], [])
    assert why["market"] == why["market_now"] == market
    assert ada.get(f"/api/v1/bids/{uuid4()}/route").status_code == 404


def test_an_unknown_market_is_refused(markets: tuple[Market, Market], ada: Caller) -> None:
    refused = ada.post("/api/v1/bids", asked(with_unit(ada), market="asia"))

    assert (refused.status_code, refused.json()["code"]) == (409, "market-unknown")


def test_the_route_and_the_bid_are_there_together_or_not_at_all(
    markets: tuple[Market, Market], ada: Caller
) -> None:
    body = asked(with_unit(ada, overdraft_nanos=0))  # no money: the hold is refused

    assert ada.post("/api/v1/bids", body).status_code == 409
    assert load(PostgresStore(), Bid, body["bid_id"]) is None
    assert load(PostgresStore(), Route, body["bid_id"]) is None


def test_markets_are_listed_with_what_is_on_each(
    markets: tuple[Market, Market], ada: Caller
) -> None:
    _, eu = markets
    eu.bid("waits", gpus=2, request=GpuRequest(models=("T4",)))
    eu.run()

    listed = ada.get("/api/v1/markets").json()["data"]

    assert [(each["name"], each["regions"], each["gpus"]) for each in listed] == [
        ("main", [], 1),
        ("eu", ["eu"], 1),
    ]
    assert [each["wanted"] for each in listed] == [0, 2]


def follow() -> None:
    while follow_projections(PostgresStore(), PROJECTIONS):
        pass
