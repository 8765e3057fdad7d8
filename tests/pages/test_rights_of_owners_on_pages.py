"""What a reclaim costs is on the page and in the API before it is asked for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from listings.models import OfferRow
from marketplace.loops import advance_leases
from marketplace.models import LeaseRow
from marketplace.queries.leases import assignments_for
from tests.pages.bid_form import form as bid_form
from tests.pages.offer_form import form as offer_form
from tests.pages.reading import html
from tests.pages.world import CONSUMER, OWNER, World, id_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(world: World) -> Client:
    return world.member(OWNER, "owner")


@pytest.fixture
def consumer(world: World) -> Client:
    return world.member(CONSUMER, "consumer")


@pytest.fixture
def lease_id(world: World, consumer: Client) -> UUID:
    """Return a lease of the consumer's, on GPUs that go cheaper with an hour of notice."""
    world.list_gpus(0, 1)
    consumer.post("/bids/new", bid_form())
    world.settle()
    return LeaseRow.objects.get().lease_id


def quoted(client: Client, lease_id: UUID) -> list[dict[str, Any]]:
    answer = client.get(f"/api/v1/leases/{lease_id}/reclaim-quote")
    assert answer.status_code == 200, answer.content
    choices: list[dict[str, Any]] = answer.json()["choices"]
    return choices


def test_an_owner_sees_what_each_notice_costs_before_reclaiming(
    world: World, owner: Client, lease_id: UUID
) -> None:
    page = html(owner.get(f"/leases/{lease_id}").content)
    assert 'name="notice_seconds" value="600" checked' in page
    assert 'name="notice_seconds" value="3600"' in page

    answer = owner.post(f"/leases/{lease_id}/reclaim", {"notice_seconds": "3600"})
    world.settle()

    assert answer.status_code == 302
    row = LeaseRow.objects.get()
    assert row.stop_at is not None
    told = html(owner.get(f"/leases/{lease_id}").content)
    assert "The owner pays" in told
    # It may still be brought forward.
    assert 'name="notice_seconds" value="600" checked' in told


def test_the_api_quotes_and_the_reclaim_pays_that(
    world: World, owner: Client, consumer: Client, lease_id: UUID
) -> None:
    least, longer = quoted(owner, lease_id)
    assert (least["notice_seconds"], longer["notice_seconds"]) == (600, 3_600)
    assert float(least["compensation"]) > float(longer["compensation"]) > 0
    assert [each["notice_seconds"] for each in quoted(consumer, lease_id)] == [600, 3_600]

    short = owner.post(
        f"/api/v1/leases/{lease_id}/reclaim", {"notice_seconds": 599}, "application/json"
    )
    assert (short.status_code, short.json()["code"]) == (422, "notice-too-short")
    asked = owner.post(f"/api/v1/leases/{lease_id}/reclaim", {}, "application/json")
    assert asked.status_code == 202, asked.content


def test_a_stranger_gets_no_quote(world: World, lease_id: UUID) -> None:
    stranger = world.member("platform", "owner")
    assert stranger.get(f"/api/v1/leases/{lease_id}/reclaim-quote").status_code == 404


def test_the_schedule_is_on_the_lease(consumer: Client, lease_id: UUID) -> None:
    shown = consumer.get(f"/api/v1/leases/{lease_id}").json()["reclaim_schedule"]
    [of_host] = shown
    assert of_host["steps"] == [
        {"notice_seconds": 600, "fee_ppm": 100_000},
        {"notice_seconds": 3_600, "fee_ppm": 20_000},
    ]
    page = consumer.get(f"/leases/{lease_id}").content.decode()
    assert "A reclaim now would pay you" in page


def test_an_offer_with_steps_is_made_on_the_page(world: World, owner: Client) -> None:
    steps = {"longer_notice": "1", "longer_fee": "5", "longest_notice": "24", "longest_fee": "0"}
    answer = owner.post("/offers/new", offer_form(world, **steps))
    world.settle()

    assert answer.status_code == 302, answer.content
    row = OfferRow.objects.get(offer_id=id_in(answer["Location"]))
    assert row.reclaim_steps == [
        {"notice_seconds": 3_600, "fee_ppm": 50_000},
        {"notice_seconds": 86_400, "fee_ppm": 0},
    ]
    shown = owner.get(f"/api/v1/offers/{row.offer_id}").json()
    assert shown["reclaim_steps"] == row.reclaim_steps
    assert "With 1 h of notice" in owner.get(answer["Location"]).content.decode()


@pytest.mark.parametrize(("typed", "seconds", "said"), [("300", 300, "5 min"), ("", 15, "15 s")])
def test_the_grace_goes_from_the_form_to_the_lease_and_its_agent(
    world: World, owner: Client, consumer: Client, typed: str, seconds: int, said: str
) -> None:
    answer = owner.post("/offers/new", offer_form(world, grace=typed))
    world.settle()
    assert answer.status_code == 302, answer.content
    offer_id = id_in(answer["Location"])
    assert owner.get(f"/api/v1/offers/{offer_id}").json()["grace_seconds"] == seconds
    assert f"Grace period, within it</dt><dd>{said}" in html(
        owner.get(f"/offers/{offer_id}").content
    )
    [listed] = consumer.get("/api/v1/listings").json()["data"]
    assert listed["grace_seconds"] == seconds

    query = {"query": f"grace>={seconds}s"}
    told = html(consumer.post("/bids/estimate", bid_form(**query)).content)
    assert f"Grace period</dt><dd>{said}" in told
    consumer.post("/bids/new", bid_form(**query))
    world.settle()

    lease = LeaseRow.objects.get()
    shown = consumer.get(f"/api/v1/leases/{lease.lease_id}").json()
    assert shown["grace_seconds"] == lease.grace_seconds == seconds
    for whose in (consumer, owner):
        page = html(whose.get(f"/leases/{lease.lease_id}").content)
        assert f"Grace period</dt><dd>{said}" in page
    advance_leases(world.store, now=lease.starts_at, start_grace=timedelta(minutes=10))
    world.settle()
    [wanted] = assignments_for(world.host_id)
    assert wanted.grace_seconds == seconds


