"""Changes that would help, on the pages of a bid and of an offer, and in the API."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.utils import timezone

from listings.models import OfferRow
from marketplace.models import BidRow, LeaseRow
from tests.marketplace.support.market import Market, cover
from tests.pages.bid_form import form as bid_form
from tests.pages.browser import FIRST_SCHEME, browsing, enter, faults, served
from tests.pages.governing import govern
from tests.pages.reading import text
from tests.pages.world import CONSUMER, OWNER, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def waiting(world: World) -> World:
    world.list_gpus(0, 1, floor="2.00")
    world.member(CONSUMER, "consumer").post("/bids/new", bid_form(gpus="1", limit="1.50"))
    world.settle()
    return world


def test_a_waiting_bid_is_told_what_would_help(waiting: World) -> None:
    bid = BidRow.objects.get()
    visitor = waiting.member(CONSUMER, "consumer")

    part = text(visitor.get(f"/bids/{bid.bid_id}/advice").content)
    answer = visitor.get(f"/api/v1/bids/{bid.bid_id}/advice").json()

    assert "Raise the limit to $2.00" in part
    assert f"/bids/{bid.bid_id}/advice" in visitor.get(f"/bids/{bid.bid_id}").content.decode()
    assert answer["waits"] is True
    assert [(change["what"], change["limit"]) for change in answer["changes"]] == [
        ("limit", "2.00")
    ]


def test_an_owner_is_told_what_floor_would_have_sold(waiting: World) -> None:
    offer = OfferRow.objects.get()
    visitor = waiting.member(OWNER, "owner")

    part = text(visitor.get(f"/offers/{offer.offer_id}/explain").content)
    answer = visitor.get(f"/api/v1/offers/{offer.offer_id}/explain").json()

    assert "At a floor of $1.50 it would be leased." in part
    assert (answer["in_time"], answer["floor_needed"]) == (1, "1.50")
    assert "Cirrus" not in part


def test_nobody_is_told_about_what_is_not_theirs(waiting: World) -> None:
    bid, offer = BidRow.objects.get(), OfferRow.objects.get()
    owner, consumer = waiting.member(OWNER, "operator"), waiting.member(CONSUMER, "operator")

    for path in (f"/bids/{bid.bid_id}/advice", f"/api/v1/bids/{bid.bid_id}/advice"):
        assert owner.get(path).status_code == 404, path
    for path in (f"/offers/{offer.offer_id}/explain", f"/api/v1/offers/{offer.offer_id}/explain"):
        assert consumer.get(path).status_code == 404, path


def test_an_owner_is_told_what_stands_in_the_way_of_which_bids(waiting: World) -> None:
    consumer = waiting.member(CONSUMER, "consumer")
    consumer.post("/bids/new", bid_form(gpus="3", limit="9.00", token=str(uuid4())))
    waiting.settle()
    offer = OfferRow.objects.get()
    visitor = waiting.member(OWNER, "owner")

    part = text(visitor.get(f"/offers/{offer.offer_id}/explain").content)
    answer = visitor.get(f"/api/v1/offers/{offer.offer_id}/explain").json()

    assert "It has fewer GPUs than they want 1 3 $9.00" in part
    assert "They pay less than your floor 1 1 $1.50" in part
    assert "Set the floor to $1.50 1 bid $1.50" in part
    assert [(each["reason"], each["bids"]) for each in answer["removed"]] == [
        ("size", 1),
        ("limit", 1),
    ]
    assert [(each["what"], each["floor"]) for each in answer["changes"]] == [("floor", "1.50")]
    assert [(each["limit"], each["left"]) for each in answer["bids"]] == [("9.00", 2), ("1.50", 2)]
    assert "bid_id" not in str(answer)


def test_a_bid_over_quota_is_told_how_much_more_would_do(world: World) -> None:
    world.list_gpus(0, 1, 2)
    govern(world)
    consumer = world.member(CONSUMER, "consumer")
    consumer.post("/bids/new", bid_form(gpus="3", limit="3.00"))
    world.settle()
    bid = BidRow.objects.get()

    part = text(consumer.get(f"/bids/{bid.bid_id}/advice").content)
    answer = consumer.get(f"/api/v1/bids/{bid.bid_id}/advice").json()

    assert "of H100 Request it" in part
    [quota] = [each for each in answer["changes"] if each["what"] == "quota"]
    assert quota["gpu_class"] == "H100" and quota["gpus"] >= 1


def test_a_bid_is_told_what_it_may_not_interrupt_yet(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's work began a minute ago; the bid could wait for less than half an hour."""
    world.list_gpus(0, 1, floor="2.00")
    other = Market(world.store, now=world.now, name=settings.ENV.market)
    other.bid("soft", gpus=2, hours=4, at=2, service_class="interruptible")
    cover(other, "soft")
    world.settle()
    consumer = world.member(CONSUMER, "consumer")
    deadline = f"{timezone.now() + timedelta(hours=2, minutes=25):%Y-%m-%dT%H:%M}"
    consumer.post("/bids/new", bid_form(gpus="2", limit="9.00", deadline=deadline))
    world.settle()
    bid = BidRow.objects.get(tenant_id=world.tenant(CONSUMER))
    # A lease begins at a whole second, which may be yet to come.
    later = timezone.now() + timedelta(minutes=1)
    monkeypatch.setattr(timezone, "now", lambda: later)

    part = text(consumer.get(f"/bids/{bid.bid_id}/advice").content)
    answer = consumer.get(f"/api/v1/bids/{bid.bid_id}/explain").json()

    assert "The bid could preempt 1 lease on 2 GPUs" in part
    assert "leases have a minimum runtime of 30 min" in part
    found = answer["undisturbed"]
    assert (found["leases"], found["gpus"], found["least_run_seconds"]) == (1, 2, 1_800)
    assert found["starts_by"] < found["until"]


