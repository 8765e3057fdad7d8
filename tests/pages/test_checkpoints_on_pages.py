"""What is kept and lost of work that is cut short, on pages and in the API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from ledger.domain.ids import HostId, LeaseId
from marketplace.commands import leases
from marketplace.models import BidRow, LeaseRow
from tests.pages.bid_form import form
from tests.pages.world import BY, CONSUMER, OWNER, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def consumer(world: World) -> Client:
    world.list_gpus(0, 1)
    return world.member(CONSUMER, "consumer")


def run(world: World, consumer: Client, **changed: Any) -> LeaseRow:
    """Place a bid that is to be resumed, and let its lease start."""
    consumer.post("/bids/new", form(resume="on", **changed))
    world.settle()
    row = LeaseRow.objects.get()
    lease_id = LeaseId(row.lease_id)
    leases.advance_lease(
        world.store,
        lease_id=lease_id,
        start_grace=timedelta(minutes=10),
        by=BY,
        now=row.starts_at,
    )
    for host_id in row.host_ids:
        leases.lease_started(
            world.store, lease_id=lease_id, host_id=HostId(host_id), by=BY, now=row.starts_at
        )
    world.settle()
    return LeaseRow.objects.get()


def lose(world: World, row: LeaseRow, **later: float) -> None:
    """Let the host lose the work some time later."""
    leases.lease_failed(
        world.store,
        lease_id=LeaseId(row.lease_id),
        host_id=HostId(row.host_ids[0]),
        detail="power",
        by=BY,
        now=row.starts_at + timedelta(**later),
    )
    world.settle()


def test_a_consumer_notes_a_checkpoint_and_sees_it(
    world: World, consumer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = run(world, consumer)
    monkeypatch.setattr(timezone, "now", lambda: row.starts_at + timedelta(minutes=10))
    before = consumer.get(f"/leases/{row.lease_id}").content.decode()

    answer = consumer.post(f"/leases/{row.lease_id}/checkpoint")
    world.settle()
    after = consumer.get(f"/leases/{row.lease_id}").content.decode()

    assert "none: work would start over" in before
    assert answer.status_code == 302
    assert "Checkpoint noted" in after
    assert "none: work would start over" not in after
    shown = consumer.get(f"/api/v1/leases/{row.lease_id}").json()
    assert shown["checkpoint_at"] is not None
    assert (shown["kept_seconds"], shown["lost_seconds"]) == (None, None)


def test_an_owner_does_not_note_checkpoints_of_others(world: World, consumer: Client) -> None:
    row = run(world, consumer)
    owner = world.member(OWNER, "owner")

    assert owner.post(f"/leases/{row.lease_id}/checkpoint").status_code == 403
    answer = owner.post(f"/api/v1/leases/{row.lease_id}/checkpoint", {}, "application/json")
    assert answer.status_code == 403
    assert LeaseRow.objects.get().checkpoint_at is None


def test_what_was_kept_and_lost_is_on_the_lease_and_its_chain(
    world: World, consumer: Client
) -> None:
    row = run(world, consumer, saves_minutes="20")
    lose(world, row, minutes=50)

    shown = consumer.get(f"/api/v1/leases/{row.lease_id}").json()
    page = consumer.get(f"/leases/{row.lease_id}").content.decode()
    rest = BidRow.objects.get(chain_number=2)
    chain = consumer.get(f"/bids/{rest.bid_id}").content.decode()

    assert (shown["kept_seconds"], shown["lost_seconds"]) == (2_400, 600)
    assert shown["checkpoint_seconds"] == 1_200
    assert "Saved and lost work" in page
    assert rest.duration_seconds == 7_200 - 2_400
    assert "(40 min kept, 10 min lost)" in chain


def test_a_checkpoint_outside_of_the_work_is_refused(world: World, consumer: Client) -> None:
    row = run(world, consumer)

    answer = consumer.post(
        f"/api/v1/leases/{row.lease_id}/checkpoint",
        {"safe_at": "2030-01-01T00:00:00Z"},
        "application/json",
    )

    assert (answer.status_code, answer.json()["code"]) == (422, "checkpoint-out-of-lease")