def test_more_grace_than_notice_is_refused_on_the_page_and_by_the_api(
    world: World, owner: Client
) -> None:
    form = offer_form(world, grace="601")
    page = owner.post("/offers/new", form)
    assert page.status_code == 422
    assert "within the notice of a reclaim" in page.content.decode()
    assert not OfferRow.objects.exists()


def test_a_bid_that_asks_for_more_grace_is_told_what_it_leaves_out(
    world: World, consumer: Client
) -> None:
    world.list_gpus(0, 1)

    told = consumer.post("/bids/estimate", bid_form(query="grace>=16s")).content.decode()

    assert "It would wait" in told
    assert "Too few GPUs with that grace period" in told
    assert "with the grace you ask for, at least 16 s" in told


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ({"longer_notice": "1"}, "Say both how much notice and what you pay"),
        ({"longer_notice": "1", "longer_fee": "10"}, "more notice and a lower fee"),
    ],
)
def test_steps_that_make_no_sense_are_refused_on_the_page(
    world: World, owner: Client, steps: dict[str, str], said: str
) -> None:
    answer = owner.post("/offers/new", offer_form(world, **steps))
    assert answer.status_code == 422
    assert said in answer.content.decode()


def test_the_rest_is_sold_on_the_page_and_its_owner_takes_it_first(
    world: World, owner: Client, consumer: Client, lease_id: UUID
) -> None:
    page = consumer.get(f"/leases/{lease_id}").content.decode()
    assert "Sell the rest" in page
    form = {"token": str(lease_id), "since": "", "floor": "2.50", "shortest": "15"}

    answer = consumer.post(f"/leases/{lease_id}/sell", form)
    world.settle()

    assert answer.status_code == 302, answer.content
    assert LeaseRow.objects.get().resale_state == "first-refusal"
    shown = owner.get(f"/leases/{lease_id}").content.decode()
    assert "First refusal costs the owner" in shown
    assert consumer.post(f"/leases/{lease_id}/take").status_code == 403

    assert owner.post(f"/leases/{lease_id}/take").status_code == 302
    world.settle()
    row = LeaseRow.objects.get()
    assert row.stop_at is not None
    assert row.resale_state == "kept"


def test_a_floor_below_the_price_is_refused_on_the_page(consumer: Client, lease_id: UUID) -> None:
    form = {"token": str(lease_id), "since": "", "floor": "0.01", "shortest": "15"}
    answer = consumer.post(f"/leases/{lease_id}/sell", form)
    assert answer.status_code == 422
    assert "at its own price or above" in answer.content.decode()


def test_the_rest_is_sold_kept_and_shown_by_the_api(
    world: World, owner: Client, consumer: Client, lease_id: UUID
) -> None:
    path = f"/api/v1/leases/{lease_id}/resale"
    asked = consumer.post(path, {"floor": "2.50"}, "application/json")
    world.settle()
    assert asked.status_code == 202, asked.content
    shown = consumer.get(f"/api/v1/leases/{lease_id}").json()["resale"]
    assert (shown["state"], shown["floor"]) == ("first-refusal", "2.50")

    again = consumer.post(path, {"floor": "2.50"}, "application/json")
    assert (again.status_code, again.json()["code"]) == (409, "rest-on-sale")
    assert owner.delete(path).status_code == 403
    assert consumer.delete(path).status_code == 200
    world.settle()
    assert LeaseRow.objects.get().resale_state == "kept"
    late = owner.post(f"{path}/take")
    assert (late.status_code, late.json()["code"]) == (409, "nothing-on-sale")


def test_what_a_reclaim_would_pay_is_told_before_the_bid_is_placed(
    world: World, consumer: Client
) -> None:
    world.list_gpus(0, 1)

    told = html(consumer.post("/bids/estimate", bid_form()).content)
    answer = consumer.post(
        "/api/v1/bids/preview",
        {
            "subscriber_id": str(world.unit_id),
            "gpus": 2,
            "duration_seconds": 7_200,
            "limit": "2.50",
            "service_class": "on-demand",
            "workload": {"kind": "other"},
        },
        "application/json",
    )

    assert "Reclaim after 10 min</dt><dd>pays 10.0% of the lost time" in told
    assert "after 1 h</dt><dd>pays 2.0% of the lost time" in told
    assert "Grace period</dt><dd>15 s" in told
    assert answer.json()["reclaim"] == [
        {
            "gpus": 2,
            "steps": [
                {"notice_seconds": 600, "fee_ppm": 100_000},
                {"notice_seconds": 3_600, "fee_ppm": 20_000},
            ],
            "grace_seconds": 15,
        }
    ]
