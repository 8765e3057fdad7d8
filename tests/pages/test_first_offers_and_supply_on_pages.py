"""A first offer is made without conflict, its price checked where it is typed; all see supply."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from listings.models import OfferRow
from tests.pages.offer_form import form
from tests.pages.reading import html
from tests.pages.world import CONSUMER, OWNER, World, id_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(world: World) -> Client:
    return world.member(OWNER, "owner")


def value(page: str, name: str) -> str:
    found = re.search(rf'<input[^>]*name="{name}"[^>]*>', page)
    assert found is not None
    inside = re.search(r'value="([^"]*)"', found[0])
    return inside[1] if inside else ""


def chosen(page: str) -> set[str]:
    boxes = re.findall(r'<input[^>]*name="gpu"[^>]*>', page)
    return {
        found[1] for box in boxes if "checked" in box and (found := re.search('value="(.*?)"', box))
    }


def test_the_default_window_is_not_listed_already(world: World, owner: Client) -> None:
    first = owner.get("/offers/new").content.decode()
    assert chosen(first) == {"GPU-0", "GPU-1", "GPU-2", "GPU-3"}
    sent = {"starts_at": value(first, "starts_at"), "ends_at": value(first, "ends_at")}

    some = owner.post("/offers/new", form(world, gpu=["GPU-0", "GPU-1"], **sent))
    assert some.status_code == 302, some.content
    world.settle()
    second = owner.get("/offers/new").content.decode()
    assert chosen(second) == {"GPU-2", "GPU-3"}, "the others are listed in that night"
    assert value(second, "starts_at") == sent["starts_at"]

    owner.post("/offers/new", form(world, gpu=["GPU-2", "GPU-3"], **sent))
    world.settle()
    third = owner.get("/offers/new").content.decode()
    assert chosen(third) == {"GPU-0", "GPU-1", "GPU-2", "GPU-3"}
    before = datetime.fromisoformat(sent["starts_at"])
    assert datetime.fromisoformat(value(third, "starts_at")) == before + timedelta(days=1)


def test_where_all_nights_are_listed_free_hours_are_proposed(world: World, owner: Client) -> None:
    now = timezone.now().astimezone(UTC)
    day = f"{now + timedelta(days=1):%Y-%m-%d}"
    every = {"starts_at": f"{day}T20:00", "ends_at": f"{now + timedelta(days=2):%Y-%m-%d}T10:00"}
    gpus = ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    first = owner.post("/offers/new", form(world, gpu=gpus, repeat="daily", **every))
    assert first.status_code == 302, first.content
    tonight = {"starts_at": f"{now:%Y-%m-%d}T20:00", "ends_at": f"{day}T10:00"}
    if now.hour < 19:
        assert owner.post("/offers/new", form(world, gpu=gpus, **tonight)).status_code == 302
    world.settle()

    page = owner.get("/offers/new").content.decode()
    sent = {"starts_at": value(page, "starts_at"), "ends_at": value(page, "ends_at")}
    answer = owner.post("/offers/new", form(world, gpu=sorted(chosen(page)), **sent))

    assert answer.status_code == 302, answer.content


def test_a_wrong_price_is_said_beside_its_field_and_once(world: World, owner: Client) -> None:
    told = owner.post("/offers/preview", form(world, floor="2,5O")).content.decode()
    beside, _, rest = told.partition('id="floor-said"')

    assert "An amount is a plain decimal number" in rest
    assert "An amount is a plain decimal number" not in beside
    right = owner.post("/offers/preview", form(world)).content.decode()
    assert 'class="error"' not in right
    assert 'id="floor-said"' in right, "what was said before goes away"


def test_terms_that_owners_leave_as_they_are_are_folded_until_one_is_wrong(
    world: World, owner: Client
) -> None:
    page = html(owner.get("/offers/new").content)
    assert '<details class="more"><summary>' in page

    wrong = owner.post("/offers/new", form(world, lease_min="0")).content.decode()
    assert '<details class="more" open>' in wrong


def test_a_moment_is_written_with_24_hours_and_its_zone(world: World, owner: Client) -> None:
    owner.cookies["zone"] = "Asia/Kolkata"
    page = owner.get("/offers/new").content.decode()

    starts_at = value(page, "starts_at")
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2} 22:00", starts_at)
    assert '<span class="unit" aria-hidden="true">IST</span>' in page
    sent = {"starts_at": starts_at, "ends_at": value(page, "ends_at")}
    answer = owner.post("/offers/new", form(world, repeat="", **sent))
    assert answer.status_code == 302, answer.content
    world.settle()
    row = OfferRow.objects.get(offer_id=id_in(answer["Location"]))
    assert row.starts_at.astimezone(UTC).strftime("%H:%M") == "16:30"


@pytest.mark.parametrize("typed", ["2030-01-02 03:04 PM", "01/02/2030 03:04", "2030-13-01 00:00"])
def test_another_way_to_write_a_moment_is_refused(world: World, owner: Client, typed: str) -> None:
    answer = owner.post("/offers/new", form(world, starts_at=typed))

    assert answer.status_code == 422


def test_everybody_can_browse_what_is_listed(world: World) -> None:
    world.list_gpus(0, 1)
    consumer = world.member(CONSUMER, "consumer")

    page = consumer.get("/supply").content.decode()
    assert "2 × H100-80GB" in page
    assert "$2.00" in page
    assert "10 min" in page, "the notice"
    assert "Aurora" not in page, "owners stay unnamed"
    assert 'href="/bids/new?gpu=H100-80GB"' in page
    assert "2 × H100-80GB" in consumer.get("/supply?gpu=H100").content.decode()
    assert "Nothing of that" in consumer.get("/supply?gpu=A100").content.decode()
    assert "Nothing of that" in consumer.get("/supply?region=nowhere").content.decode()
    assert 'href="/supply"' in consumer.get("/").content.decode()
