"""What the market page and its API say of prices: the index, and quotes by window."""

from __future__ import annotations

import re

import pytest

from tests.pages.test_bidding_on_pages import form as bid_form
from tests.pages.test_rounds_on_pages import text
from tests.pages.world import CONSUMER, OWNER, World

pytestmark = pytest.mark.django_db


def test_index_and_quotes_stand_on_the_page(world: World) -> None:
    world.list_gpus(0, 1, floor="2.00")
    world.member(CONSUMER, "consumer").post("/bids/new", bid_form(gpus="1", limit="3.00"))
    world.settle()

    page = text(world.member(OWNER, "owner").get("/").content)

    assert re.search(r"H100-80GB price index hourly, last 24 hours \$2\.00 per GPU-h", page)
    assert re.search(r"1 GPU, 1 h \$2\.00 2\.00|1 GPU, 1 h \$2\.00 \$2\.00", page)
    assert "8 GPUs, 3 d none none none" in page


def test_without_trades_there_is_no_index(world: World) -> None:
    world.list_gpus(0, 1, floor="2.00")

    page = text(world.member(OWNER, "owner").get("/").content)

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
