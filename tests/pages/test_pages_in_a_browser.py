"""What only a browser can tell: access, the policy in force, dragging, keys, and live news."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.db.models import F
from django.test import Client
from playwright.sync_api import Page

from listings.models import OfferRow
from marketplace.models import BidRow, LeaseRow
from marketplace.models.rounds import RoundRow, TradeRow
from tests.pages.bid_form import form as bid_form
from tests.pages.browser import (
    FIRST_SCHEME,
    browsing,
    comes_true,
    enter,
    faults,
    overflow,
    served,
    violations,
)
from tests.pages.world import CONSUMER, OWNER, PLATFORM, World

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("committed_store")]

WEIGHT_MAX = 250_000
REQUESTS_MAX = 12


@pytest.fixture
def open_world(committed_store: None) -> World:
    """A founded market that other threads see too, with two GPUs listed and one leased."""
    made = World()
    made.found()
    made.list_gpus(0, 1)
    consumer = made.member(CONSUMER, "consumer")
    consumer.post("/bids/new", bid_form(gpus="1"))
    consumer.post("/bids/new", bid_form(limit="1.50", token=str(uuid4()), resume="on"))
    made.settle()
    return made


@pytest.fixture
def site(open_world: World, tmp_path: Path) -> Iterator[str]:
    with served(tmp_path / "site.log") as address:
        yield address


def all_roles(world: World) -> Client:
    return world.member(OWNER, "owner", "operator", "consumer", "finance")


WIDE_FOR_FRAMES = """(frames) => {
  const wide = document.createElement("div");
  wide.style.inlineSize = "3000px";
  document.body.append(wide);
  const next = () => (frames-- > 0 ? requestAnimationFrame(next) : wide.remove());
  next();
}"""
BURSTING_CONTROLS = """() => [...document.querySelectorAll(".card :is(input, select, textarea)")]
  .filter((each) => each.getBoundingClientRect().right
    > each.closest(".card").getBoundingClientRect().right)
  .map((each) => `${each.name} sticks out of its card`)"""


@pytest.mark.parametrize("scheme", FIRST_SCHEME)
def test_every_page_is_accessible_fits_and_keeps_the_policy(
    open_world: World, site: str, tmp_path: Path, scheme: str
) -> None:
    bid, lease = BidRow.objects.filter(state="open").get(), LeaseRow.objects.get()
    granted = RoundRow.objects.filter(grants=1).get()
    visits = {
        all_roles(open_world): [
            "/", "/offers", f"/offers/{open_world.offer_id}", "/offers/new", "/bids/new", "/owner",
            "/supply", "/owner?show=busy", "/payouts", "/finance", "/finance/exports", "/wallet",
            "/invoices", "/invoices/billing-details",
            "/ops/burst", "/settings", "/docs/", "/docs/operating/", "/docs/settings/",
            f"/leases/{lease.lease_id}", f"/leases/{uuid4()}",
            "/rounds", f"/rounds/{granted.round_id}",
            f"/owner/hosts/{open_world.host_id}/health",
        ],
        open_world.member(CONSUMER, "consumer"): [
            "/bids", f"/bids/{bid.bid_id}", "/leases", f"/leases/{lease.lease_id}",
        ],
        open_world.member(PLATFORM, "operator"): [
            "/ops", "/ops/health", "/payouts",
            "/lab", "/lab?hours=24&price=limit&lanes=patient&round_seconds=60&fee=5",
        ],
        Client(): ["/accounts/login/"],
    }  # fmt: skip
    wrong: dict[str, list[str]] = {}
    for client, paths in visits.items():
        with browsing(scheme=scheme) as (context, page, complaints):
            enter(context, site, client.cookies)
            for path in paths:
                page.set_viewport_size({"width": 1280, "height": 900})
                page.goto(site + path)
                page.wait_for_load_state("networkidle")
                found = faults(page, scheme, also=f"({BURSTING_CONTROLS})()")
                found += [each for each in complaints if "404" not in each]
                complaints.clear()
                if found:
                    wrong[path] = found

    assert wrong == {}


def test_a_page_is_too_wide_only_once_it_has_settled(site: str, tmp_path: Path) -> None:
    with browsing() as (_, page, complaints):
        page.goto(f"{site}/accounts/login/")
        page.evaluate(WIDE_FOR_FRAMES, 5)
        settling = overflow(page)
        page.evaluate(WIDE_FOR_FRAMES, 1_000_000)
        settled = overflow(page)

    assert settling <= 0
    assert settled > 0
    assert complaints == []


def test_the_market_page_is_light(open_world: World, site: str, tmp_path: Path) -> None:
    with browsing() as (context, page, _):
        enter(context, site, all_roles(open_world).cookies)
        sizes: list[int] = []
        page.on("response", lambda answer: sizes.append(len(answer.body())))
        page.goto(site)
        page.wait_for_load_state("networkidle")

        assert sum(sizes) < WEIGHT_MAX
        assert len(sizes) <= REQUESTS_MAX


def test_an_owner_lists_a_window_by_dragging(open_world: World, site: str, tmp_path: Path) -> None:
    with browsing() as (context, page, _):
        enter(context, site, open_world.member(OWNER, "owner").cookies)
        page.goto(f"{site}/offers/new")
        first, last = free(page, "GPU-2").nth(4), free(page, "GPU-3").nth(11)
        first.hover()
        page.mouse.down()
        last.hover()
        page.mouse.up()
        chosen = page.eval_on_selector_all("[name=gpu]:checked", "all => all.map(e => e.value)")
        page.fill("[name=floor]", "2.25")
        page.get_by_text("If all of it is leased").wait_for()
        page.get_by_role("button", name="List GPUs").click()
        page.wait_for_url("**/offers/*-*")

    assert chosen == ["GPU-2", "GPU-3"]
    open_world.settle()
    row = OfferRow.objects.exclude(offer_id=open_world.offer_id).get()
    assert row.gpu_uuids == ["GPU-2", "GPU-3"]
    assert row.ends_at is not None
    assert (row.ends_at - row.starts_at).total_seconds() == 4 * 3600


def test_an_owner_lists_a_window_by_keys_alone(
    open_world: World, site: str, tmp_path: Path
) -> None:
    with browsing() as (context, page, _):
        enter(context, site, open_world.member(OWNER, "owner").cookies)
        page.goto(f"{site}/offers/new")
        free(page, "GPU-2").first.focus()
        for key in ("ArrowRight", "ArrowRight", *["Shift+ArrowRight"] * 3, "Shift+ArrowDown"):
            page.keyboard.press(key)
        page.keyboard.press("Enter")
        said = page.text_content("[data-said]") or ""
        page.keyboard.type("2.50")
        page.keyboard.press("Enter")
        page.wait_for_url("**/offers/*-*")

    assert said.startswith("GPU 2 to GPU 3:")
    open_world.settle()
    row = OfferRow.objects.exclude(offer_id=open_world.offer_id).get()
    assert row.gpu_uuids == ["GPU-2", "GPU-3"]
    assert row.floor_nanos_per_gpu_hour == 2_500_000_000
    assert row.ends_at is not None
    assert (row.ends_at - row.starts_at).total_seconds() == 2 * 3600


def test_the_estimate_follows_the_form(open_world: World, site: str, tmp_path: Path) -> None:
    with browsing() as (context, page, _):
        enter(context, site, open_world.member(CONSUMER, "consumer").cookies)
        page.goto(f"{site}/bids/new?gpu=H100-80GB")
        page.get_by_text("You would get it now").wait_for()
        page.fill("[name=limit]", "1.00")
        page.get_by_text("It would wait").wait_for()


def test_a_trade_appears_on_the_open_market_page(
    open_world: World, site: str, tmp_path: Path
) -> None:
    consumer = open_world.member(CONSUMER, "consumer")
    with browsing() as (context, page, complaints):
        enter(context, site, consumer.cookies)
        page.goto(site)
        page.get_by_text("Live", exact=True).wait_for()
        consumer.post("/bids/new", bid_form(gpus="1", hours="3"))
        open_world.settle()
        page.locator("#tape").get_by_text(
            "Leased 1 \N{MULTIPLICATION SIGN} H100-80GB, 3 h"
        ).wait_for()
        ticks = page.locator("price-tick").count()

    assert ticks == 1
    assert complaints == []


def test_the_price_line_spans_the_day_and_the_last_price_holds(
    open_world: World, site: str, tmp_path: Path
) -> None:
    assert TradeRow.objects.update(at=F("at") - timedelta(minutes=1)) == 1
    with browsing() as (context, page, _):
        enter(context, site, open_world.member(CONSUMER, "consumer").cookies)
        page.goto(site)
        assert comes_true(
            page, "document.querySelector('price-line')?.plot?.scales.x.max", within_ms=10_000
        )
        begin, end, points = page.evaluate(
            "(({plot}) => [plot.scales.x.min, plot.scales.x.max, plot.data[0]])"
            "(document.querySelector('price-line'))"
        )

    assert end - begin == 24 * 3600
    assert len(points) == 2
    assert begin <= points[0] < points[1] == end


def test_a_dialog_shows_the_effect_and_can_be_left(
    open_world: World, site: str, tmp_path: Path
) -> None:
    with browsing() as (context, page, _):
        enter(context, site, open_world.member(OWNER, "owner").cookies)
        page.goto(f"{site}/owner")
        page.get_by_role("button", name="Reclaim… aurora-1").click()
        shown = page.get_by_role("dialog").inner_text()
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="hidden")

    assert "You pay the consumers" in shown
    assert LeaseRow.objects.get().stop_at is None


def test_the_theme_is_remembered_without_a_flash(
    open_world: World, site: str, tmp_path: Path
) -> None:
    with browsing() as (context, page, _):
        enter(context, site, open_world.member(OWNER, "owner").cookies)
        page.goto(f"{site}/settings")
        page.locator(".who [data-theme-toggle]").click()
        page.reload()
        served_theme = page.evaluate("fetch('/settings').then(r => r.text())")

    assert '<html lang="en" data-theme="dark">' in served_theme


def free(page: Page, gpu: str):  # type: ignore[no-untyped-def]  # a Locator
    return page.locator(f'tr[data-gpu="{gpu}"] td.free')


def test_a_reclaim_comes_onto_an_open_page_and_takes_its_forms_along(
    open_world: World, site: str
) -> None:
    lease = LeaseRow.objects.get()
    url = f"{site}/leases/{lease.lease_id}"
    owner = open_world.member(OWNER, "owner")
    with browsing() as (context, page, complaints):
        enter(context, site, open_world.member(CONSUMER, "consumer").cookies)
        page.goto(url)
        page.fill("[name=ends_at]", "2030-01-01T10:00")
        page.evaluate("document.body.dispatchEvent(new Event('market-changed'))")
        page.wait_for_load_state("networkidle")
        typed = page.input_value("[name=ends_at]")

        owner.post(f"/leases/{lease.lease_id}/reclaim", {"notice_seconds": "600"})
        open_world.settle()
        page.locator("#notice").wait_for()
        shown = page.locator("#notice").inner_text()
        heading = page.locator("#lead").inner_text()
        gone = page.locator("[name=ends_at]").count()
        wrong = violations(page)

    assert typed == "2030-01-01T10:00", "what somebody types is not taken away"
    assert "The owner takes these GPUs back" in shown
    assert "when it is taken back" in heading
    assert gone == 0
    assert wrong == []
    assert complaints == []
