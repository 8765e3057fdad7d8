"""An owner promises a level of service on the offer's page; the lease shows what was promised."""

from __future__ import annotations

from decimal import Decimal
from uuid import uuid4

import pytest
from django.conf import settings

from ledger.domain.ids import BidId, OfferId
from ledger.domain.money import NANOS_PER_UNIT, Rate
from listings.models import OfferRow
from marketplace.commands import bids
from marketplace.domain.bids.bid import BidTerms
from marketplace.domain.facts.events import GpuRequest, Workload
from marketplace.models import LeaseRow
from tests.pages.bid_form import form
from tests.pages.reading import text
from tests.pages.world import BY, CONSUMER, OWNER, World

pytestmark = pytest.mark.django_db

SAID = {"start_by": "120", "late_credit": "5", "availability": "99.9=10; 95=50"}


def ask(world: World) -> LeaseRow:
    bid_id = BidId(uuid4())
    terms = BidTerms(
        bid_id=bid_id,
        tenant_id=world.tenant(CONSUMER),
        subscriber_id=world.unit_id,
        user_id=None,
        account_id=world.account_id,
        market=settings.ENV.market,
        request=GpuRequest(),
        gpus=1,
        placement="same-host",
        duration_seconds=7_200,
        limit=Rate(3 * NANOS_PER_UNIT),
        service_class="on-demand",
        patience="immediate",
        workload=Workload(kind="other"),
    )
    bids.place_bid(world.store, terms=terms, by=BY, now=world.now)
    world.settle()
    return LeaseRow.objects.get(bid_id=bid_id)


def test_a_promise_is_made_on_the_offers_page_and_shown_on_the_lease(world: World) -> None:
    owner, consumer = world.member(OWNER, "owner"), world.member(CONSUMER, "consumer")
    world.list_gpus(0)
    page = f"/offers/{world.offer_id}"

    done = owner.post(page, {"do": "sla", **SAID})
    world.settle()

    assert done.status_code == 302
    said = OfferRow.objects.get(pk=world.offer_id).sla
    assert said is not None
    assert said["start_by_seconds"] == 120
    sentence = "The work starts within 120 seconds of the lease"
    assert sentence in text(owner.get(page).content)
    [listed] = consumer.get("/api/v1/listings").json()["data"]
    assert listed["sla"]["steps"][0] == {"below_ppm": 999_000, "credit_ppm": 100_000}
    assert listed["sla"]["misses"][-1] == {
        "text": "starts more than 120 s late, and available for less than 95 % of its time",
        "late_seconds": 120,
        "below_ppm": 950_000,
        "credit_ppm": 550_000,
    }
    lease = ask(world)
    shown = text(consumer.get(f"/leases/{lease.lease_id}").content)
    assert sentence in shown
    assert "Measured once the lease is over and paid" in shown


def test_a_preview_tells_what_a_miss_would_credit(world: World) -> None:
    owner, consumer = world.member(OWNER, "owner"), world.member(CONSUMER, "consumer")
    world.list_gpus(0, 1)
    owner.post(f"/offers/{world.offer_id}", {"do": "sla", **SAID})
    world.settle()
    asked = {"query": "starts<=2m", "gpus": 2, "duration_seconds": 7_200, "limit": "9.00"}
    asked |= {"workload": {"kind": "other"}, "subscriber_id": str(world.unit_id)}
    asked |= {"service_class": "on-demand"}

    quote = consumer.post("/api/v1/bids/preview", asked, content_type="application/json").json()
    page = text(consumer.post("/bids/estimate", form(gpus="2", starts_within="120")).content)

    [service] = quote["service"]
    assert (service["gpus"], service["start_by_seconds"]) == (2, 120)
    assert service["availability_ppm"] == 999_000
    late, *_, worst = service["misses"]
    assert (late["late_seconds"], late["below_ppm"], late["credit_ppm"]) == (120, None, 50_000)
    assert Decimal(late["credit"]) == Decimal(quote["cost"]) * 5 / 100
    assert Decimal(worst["credit"]) == Decimal(quote["cost"]) * 55 / 100
    assert "Starts more than 120 s late 5.0% back: $0.40" in page
    assert "and available for less than 95 % of its time 55.0% back: $4.40" in page


def test_the_market_tells_the_best_that_is_promised(world: World) -> None:
    owner, visitor = world.member(OWNER, "owner"), world.member(CONSUMER, "consumer")
    world.list_gpus(0, floor="2.00")
    first = world.offer_id
    world.offer_id = OfferId(uuid4())
    world.list_gpus(1, 2, floor="3.00")
    (nothing,) = visitor.get("/api/v1/market").json()["data"]
    assert nothing["service"] is None
    assert "Service promised" not in text(visitor.get("/").content)

    for offer_id, said in (
        (first, {"start_by": "120", "late_credit": "5"}),
        (world.offer_id, SAID),
    ):
        owner.post(f"/offers/{offer_id}", {"do": "sla", **said})
    world.settle()

    (goods,) = visitor.get("/api/v1/market").json()["data"]
    assert goods["service"] == {"gpus": 3, "start_by_seconds": 120, "availability_ppm": 999_000}
    told = "Service promised, the best of it on 3 of 3 GPUs, start within 2 min, availability 99.9%"
    assert told in text(visitor.get("/").content)


def test_what_cannot_be_promised_is_said_at_the_form(world: World) -> None:
    owner = world.member(OWNER, "owner")
    world.list_gpus(0)
    page = f"/offers/{world.offer_id}"

    unread = owner.post(page, {"do": "sla", **SAID, "availability": "much"})
    refused = owner.post(page, {"do": "sla", **SAID, "late_credit": ""})

    assert "such as 99.9=10; 95=50" in text(unread.content)
    assert "each with a credit" in text(refused.content)
    assert OfferRow.objects.get(pk=world.offer_id).sla is None


def test_a_promise_is_taken_back_by_its_owner_alone(world: World) -> None:
    owner, stranger = world.member(OWNER, "owner"), world.member(CONSUMER, "operator")
    world.list_gpus(0)
    path = f"/api/v1/offers/{world.offer_id}/sla"
    asked = {"steps": [{"below_ppm": 999_000, "credit_ppm": 100_000}]}

    told = owner.put(path, asked, content_type="application/json")
    world.settle()
    others = stranger.delete(path)
    assert others.status_code != 503, others.content
    world.settle()
    kept = OfferRow.objects.get(pk=world.offer_id).sla
    gone = owner.delete(path)
    world.settle()

    assert (told.status_code, others.status_code, gone.status_code) == (200, 404, 200)
    assert kept is not None
    assert OfferRow.objects.get(pk=world.offer_id).sla is None
