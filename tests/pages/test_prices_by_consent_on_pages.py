"""A price of a lease that runs, proposed by one side on a page and agreed to by the other."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from ledger.models import InboxRow
from ledger.models.money import HoldRow
from marketplace.models import LeaseRow, PriceProposalRow
from tests.pages.browser import FIRST_SCHEME, browsing, enter, faults, served
from tests.pages.leased import leased
from tests.pages.reading import html
from tests.pages.world import CONSUMER, OWNER, World


def asked(price: str, *, minutes: int = 60, **more: Any) -> dict[str, str]:
    since = timezone.now() + timedelta(minutes=minutes)
    return {"token": str(uuid4()), "price": price, "since": f"{since:%Y-%m-%d %H:%M}"} | more


def both(world: World) -> tuple[Client, Client, LeaseRow]:
    world.list_gpus(0, 1)
    consumer, owner = world.member(CONSUMER, "consumer"), world.member(OWNER, "owner")
    return consumer, owner, leased(world, consumer)


@pytest.mark.django_db
def test_an_owner_proposes_the_consumer_agrees_and_both_are_told(world: World) -> None:
    consumer, owner, row = both(world)
    page = f"/leases/{row.lease_id}"
    before = HoldRow.objects.get().money_nanos

    assert "Propose another price" in html(owner.get(page).content)
    assert owner.post(f"{page}/prices", asked("2.50", why="power")).status_code == 302
    world.settle()
    [proposal] = PriceProposalRow.objects.all()
    told = [each.title for each in InboxRow.objects.filter(topic="price")]
    assert len(told) == 1 and "proposed" in told[0]
    shown = html(consumer.get(page).content)
    assert "power" in shown and "Agree" in shown
    assert HoldRow.objects.get().money_nanos == before

    assert consumer.post(f"{page}/prices/{proposal.pk}", {"do": "agree"}).status_code == 302
    world.settle()

    assert PriceProposalRow.objects.get().state == "agreed"
    assert HoldRow.objects.get().money_nanos > before
    assert InboxRow.objects.filter(topic="price").count() == 3
    shown = html(consumer.get(page).content)
    assert "Another price agreed by all sides" in shown
    [later] = LeaseRow.objects.get().later_prices
    assert later["nanos"] == 2_500_000_000


@pytest.mark.django_db
def test_what_is_declined_or_refused_says_so(world: World) -> None:
    consumer, owner, row = both(world)
    page = f"/leases/{row.lease_id}"

    owner.post(f"{page}/prices", asked("1.50"))
    assert "asks for more" in html(owner.get(page).content)
    owner.post(f"{page}/prices", asked("400.00"))
    world.settle()
    [proposal] = PriceProposalRow.objects.all()
    consumer.post(f"{page}/prices/{proposal.pk}", {"do": "agree"})
    assert "available" in html(consumer.get(page).content)
    dear = {"do": "decline", "why": "more than a new one costs"}
    consumer.post(f"{page}/prices/{proposal.pk}", dear)
    world.settle()

    assert PriceProposalRow.objects.get().state == "declined"
    assert "more than a new one costs" in html(owner.get(page).content)
    assert LeaseRow.objects.get().later_prices == []


@pytest.mark.django_db
def test_an_owner_is_not_told_how_much_money_a_consumer_lacks(world: World) -> None:
    consumer, owner, row = both(world)
    path = f"/api/v1/leases/{row.lease_id}/prices"
    since = (timezone.now() + timedelta(hours=1)).isoformat()
    wish = {"price": "400.00", "since": since}

    made = consumer.post(path, wish, content_type="application/json").json()
    world.settle()
    refused = owner.post(f"{path}/{made['id']}/agree")
    owner.post(f"/leases/{row.lease_id}/prices/{made['id']}", {"do": "agree"})

    assert (refused.status_code, refused.json()["code"]) == (409, "price-not-covered")
    assert {"needed", "spendable"}.isdisjoint(refused.json())
    shown = html(owner.get(f"/leases/{row.lease_id}").content)
    assert "do not cover what the lease would cost" in shown


@pytest.mark.django_db
def test_the_api_says_who_is_asked_and_only_the_sides_of_a_lease_are(world: World) -> None:
    consumer, owner, row = both(world)
    path = f"/api/v1/leases/{row.lease_id}/prices"
    since = (timezone.now() + timedelta(hours=1)).isoformat()

    made = owner.post(path, {"price": "3.00", "since": since}, content_type="application/json")
    assert made.status_code == 201, made.content
    world.settle()
    [mine], [its] = (each.get(path).json()["data"] for each in (owner, consumer))
    assert (mine["waits_for_you"], its["waits_for_you"]) == (False, True)
    own = owner.post(f"{path}/{mine['id']}/agree")
    assert (own.status_code, own.json()["code"]) == (409, "own-proposal")
    assert consumer.post(f"{path}/{mine['id']}/agree").status_code == 200
    world.settle()

    lease = consumer.get(f"/api/v1/leases/{row.lease_id}").json()
    assert lease["price"] == "2.00"
    assert [each["price"] for each in lease["later_prices"]] == ["3.00"]
    assert "reprice" in lease["actions"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("committed_store")
@pytest.mark.parametrize("scheme", FIRST_SCHEME)
def test_prices_on_a_leases_page_are_accessible_and_fit(tmp_path: Path, scheme: str) -> None:
    world = World()
    world.found()
    consumer, owner, row = both(world)
    page_of = f"/leases/{row.lease_id}"
    owner.post(f"{page_of}/prices", asked("2.50", why="Power is dearer at night"))
    world.settle()
    wrong: dict[str, list[str]] = {}
    with (
        served(tmp_path / "site.log") as address,
        browsing(scheme=scheme) as (context, page, said),
    ):
        for who, client in (("consumer", consumer), ("owner", owner)):
            enter(context, address, client.cookies)
            page.goto(address + page_of)
            if found := [*faults(page, scheme), *said]:
                wrong[who] = found
            said.clear()
        enter(context, address, consumer.cookies)
        page.goto(address + page_of)
        page.get_by_role("button", name="Agree").click()
        page.get_by_text("Another price agreed by all sides").last.wait_for()

    assert wrong == {}
