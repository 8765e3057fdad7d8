"""Where there are several markets the market page has a choice, and a bid goes to one of them."""

from __future__ import annotations

import pytest
from django.conf import LazySettings

from listings.domain.markets import read_markets
from marketplace.domain.route_events import BidRouted
from tests.pages.test_bidding_on_pages import form as bid_form
from tests.pages.world import CONSUMER, OWNER, World

pytestmark = pytest.mark.django_db


def test_one_market_has_no_choice(world: World) -> None:
    world.list_gpus(0, 1, floor="2.00")

    page = world.member(OWNER, "owner").get("/").content.decode()

    assert 'aria-label="Market"' not in page


def test_each_market_shows_its_own(world: World, settings: LazySettings) -> None:
    settings.MARKETS = read_markets(settings.ENV.market, "asia=asia")
    world.list_gpus(0, 1, floor="2.00")
    visitor = world.member(OWNER, "owner")

    home, other = visitor.get("/").content.decode(), visitor.get("/?market=asia").content.decode()

    assert f'href="/?market={settings.ENV.market}" aria-current="true"' in home
    assert 'href="/?market=asia" aria-current="true"' in other
    assert "H100-80GB" in home
    assert "The market is empty" in other
    assert f"market={settings.ENV.market}" in home.split('hx-get="/market/figures')[1][:80]


def test_a_market_that_is_not_there_shows_the_first(world: World, settings: LazySettings) -> None:
    settings.MARKETS = read_markets(settings.ENV.market, "asia=asia")

    page = world.member(OWNER, "owner").get("/?market=moon").content.decode()

    assert f'href="/?market={settings.ENV.market}" aria-current="true"' in page


def test_a_bid_from_the_form_goes_where_there_is_room(world: World, settings: LazySettings) -> None:
    settings.MARKETS = read_markets(settings.ENV.market, "asia=asia")
    world.list_gpus(0, 1, floor="2.00")

    world.member(CONSUMER, "consumer").post("/bids/new", bid_form(gpus="1", limit="3.00"))

    kinds = frozenset({BidRouted.name})
    [routed] = [each.event for each in world.store.read_all(only=kinds, limit=10).events]
    assert isinstance(routed, BidRouted)
    assert (routed.market, routed.because) == (settings.ENV.market, "cheapest-now")
