"""Who finds what in their inbox when something happens to their leases, hosts and months."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

import ledger.telling
import listings.telling
import marketplace.telling
from ledger.commands import closing as months
from ledger.domain.event import Event
from ledger.domain.ids import LeaseId, UserId
from ledger.domain.notices import NEWS_FOR, is_news
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.periods import Period
from ledger.eventstore.port import Expect, NewEvent, load
from ledger.models import InboxRow, Person
from ledger.reacting import follow_policies
from listings.domain.events import GpuQuarantined, HostFellSilent
from marketplace.commands.leases import reclaim_lease
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import (
    LeaseClosed,
    LeaseHardwareFailed,
    LeaseInterrupted,
    MaintenanceNoticed,
    ReclaimRequested,
)
from marketplace.domain.facts.policy_events import (
    QuotaRequestApproved,
    QuotaRequestDeclined,
    QuotaRequested,
)
from marketplace.domain.leases.lease import Lease
from marketplace.models import LeaseRow
from marketplace.telling import OWN_DOING, said_to_consumer
from tests.contracts.stored import example
from tests.pages.bid_form import form as bid_form
from tests.pages.world import BY, CONSUMER, OWNER, PLATFORM, World

pytestmark = pytest.mark.django_db


def told(world: World, slug: str, role: str) -> list[tuple[str, str]]:
    """Return topic and title of what a member finds in their inbox, the oldest first."""
    world.settle()
    person = Person.objects.get(email=f"{role}@{slug}.example")
    rows = InboxRow.objects.filter(user_id=person.id).order_by("position")
    return [(row.topic, row.title) for row in rows]


def add(world: World, stream: str, *events: Event) -> None:
    fresh = [NewEvent(uuid4(), event) for event in events]
    world.store.append(stream, fresh, expected=Expect.ANY, by=BY)
    world.settle()


@pytest.fixture
def lease(world: World) -> LeaseRow:
    """Return a lease of a consumer's on an owner's GPUs."""
    world.member(OWNER, "owner")
    world.list_gpus(0, 1)
    world.member(CONSUMER, "consumer").post("/bids/new", bid_form())
    world.settle()
    return LeaseRow.objects.get()


def test_a_consumer_is_told_of_a_reclaim_and_where_it_leads(world: World, lease: LeaseRow) -> None:
    reclaim_lease(
        world.store,
        lease_id=LeaseId(lease.lease_id),
        owner_id=world.tenant(OWNER),
        by=BY,
        now=datetime.now(UTC),
    )
    [(topic, title)] = told(world, CONSUMER, "consumer")
    assert topic == "reclaim"
    assert "taken back at" in title
    row = InboxRow.objects.get()
    assert row.link == f"/leases/{lease.lease_id}"
    assert "to save what it has" in row.body
    assert row.facts["lease_id"] == str(lease.lease_id)


@pytest.fixture
def folded(world: World, lease: LeaseRow) -> Lease:
    found = load(world.store, Lease, LeaseId(lease.lease_id))
    assert found is not None
    return found


@pytest.mark.parametrize("reason", sorted(close_reasons.REASONS))
def test_an_end_is_told_with_its_reason_unless_it_was_ones_own_doing(
    folded: Lease, reason: int
) -> None:
    closed = replace(example(LeaseClosed), reason=reason, lost_seconds=61)
    said = said_to_consumer(closed, folded)
    if reason in OWN_DOING:
        assert said is None
    else:
        assert said is not None and said.topic == "lease-end"
        assert close_reasons.REASONS[reason] in said.body
        assert "last 2 min was not saved" in said.body


def test_pauses_and_interruptions_and_maintenance_are_told_apart(folded: Lease) -> None:
    pausing = said_to_consumer(replace(example(LeaseInterrupted), pausing=True), folded)
    interrupted = said_to_consumer(replace(example(LeaseInterrupted), pausing=False), folded)
    maintained = said_to_consumer(example(MaintenanceNoticed), folded)
    assert pausing is not None and pausing.topic == "pause"
    assert "goes on by itself" in pausing.body
    assert interrupted is not None and interrupted.topic == "reclaim"
    assert maintained is not None and maintained.topic == "maintenance"
    assert said_to_consumer(example(ReclaimRequested), folded) is None, "told when announced"


def test_an_owner_is_told_of_silence_faults_and_what_they_cost(
    world: World, lease: LeaseRow
) -> None:
    now = datetime.now(UTC)
    add(
        world,
        f"host-{world.host_id}",
        HostFellSilent(host_id=world.host_id, heard_at=now, at=now),
        replace(
            example(GpuQuarantined), host_id=world.host_id, gpu_uuid="GPU-3", at=now, detail="a\nb"
        ),
    )
    failed = replace(
        example(LeaseHardwareFailed),
        lease_id=LeaseId(lease.lease_id),
        owner_id=world.tenant(OWNER),
        host_id=world.host_id,
        reason=close_reasons.GPU_LOST,
        failed_at=now,
        at=now,
    )
    add(world, f"lease-{lease.lease_id}", failed)
    found = told(world, OWNER, "owner")
    assert [topic for topic, _ in found] == ["health"] * 3
    titles = {title for _, title in found}
    assert "aurora-1 is not heard any more" in titles
    assert "A GPU of aurora-1 is withheld" in titles
    assert "A lease on your GPUs ends because of its host" in titles


def test_who_asked_for_quota_is_told_what_was_decided(world: World) -> None:
    world.member(CONSUMER, "consumer")
    now, person = datetime.now(UTC), Person.objects.get(email=f"consumer@{CONSUMER}.example")
    asked = replace(
        example(QuotaRequested),
        market="main",
        tenant_id=world.tenant(CONSUMER),
        subscriber_id=world.unit_id,
        user_id=UserId(person.id),
        gpu_class="any",
        at=now,
    )
    other = replace(asked, request_id=uuid4())
    add(
        world,
        "governance-main",
        asked,
        other,
        replace(example(QuotaRequestApproved), market="main", request_id=asked.request_id, at=now),
        replace(example(QuotaRequestDeclined), market="main", request_id=other.request_id, at=now),
    )
    assert told(world, CONSUMER, "consumer") == [
        ("quota", "Your request for 7 GPUs (any) was approved"),
        ("quota", "Your request for 7 GPUs (any) was declined"),
    ]


def test_finance_is_told_of_months(world: World) -> None:
    world.member(PLATFORM, "finance")
    now = datetime.now(UTC)
    period, joan, oscar = Period.of(now.replace(day=1) - timedelta(days=1)), uuid4(), uuid4()
    months.soft_close_period(world.store, period, user_id=UserId(joan), by=BY, now=now)
    months.close_period(world.store, period, checks=[], user_id=UserId(joan), by=BY, now=now)
    months.ask_to_reopen_period(
        world.store, period, reason="a wrong rate", user_id=UserId(joan), by=BY, now=now
    )
    months.approve_reopening(world.store, period, user_id=UserId(oscar), by=BY, now=now)
    assert told(world, PLATFORM, "finance") == [
        ("month", f"{period} is closed"),
        ("month", f"Somebody asks to open {period} again"),
        ("month", f"{period} is open again"),
    ]
    assert InboxRow.objects.filter(tenant_id=PLATFORM_ID).count() == 3


def test_nobody_is_told_of_what_is_no_news(world: World, lease: LeaseRow) -> None:
    now = datetime.now(UTC)
    assert is_news(now, lambda: now)
    assert not is_news(now - NEWS_FOR, lambda: now)
    assert not is_news(now, None)
    quiet = [
        *ledger.telling.policies(clock=None),
        *listings.telling.policies(clock=None),
        *marketplace.telling.policies(clock=None),
    ]
    add(
        world,
        f"host-{world.host_id}",
        HostFellSilent(host_id=world.host_id, heard_at=now, at=now - 2 * NEWS_FOR),
    )
    follow_policies(world.store, quiet)
    assert told(world, OWNER, "owner") == []
