"""What moved home from clouds, why, and whose policy it was, on pages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from bursting.models import HomeMoveRow
from ledger.domain.parties import PLATFORM_ID
from tests.pages.browser import browsing, enter, faults, served
from tests.pages.leased import leased
from tests.pages.world import CONSUMER, PLATFORM, World


def moved(world: World, lease_id: UUID, **changed: Any) -> HomeMoveRow:
    """Note that the work of a lease moved home, as its projection would."""
    said = {
        "bid_id": uuid4(),
        "lease_id": lease_id,
        "instance_id": uuid4(),
        "tenant_id": world.tenant(CONSUMER),
        "owner_id": PLATFORM_ID,
        "number": 1,
        "gpus": 1,
        "seconds": 36_000,
        "limit_nanos": 650_000_000,
        "quoted_nanos": 200_000_000,
        "cloud_nanos": 7_200_000_000,
        "move_nanos": 30_000_000,
        "saved_nanos": 5_170_000_000,
        "currency": "USD",
        "safe_at": world.now,
        "starts_at": world.now + timedelta(minutes=3),
        "asked_at": world.now,
        "ended_at": world.now + timedelta(minutes=4),
        "moved": True,
        "reason": "moved",
        "home_lease_id": uuid4(),
    }
    return HomeMoveRow.objects.create(**{**said, **changed})


def words(response: Any) -> str:
    return " ".join(response.content.decode().split())


@pytest.mark.django_db
def test_a_lease_tells_where_its_work_went_and_what_that_saves(world: World) -> None:
    world.list_gpus(0, 1)
    member = world.member(CONSUMER, "consumer")
    row = leased(world, member, idle_minutes="30")
    move = moved(world, row.lease_id)

    shown = words(member.get(f"/leases/{row.lease_id}"))

    assert "The work moved home" in shown
    assert f"/leases/{move.home_lease_id}" in shown
    assert "Saved: $5.17" in shown and "$7.20 in the cloud" in shown


@pytest.mark.django_db
def test_a_lease_tells_why_its_work_stayed_and_where_it_came_from(world: World) -> None:
    world.list_gpus(0, 1)
    member = world.member(CONSUMER, "consumer")
    row = leased(world, member, idle_minutes="30")
    moved(
        world, row.lease_id, moved=False, reason="place-gone", saved_nanos=None, home_lease_id=None
    )
    moved(world, uuid4(), home_lease_id=row.lease_id, number=2)

    shown = words(member.get(f"/leases/{row.lease_id}"))

    assert "The work stayed in the cloud" in shown
    assert "The place at home fell away before the work came." in shown
    assert "The work came home from a cloud" in shown


@pytest.mark.django_db
def test_the_platform_sees_what_moved_home_this_month(world: World) -> None:
    moved(world, uuid4())

    shown = words(world.member(PLATFORM, "operator").get("/ops/burst"))

    assert "Moved home in" in shown and "Coming home" in shown
    assert "$5.17" in shown


@pytest.mark.django_db
def test_an_operator_sets_the_policy_and_others_read_it(world: World) -> None:
    operator, consumer = world.member(CONSUMER, "operator"), world.member(CONSUMER, "consumer")
    where = "/settings/coming-home"
    assert where in words(consumer.get("/settings"))
    assert "Nothing has moved yet" in words(consumer.get(where))

    assert consumer.post(where, {"moves": "on"}).status_code == 403
    assert operator.post(where, {"moves": "on", "margin_percent": 101}).status_code == 422
    assert operator.post(where, {"moves": "on", "margin_percent": 25}).status_code == 302
    assert 'value="25"' in words(operator.get(where))
    assert operator.post(where, {"margin_percent": ""}).status_code == 302
    assert "Set the policy" not in words(consumer.get(where))


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("committed_store")
def test_in_a_browser_these_pages_have_no_faults(tmp_path: Any) -> None:
    world = World()
    world.found()
    world.list_gpus(0, 1)
    member = world.member(CONSUMER, "consumer")
    row = leased(world, member, idle_minutes="30")
    moved(world, row.lease_id)
    with served(tmp_path / "site.log") as site, browsing() as (context, page, said):
        enter(context, site, world.member(CONSUMER, "operator").cookies)
        wrong = list[str]()
        for where in (f"/leases/{row.pk}", "/settings/coming-home"):
            page.goto(f"{site}{where}")
            page.get_by_text("moved").first.wait_for()
            wrong += faults(page, "light")
        page.context.clear_cookies()
        enter(context, site, world.member(PLATFORM, "operator").cookies)
        page.goto(f"{site}/ops/burst")
        page.get_by_text("Moved home in").wait_for()
        wrong += faults(page, "light") + said
    assert wrong == []
