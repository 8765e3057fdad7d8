"""Lists that are longer than a page go on: none ends in silence."""

from __future__ import annotations

import re
from datetime import timedelta
from uuid import UUID

import pytest
from django.test import Client

from bursting.models import BurstInstanceRow
from config.site.parts import paging as parts
from ledger.models import SubscriberRow
from marketplace.models import QuotaRequestRow
from tests.pages.world import CONSUMER, OWNER, PLATFORM, World

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def two_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts.part_of, "__defaults__", (2,))


def whole(client: Client, address: str, name: str) -> str:
    """Return all parts of one list of a page, by following its link to more."""
    seen, asked = "", address
    for _ in range(9):
        page = client.get(asked).content.decode()
        section = page[page.index(f'id="{name}"') :].split("</section>")[0]
        seen += section
        more = re.search(rf'href="(\?[^"]*{name}=\d+)#{name}">More', section)
        if more is None:
            return seen
        asked = address + more[1].replace("&amp;", "&")
    raise AssertionError("it has no end")


def rent(world: World, number: int) -> None:
    BurstInstanceRow.objects.create(
        instance_id=UUID(int=number),
        bid_id=UUID(int=100 + number),
        tenant_id=world.tenant(CONSUMER),
        owner_id=world.tenant(PLATFORM),
        market="main",
        cloud="made-up",
        region="eu",
        zone="eu-1",
        instance_type=f"kind-{number}",
        spot=False,
        gpu_model="H100",
        gpus=8,
        attempt=1,
        price_nanos=1,
        floor_nanos=1,
        worst_nanos=1,
        currency="USD",
        state="running",
        intended_at=world.now + timedelta(seconds=number),
    )


def test_instances_that_were_rented_go_on_and_all_that_run_are_counted(world: World) -> None:
    for number in range(5):
        rent(world, number)

    shown = whole(world.member(PLATFORM, "operator"), "/ops/burst", "instances")

    assert all(shown.count(f"kind-{number},") == 1 for number in range(5))
    assert b"5 instances under way" in world.member(PLATFORM, "operator").get("/ops/burst").content


def test_requests_for_more_go_on(world: World) -> None:
    for number in range(5):
        QuotaRequestRow.objects.create(
            request_id=UUID(int=number),
            tenant_id=world.tenant(CONSUMER),
            subscriber_id=world.unit_id,
            market="main",
            gpu_class="any",
            nominal=1,
            why=f"reason {number}.",
            starts_at=world.now,
            ends_at=world.now + timedelta(hours=1),
            expires_at=world.now + timedelta(hours=1),
            asked_at=world.now + timedelta(seconds=number),
            state="open",
        )

    shown = whole(world.member(CONSUMER, "operator"), "/fairness/policies", "requests")

    assert all(shown.count(f"reason {number}.") == 1 for number in range(5))


def test_every_unit_may_be_chosen_for_a_bid(world: World) -> None:
    for number in range(210):
        SubscriberRow.objects.create(
            subscriber_id=UUID(int=number + 1),
            tenant_id=world.tenant(OWNER),
            title=f"Unit {number}",
            cost_centre="C",
            registered_at=world.now,
        )

    page = world.member(OWNER, "operator", "consumer").get("/bids/new").content.decode()

    assert "Unit 0<" in page and "Unit 209<" in page
