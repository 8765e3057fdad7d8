"""A lease's page, list and API offer what its state allows, and say loudly that it is cut short."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from ledger.domain.ids import LeaseId
from ledger.eventstore.port import load, record
from marketplace.commands import leases
from marketplace.domain.facts.events import LeaseEvent
from marketplace.domain.leases.actions import ACTIONS, offered, standing_of
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.reclaim import interrupt
from marketplace.models import LeaseRow
from tests.pages.bid_form import form
from tests.pages.reading import html
from tests.pages.world import BY, CONSUMER, OWNER, World

pytestmark = pytest.mark.django_db

BUTTON = {
    "reprice": "Propose another price",
    "end": "End now…",
    "extend": "Ask to extend",
    "sell": "Offer the rest for sale",
    "keep": "Stop the sale",
    "checkpoint": "Note a checkpoint now",
    "reclaim": 'data-dialog="reclaim"',
    "take-first": "Buy it first",
}


@pytest.fixture
def consumer(world: World) -> Client:
    world.list_gpus(0, 1)
    return world.member(CONSUMER, "consumer")


@pytest.fixture
def owner(world: World) -> Client:
    return world.member(OWNER, "owner")


def run(world: World, consumer: Client) -> LeaseId:
    """Let a lease of two hours run."""
    consumer.post("/bids/new", form())
    world.settle()
    row = LeaseRow.objects.get()
    lease_id = LeaseId(row.lease_id)
    leases.advance_lease(
        world.store,
        lease_id=lease_id,
        start_grace=timedelta(minutes=10),
        by=BY,
        now=max(row.starts_at, timezone.now()),
    )
    leases.lease_started(
        world.store, lease_id=lease_id, host_id=world.host_id, by=BY, now=timezone.now()
    )
    world.settle()
    assert LeaseRow.objects.get().state == "active"
    return lease_id


def agrees(world: World, lease_id: LeaseId, *browsers: tuple[Client, str]) -> None:
    """Check that stream, row, API, page and list offer the same to each."""
    lease, now = load(world.store, Lease, lease_id), timezone.now()
    assert lease is not None
    for browser, slug in browsers:
        allowed = offered(standing_of(lease), tenant_id=world.tenant(slug), now=now)
        told = browser.get(f"/api/v1/leases/{lease_id}").json()
        assert told["actions"] == list(allowed)
        [listed] = browser.get("/api/v1/leases").json()["data"]
        assert listed["actions"] == list(allowed)
        page = browser.get(f"/leases/{lease_id}").content.decode()
        shown = {action for action in ACTIONS if BUTTON[action] in page}
        assert shown - {"checkpoint"} == set(allowed) - {"checkpoint"}


def test_what_a_running_lease_offers_is_gone_while_it_is_reclaimed(
    world: World, consumer: Client, owner: Client
) -> None:
    lease_id = run(world, consumer)
    agrees(world, lease_id, (consumer, CONSUMER), (owner, OWNER))
    before = consumer.get(f"/leases/{lease_id}").content.decode()
    assert 'id="notice"' not in before
    assert all(BUTTON[action] in before for action in ("end", "extend", "sell", "checkpoint"))

    owner.post(f"/leases/{lease_id}/reclaim", {"notice_seconds": "600"})
    world.settle()

    agrees(world, lease_id, (consumer, CONSUMER), (owner, OWNER))
    page = html(consumer.get(f"/leases/{lease_id}").content)
    row = LeaseRow.objects.get()
    assert row.stop_at is not None
    assert 'role="alert" id="notice"' in page
    assert "The owner takes these GPUs back" in page
    assert f'datetime="{row.stop_at:%Y-%m-%dT%H:%M:%SZ}"' in page
    assert "is asked to stop 15 s before that, and is killed then" in page
    assert "No checkpoint is noted: save it before then." in page
    assert "You pay for use up to then" in page
    assert "You get $0.73" in page, "a tenth of 110 minutes of 2 GPUs at 2.00"
    assert "Ask to extend" not in page
    assert "Offer the rest for sale" not in page
    assert "End now…" in page, "a consumer may leave at any time, and is still paid"
    assert "ends in" not in page
    theirs = owner.get(f"/leases/{lease_id}").content.decode()
    assert 'role="status" id="notice"' in theirs
    assert "You take these GPUs back" in theirs
    assert "You pay $0.73" in theirs


def test_a_lease_that_is_ending_offers_nothing_but_says_so(
    world: World, consumer: Client, owner: Client
) -> None:
    lease_id = run(world, consumer)
    consumer.post(f"/leases/{lease_id}/end")
    world.settle()

    assert LeaseRow.objects.get().state == "ending"
    agrees(world, lease_id, (consumer, CONSUMER), (owner, OWNER))
    page = consumer.get(f"/leases/{lease_id}").content.decode()
    assert "The work is being stopped" in page
    assert "The consumer ended the lease." in page
    for action in ("end", "extend", "sell", "reclaim"):
        assert BUTTON[action] not in page
    assert "ends in" not in page
    listed = consumer.get("/leases").content.decode()
    assert "in 1 h" not in listed, "its right has ended"


def test_a_closed_lease_costs_no_more_than_it_did(world: World, consumer: Client) -> None:
    lease_id = run(world, consumer)
    now = timezone.now()
    consumer.post(f"/leases/{lease_id}/end")
    leases.advance_lease(
        world.store,
        lease_id=lease_id,
        start_grace=timedelta(minutes=10),
        by=BY,
        now=now + timedelta(hours=1),
    )
    world.settle()

    row = LeaseRow.objects.get()
    assert row.state == "closed"
    page = consumer.get(f"/leases/{lease_id}").content.decode()
    assert "at most $8.00" not in page
    assert "$4.00" not in page, "the clock looked an hour later: that is charged to nobody"
    agrees(world, lease_id, (consumer, CONSUMER))


def test_an_interruption_is_the_markets_and_not_the_owners(world: World, consumer: Client) -> None:
    lease_id = run(world, consumer)
    now = timezone.now()
    stop_at = now + timedelta(minutes=20)

    def cut(lease: Lease | None) -> list[LeaseEvent]:
        assert lease is not None
        return interrupt(lease, in_favour_of=LeaseId(uuid4()), stop_at=stop_at, now=now)

    record(world.store, Lease, lease_id, cut, by=BY)
    world.settle()

    page = consumer.get(f"/leases/{lease_id}").content.decode()
    assert "A firm bid takes these GPUs" in page
    told = consumer.get(f"/api/v1/leases/{lease_id}").json()["cut"]
    assert told["by"] == "market"
    agrees(world, lease_id, (consumer, CONSUMER))


def test_a_lease_reclaimed_before_its_start_is_told_that_it_does_not_begin(
    world: World, consumer: Client, owner: Client
) -> None:
    later = timezone.now() + timedelta(hours=3)
    consumer.post("/bids/new", form(earliest_start=f"{later:%Y-%m-%dT%H:%M}"))
    world.settle()
    lease_id = LeaseId(LeaseRow.objects.get().lease_id)
    owner.post(f"/leases/{lease_id}/reclaim", {"notice_seconds": "600"})
    world.settle()

    page = consumer.get(f"/leases/{lease_id}").content.decode()
    assert LeaseRow.objects.get().state == "scheduled"
    assert "The lease does not begin." in page
    assert "Ask to extend" not in page
    agrees(world, lease_id, (consumer, CONSUMER), (owner, OWNER))


def test_heading_and_terms_follow_an_extension_without_reload(
    world: World, consumer: Client
) -> None:
    lease_id = run(world, consumer)
    ends_at = LeaseRow.objects.get().ends_at + timedelta(hours=1)
    until = f"{timezone.localtime(ends_at):%Y-%m-%dT%H:%M}"
    answer = consumer.post(f"/leases/{lease_id}/extend", {"token": str(lease_id), "ends_at": until})
    assert answer.status_code == 302, answer.content
    world.settle()

    row = LeaseRow.objects.get()
    part = consumer.get(f"/leases/{lease_id}/state").content.decode()
    assert f"{row.ends_at:%Y-%m-%dT%H:%M:%SZ}" in part
    for name in ("lead", "terms"):
        assert f'id="{name}"' in part
    assert part.count("hx-swap-oob") >= 2


def test_forms_are_replaced_only_when_others_are_due(
    world: World, consumer: Client, owner: Client
) -> None:
    lease_id = run(world, consumer)
    shown = "end extend sell checkpoint reprice"
    same = consumer.get(f"/leases/{lease_id}/state", {"shown": shown}).content.decode()
    assert 'id="forms"' not in same, "somebody may be typing there"

    owner.post(f"/leases/{lease_id}/reclaim", {"notice_seconds": "600"})
    world.settle()

    other = consumer.get(f"/leases/{lease_id}/state", {"shown": shown}).content.decode()
    assert 'id="forms"' in other
    assert "Ask to extend" not in other


def test_what_is_not_offered_is_refused(world: World, consumer: Client, owner: Client) -> None:
    lease_id = run(world, consumer)
    owner.post(f"/leases/{lease_id}/reclaim", {"notice_seconds": "600"})
    world.settle()
    url = f"/api/v1/leases/{lease_id}"
    later = (timezone.now() + timedelta(hours=5)).isoformat()

    asked: list[tuple[str, dict[str, Any], str]] = [
        ("extension", {"ends_at": later}, "reclaim-under-way"),
        ("resale", {"floor": "2.00"}, "reclaim-under-way"),
    ]
    for path, body, code in asked:
        answer = consumer.post(f"{url}/{path}", body, "application/json")
        assert (answer.status_code, answer.json()["code"]) == (409, code)


def test_who_may_only_look_is_offered_nothing(world: World, consumer: Client) -> None:
    lease_id = run(world, consumer)
    auditor = world.member(CONSUMER, "auditor")

    assert auditor.get(f"/api/v1/leases/{lease_id}").json()["actions"] == []
    page = auditor.get(f"/leases/{lease_id}").content.decode()
    assert not any(button in page for button in BUTTON.values())
