"""An offer by demand: its forms are typed on the page, and the page says why it took one."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from config.wiring import loops
from ledger.domain.ids import OfferId
from ledger.domain.money import Money
from ledger.eventstore import default_store
from ledger.eventstore.port import Meta, load
from listings import commands
from listings.domain.events import Chosen
from listings.domain.offers import Offer
from listings.models import OfferRow
from marketplace.models import LeaseRow
from tests.pages.bid_form import form as bid_form
from tests.pages.offer_form import form as offer_form
from tests.pages.reading import html
from tests.pages.world import CONSUMER, OWNER, World, id_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(world: World) -> Client:
    return world.member(OWNER, "owner")


def test_the_page_lists_by_demand_and_tells_what_became_of_it(world: World, owner: Client) -> None:
    answer = owner.post(
        "/offers/new", offer_form(world, ways="whole=2.00; mps:4 = 0.60;", form_min="30")
    )
    world.settle()
    assert answer.status_code == 302, answer.content
    row = OfferRow.objects.get(offer_id=id_in(answer["Location"]))
    page = html(owner.get(answer["Location"]).content)
    assert (row.isolation, row.floor_nanos_per_gpu_hour) == ("whole", 2_000_000_000)
    assert "by demand, 30 min in one at least" in page and "4 shares by MPS" in page

    old = load(default_store(), Offer, row.offer_id)
    assert old is not None and old.published.by_demand is not None
    commands.choose_form(
        default_store(),
        offer=old.published,
        form=old.published.by_demand.forms[1],
        offer_id=OfferId(uuid4()),
        chosen=Chosen(OfferId(row.offer_id), Money(2_400_000_000, "USD"), Money(0, "USD"), 3, 0),
        by=Meta(actor="loop:forms"),
        now=old.published.at + timedelta(minutes=30),
    )
    world.settle()

    row.refresh_from_db()
    assert "in <a href" in html(owner.get(f"/offers/{row.offer_id}").content)
    page = html(owner.get(f"/offers/{row.succeeded_by}").content)
    assert "bids that waited would pay up to <b>$2.40</b> in it (3 bids)" in page
    assert f'<a href="/offers/{row.offer_id}">the one before</a> (0)' in page


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"ways": "whole"}, "two to eight different ways"),
        ({"ways": "halves=2"}, "Write forms as whole=2.00"),
        ({"ways": "whole=2; mps=1"}, "Say into how many mps shares"),
        ({"ways": "whole=2; mps:2=1.0.0"}, "plain decimal number"),
        ({"ways": "", "form_min": "5"}, "Name the forms"),
        ({"ways": "whole=2; mps:4", "isolation": "mps", "shares": "4"}, "Name all forms here"),
        ({"ways": "whole=2; mig:5g=1"}, "Write MIG profiles"),
        ({"profiles": "3g.40gb"}, "only at the isolation MIG instance"),
        ({"profiles": "3g.40", "isolation": "mig"}, "Write MIG profiles"),
        ({"profiles": "3g.40gb", "isolation": "mig"}, "MIG"),
    ],
)
def test_forms_that_make_no_sense_are_refused_at_their_field(
    world: World, owner: Client, fields: dict[str, str], said: str
) -> None:
    answer = owner.post("/offers/new", offer_form(world, **fields))

    assert answer.status_code == 422
    assert said in answer.content.decode()


def test_bids_that_wait_for_a_share_divide_a_card_that_nobody_wants_whole(
    world: World, owner: Client
) -> None:
    """From the two forms on the pages to the leases, by the loop that the server runs."""
    now = timezone.now()
    answer = owner.post(
        "/offers/new",
        offer_form(
            world,
            gpu=["GPU-0"],
            starts_at=f"{now:%Y-%m-%dT%H:%M}",
            ends_at=f"{now + timedelta(hours=8):%Y-%m-%dT%H:%M}",
            ways="whole=9.00; mps:4=0.60",
            form_min="5",
        ),
    )
    assert answer.status_code == 302, answer.content
    consumer = world.member(CONSUMER, "consumer")
    for limit in ("0.80", "0.90"):
        bid = bid_form(query="isolation=mps", gpus="1", limit=limit)
        assert consumer.post("/bids/new", bid).status_code == 302
    world.settle()
    choose = next(loop for loop in loops(settings.ENV) if loop.name == "forms").run_once
    first = OfferRow.objects.get(offer_id=id_in(answer["Location"]))
    assert choose(default_store(), now + timedelta(minutes=4)) == 0
    assert not LeaseRow.objects.exists()

    assert choose(default_store(), first.published_at + timedelta(minutes=5)) == 1
    world.settle()

    assert LeaseRow.objects.count() == 2
    first.refresh_from_db()
    assert first.succeeded_by is not None
    second = OfferRow.objects.get(offer_id=first.succeeded_by)
    assert (first.state, second.state, second.isolation) == ("withdrawn", "listed", "mps")
    assert "$3.40</b> in it (2 bids)" in html(owner.get(f"/offers/{second.offer_id}").content)
    assert choose(default_store(), first.published_at + timedelta(hours=1)) == 0
