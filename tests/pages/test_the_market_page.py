"""What the market page and its API say of prices: the index, and quotes by window."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from ledger.domain.ids import OfferId
from ledger.eventstore import default_store
from ledger.eventstore.port import Meta
from listings.commands import change_offer
from listings.domain.changes import TermsChange
from listings.models import OfferRow
from marketplace.models.leases import LeaseRow
from marketplace.queries.market import free_gpus
from tests.pages.bid_form import form as bid_form
from tests.pages.reading import text
from tests.pages.world import CONSUMER, OWNER, World

pytestmark = pytest.mark.django_db


def told(page: Any) -> str:
    """Return what a page says, with spaces that do not break as spaces."""
    return " ".join(unescape(text(page.content)).split())


def test_index_and_quotes_stand_on_the_page(world: World) -> None:
    world.list_gpus(0, 1, floor="2.00")
    world.member(CONSUMER, "consumer").post("/bids/new", bid_form(gpus="1", limit="3.00"))
    world.settle()

    page = told(world.member(OWNER, "owner").get("/"))

    assert re.search(r"H100-80GB price index hourly, last 24 hours \$2\.00 per GPU-h", page)
    assert re.search(r"1 GPU, 1 h notice [0-9a-z ]+ grace [0-9a-z ]+ \$2\.00 \$?2\.00", page)
    assert "8 GPUs, 3 d none none none" in page


@pytest.mark.parametrize("first", ["0.00", "2.00"])
def test_a_floor_of_nothing_is_the_lowest(world: World, first: str) -> None:
    world.list_gpus(0, floor=first)
    world.offer_id = OfferId(uuid4())
    world.list_gpus(1, floor="2.00" if first == "0.00" else "0.00")

    owner = world.member(OWNER, "owner")
    page, answer = told(owner.get("/")), owner.get("/api/v1/market").json()

    [goods] = answer["data"]
    assert goods["lowest_floor"] == "0.00"
    assert "Lowest free offer now $0.00" in page


def test_what_owners_promise_stands_beside_what_is_on_offer(world: World) -> None:
    world.list_gpus(0, floor="2.00")
    world.offer_id = OfferId(uuid4())
    world.list_gpus(1, floor="3.00")
    first, _ = OfferRow.objects.order_by("floor_nanos_per_gpu_hour")
    change = TermsChange(
        notice_seconds=5_400, grace_seconds=60, reclaim_fee_ppm=250_000, reclaim_steps=()
    )
    change_offer(
        default_store(),
        offer_id=OfferId(first.offer_id),
        terms=change,
        by=Meta(actor="test"),
        now=timezone.now(),
    )
    world.settle()
    visitor = world.member(CONSUMER, "consumer")

    page = told(visitor.get("/"))
    (goods,) = visitor.get("/api/v1/market").json()["data"]
    quotes = visitor.get("/api/v1/market/quotes?gpu_model=H100-80GB").json()["data"]

    assert "Notice of a reclaim 10 min to 1 h 30 min" in page
    assert "Reclaim fee 10.0% to 25.0%" in page
    assert "Grace period, within it 15 s to 1 min" in page
    assert "1 GPU, 1 h notice 1 h 30 min grace 1 min $2.00" in page
    assert goods["promised"] == {
        "notice_seconds_min": 600,
        "notice_seconds_max": 5_400,
        "reclaim_fee_ppm_min": 100_000,
        "reclaim_fee_ppm_max": 250_000,
        "grace_seconds_min": 15,
        "grace_seconds_max": 60,
    }
    of_one, of_eight = quotes[0]["promised"], quotes[-1]["promised"]
    assert (of_one["notice_seconds_min"], of_one["notice_seconds_max"]) == (5_400, 5_400)
    assert of_eight is None


def test_what_an_owner_took_back_is_not_free_until_its_lease_would_have_ended(
    world: World,
) -> None:
    world.list_gpus(0, floor="2.00")
    world.member(CONSUMER, "consumer").post("/bids/new", bid_form(gpus="1", hours="4"))
    world.settle()
    lease, owner = LeaseRow.objects.get(), world.member(OWNER, "owner")

    owner.post(f"/leases/{lease.lease_id}/reclaim", {"notice_seconds": "600"})
    world.settle()

    now, until = lease.starts_at, timezone.now() + timedelta(hours=20)
    store = default_store()
    [(uuid, free)] = free_gpus(store, market="main", model="H100-80GB", now=now, until=until)
    assert uuid == "GPU-0"
    assert free.starts_at >= lease.ends_at


def test_without_trades_there_is_no_index(world: World) -> None:
    world.list_gpus(0, 1, floor="2.00")

    page = told(world.member(OWNER, "owner").get("/"))

    assert "so there is no index" in page


def test_the_api_has_both(world: World) -> None:
    world.list_gpus(0, 1, floor="2.00")
    world.member(CONSUMER, "consumer").post("/bids/new", bid_form(gpus="1", limit="3.00"))
    world.settle()
    visitor = world.member(OWNER, "owner")

    index = visitor.get("/api/v1/market/index?hours=1").json()["data"]
    quotes = visitor.get("/api/v1/market/quotes?gpu_model=H100-80GB").json()["data"]
    every = visitor.get("/api/v1/market/quotes").json()["data"]

    assert {point["index"] for point in index} == {"2.00"}
    first, last = quotes[0], quotes[-1]
    assert (first["gpus"], first["starts_within"], first["price"], first["cost"]) == (
        1, "now", "2.00", "2.00",
    )  # fmt: skip
    assert (last["gpus"], last["price"], last["starts_at"]) == (8, None, None)
    assert {quote["gpu_model"] for quote in every} == {"H100-80GB"}
    assert len(every) == len(quotes)
