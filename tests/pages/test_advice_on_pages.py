"""What would change it, on the pages of a bid and of an offer, and in the API."""

from __future__ import annotations

import pytest

from listings.models import OfferRow
from marketplace.models import BidRow
from tests.pages.test_bidding_on_pages import form as bid_form
from tests.pages.test_rounds_on_pages import text
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
