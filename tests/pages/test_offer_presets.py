"""The form of an offer: presets of hours and terms, a suggested price, messages at their fields."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from ledger.domain.money import MILLIS_PER_HOUR
from listings.models import OfferRow
from marketplace.models.rounds import PriceRow
from tests.pages.offer_form import form
from tests.pages.world import OWNER, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(world: World) -> Client:
    return world.member(OWNER, "owner")


def traded(hour: datetime) -> None:
    """Let four GPU-hours of the model be leased for 7.40 in an hour: an index of 1.85."""
    PriceRow.objects.create(
        key=f"H100{hour}", market=settings.ENV.market, gpu_model="H100-80GB", currency="USD",
        hour=hour, trades=1, gpus=1, gpu_millis=4 * MILLIS_PER_HOUR, value_nanos=7_400_000_000,
        low_nanos=1_850_000_000, high_nanos=1_850_000_000, last_nanos=1_850_000_000,
    )  # fmt: skip


def said(page: str, field: str) -> str:
    """Return what stands at a field."""
    return re.sub(r"<[^>]*>", "", page.split(f'id="{field}-said"')[1].split("</div>\n")[0])


def test_gpus_hours_and_price_come_first_and_the_rest_is_folded(
    world: World, owner: Client
) -> None:
    page = owner.get("/offers/new").content.decode()
    shown, _, folded = page.partition('<details class="more">')

    legends = re.findall(r"<legend>(.*?)</legend>", shown)
    assert legends == ["GPUs", "Hours", "Price"]
    assert 'name="cleaning"' in folded and 'name="isolation"' in folded
    assert '<option value="standard" selected>' in shown


def test_nights_and_weekends_are_two_offers_on_the_owners_clock(
    world: World, owner: Client
) -> None:
    owner.cookies["zone"] = "Europe/Berlin"
    sent = form(world, schedule="nights-and-weekends", starts_at="", ends_at="")

    answer = owner.post("/offers/new", sent)
    again = owner.post("/offers/new", sent)
    world.settle()

    assert (answer.status_code, again.status_code) == (302, 302), answer.content
    rules = [row.weekly or {} for row in OfferRow.objects.order_by("weekly__since")]
    assert [(each["since"], each["until"], len(each["days"])) for each in rules] == [
        ("08:00:00", "20:00:00", 2),
        ("20:00:00", "08:00:00", 7),
    ]
    assert {each["zone"] for each in rules} == {"Europe/Berlin"}


def test_whenever_idle_is_all_day_every_day(world: World, owner: Client) -> None:
    told = owner.post("/offers/preview", form(world, schedule="whenever-idle")).content.decode()
    answer = owner.post("/offers/new", form(world, schedule="whenever-idle"))
    world.settle()

    assert answer.status_code == 302, answer.content
    hours = re.search(r"([0-9.]+) GPU-h", told)
    assert hours is not None and 2 * 166 <= float(hours[1]) <= 2 * 8 * 24
    weekly = OfferRow.objects.get().weekly or {}
    assert (weekly["since"], weekly["until"], len(weekly["days"])) == ("00:00:00", "00:00:00", 7)


def test_a_preset_of_reclaim_terms_stands_for_the_fields_below_it(
    world: World, owner: Client
) -> None:
    sent = form(world, reclaim_terms="long", notice="no number", reclaim_fee="", grace="7000")

    answer = owner.post("/offers/new", sent)
    world.settle()

    assert answer.status_code == 302, answer.content
    row = OfferRow.objects.get()
    assert (row.notice_seconds, row.grace_seconds, row.reclaim_fee_ppm) == (7_200, 300, 50_000)
    assert [each["fee_ppm"] for each in row.reclaim_steps] == [10_000]


def test_a_price_is_suggested_from_the_index(world: World, owner: Client) -> None:
    assert "no price index for this model yet" in owner.get("/offers/new").content.decode()
    hour = timezone.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    traded(hour)

    page = owner.get("/offers/new").content.decode()

    assert "Suggested: the price index of H100-80GB, $1.85 per GPU-h." in page
    assert re.search(r'<input[^>]*name="floor"[^>]*value="1.85"', page)


@pytest.mark.parametrize(
    ("changed", "field", "words"),
    [
        ({"floor": "20000"}, "floor", "A floor price lies between 0 and 10,000"),
        ({"lease_min": "100000"}, "lease_min", "The minimum lease lies between"),
        ({"notice": "90000"}, "notice", "The notice of a reclaim lies between"),
        ({"workload_kinds": "Mining!"}, "workload_kinds", "A workload kind is a short"),
    ],
)
def test_a_refusal_stands_at_its_field_on_the_page_and_while_the_form_is_filled_in(
    world: World, owner: Client, changed: dict[str, str], field: str, words: str
) -> None:
    page = owner.post("/offers/new", form(world, **changed))
    preview = owner.post("/offers/preview", form(world, **changed)).content.decode()

    assert page.status_code == 422
    assert words in said(page.content.decode(), field)
    assert page.content.decode().count(words) == preview.count(words) == 1
    assert words in said(preview, field)


def test_gpus_that_are_listed_already_are_named_before_the_form_is_sent(
    world: World, owner: Client
) -> None:
    owner.post("/offers/new", form(world))
    world.settle()

    told = owner.post("/offers/preview", form(world, gpu=["GPU-1"])).content.decode()

    assert "That GPU is offered already during one of these windows." in said(told, "gpu")
    assert "Correct the marked fields" in told
