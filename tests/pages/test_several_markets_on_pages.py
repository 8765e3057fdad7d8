"""Where there are several markets the market page has a choice, and a bid goes to one of them."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.conf import LazySettings

from ledger.domain.ids import HostId, OfferId
from ledger.domain.money import Rate
from ledger.domain.span import Window
from listings.commands import publish_offer, register_host, report_inventory
from listings.domain.events import Gpu
from listings.domain.markets import read_markets
from listings.domain.terms import OfferTerms
from marketplace.domain.facts.bid_events import BidRouted
from marketplace.engine import Engine
from marketplace.loops import Mover
from marketplace.models import BidRow, LeaseRow, RouteRow
from tests.pages.bid_form import form as bid_form
from tests.pages.world import BY, CONSUMER, OWNER, World

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


def list_in_asia(world: World) -> None:
    """Let the owner list a GPU on a host of another market."""
    host_id = HostId(uuid4())
    register_host(
        world.store,
        host_id=host_id,
        tenant_id=world.tenant(OWNER),
        title="asia-1",
        market="asia",
        region="asia",
        by=BY,
        now=world.now,
    )
    gpu = Gpu("GPU-far", "NVIDIA H100 80GB HBM3", 81_559, "9.0", "550.54")
    report_inventory(world.store, host_id=host_id, gpus=[gpu], by=BY, now=world.now)
    publish_offer(
        world.store,
        offer_id=OfferId(uuid4()),
        host_id=host_id,
        terms=OfferTerms(
            gpu_uuids=("GPU-far",),
            windows=(Window(world.now, world.now + timedelta(hours=20)),),
            floor=Rate(1_500_000_000),
        ),
        by=BY,
        now=world.now,
    )
    world.settle()


def test_a_bid_that_waits_in_vain_moves_to_where_it_is_served(
    world: World, settings: LazySettings
) -> None:
    settings.MARKETS = read_markets(settings.ENV.market, "asia=asia")
    consumer, mover, home = world.member(CONSUMER, "consumer"), Mover(), settings.ENV.market
    consumer.post("/bids/new", bid_form(gpu="", gpus="1", limit="3.00"))
    world.settle()
    [row] = BidRow.objects.all()
    assert (row.market, RouteRow.objects.get().markets) == (home, [home, "asia"])
    held = world.member(CONSUMER, "consumer").get(f"/api/v1/bids/{row.bid_id}").json()
    list_in_asia(world)

    soon = mover.run_once(world.store, now=world.now + timedelta(minutes=1))
    asked = mover.run_once(world.store, now=world.now + timedelta(minutes=6))
    again = mover.run_once(world.store, now=world.now + timedelta(minutes=7))
    world.settle()
    Engine(world.store, "asia").run_once(now=world.now + timedelta(minutes=7))
    world.settle()

    assert (soon, asked, again) == (0, 1, 0)
    route = consumer.get(f"/api/v1/bids/{row.bid_id}/route").json()
    assert (route["market"], route["market_now"]) == (home, "asia")
    assert [(each["market"], each["to"]) for each in route["moves"]] == [(home, "asia")]
    now = consumer.get(f"/api/v1/bids/{row.bid_id}").json()
    assert (now["market"], now["state"], now["limit"]) == ("asia", "filled", held["limit"])
    assert LeaseRow.objects.get().market == "asia"
    assert RouteRow.objects.count() == 0
    assert f"asia, moved from {home}" in consumer.get(f"/bids/{row.bid_id}").content.decode()