@pytest.mark.parametrize("kind", ["interruptible", "on-demand"])
def test_a_lease_says_until_when_other_bids_leave_it_alone(world: World, kind: str) -> None:
    world.list_gpus(0, 1)
    consumer = world.member(CONSUMER, "consumer")
    consumer.post("/bids/new", bid_form(service_class=kind))
    world.settle()
    lease = LeaseRow.objects.get()

    page = text(consumer.get(f"/leases/{lease.lease_id}").content)

    until = timezone.localtime(lease.starts_at + timedelta(minutes=30))
    said = f"Undisturbed by other bids until {until:%a %-d %b %H:%M %Z}"
    assert (said in page) is (kind == "interruptible")


@pytest.mark.parametrize("never", [{"burst": True}, {"resold_lease_id": uuid4()}])
def test_nothing_is_said_of_a_lease_that_no_bid_ever_interrupts(
    world: World, never: dict[str, Any]
) -> None:
    """Machines of a cloud are rented for one; the rest of a lease was bought from another."""
    world.list_gpus(0, 1)
    consumer = world.member(CONSUMER, "consumer")
    consumer.post("/bids/new", bid_form(service_class="interruptible"))
    world.settle()
    lease_id = LeaseRow.objects.get().lease_id
    LeaseRow.objects.update(**never)

    page = text(consumer.get(f"/leases/{lease_id}").content)

    assert "interruptible" in page and "Undisturbed" not in page


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("committed_store")
@pytest.mark.parametrize("scheme", FIRST_SCHEME)
def test_the_explanation_of_an_offer_is_accessible_and_fits(
    committed_store: None, tmp_path: Path, scheme: str
) -> None:
    world = World()
    world.found()
    world.list_gpus(0, 1, floor="2.00")
    for gpus, limit in (("1", "1.50"), ("3", "9.00")):
        bid = bid_form(gpus=gpus, limit=limit, token=str(uuid4()))
        world.member(CONSUMER, "consumer").post("/bids/new", bid)
    world.settle()
    wrong = []
    with (
        served(tmp_path / "site.log") as site,
        browsing(scheme=scheme) as (context, page, complaints),
    ):
        enter(context, site, world.member(OWNER, "owner").cookies)
        page.goto(f"{site}/offers/{world.offer_id}")
        page.get_by_text("The bids one by one").click()
        wrong += faults(page, scheme)
        wrong += complaints

    assert wrong == []
