"""What doctor says of work at its lease's end: what hosts told, and not what the books say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from ledger.access import Actor
from ledger.domain.parties import PLATFORM_ID
from metering.domain.instants import millis_down
from metering.models import AgentContact, MeterRow, WorkReport
from metering.queries.ends import unproved_ends

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
EVERYTHING = Actor(tenant_id=PLATFORM_ID, roles=frozenset({"operator"}), is_platform=True)
TENANT, HOST = UUID(int=1), UUID(int=2)


def lease(*, ended: timedelta, closed_early: bool = False) -> UUID:
    """Record a lease of one host that is over since `ended` ago; return its id."""
    end_ms = millis_down(NOW - ended)
    row = MeterRow.objects.create(
        lease_id=uuid4(),
        tenant_id=TENANT,
        owner_ids=[TENANT],
        shares=[{"host_id": str(HOST), "owner_id": str(TENANT), "gpu_uuids": ["GPU-a"]}],
        gpus=1,
        price_nanos_per_gpu_hour=1,
        currency="USD",
        starts_ms=end_ms - 3_600_000,
        ends_ms=end_ms,
        over_ms=end_ms if closed_early else None,
        ever_starting=True,
        closed_through_ms=end_ms - 3_600_000,
        granted_ms=0,
        captured_nanos=0,
        state="open",
    )
    return row.lease_id


def heard(*, ago: timedelta) -> None:
    AgentContact.objects.create(
        host_id=HOST,
        tenant_id=TENANT,
        agent_version="1",
        hostname="rack-7",
        last_seen_at=NOW - ago,
    )


def told(lease_id: UUID, what: str, *, ago: timedelta) -> None:
    WorkReport.objects.create(
        host_id=HOST,
        report_id=uuid4(),
        lease_id=lease_id,
        what=what,
        at=NOW - ago,
        detail="",
        received_at=NOW - ago,
    )


def doubts() -> list[str]:
    return unproved_ends(EVERYTHING, now=NOW, tolerance=timedelta(minutes=2))


def test_work_that_was_told_to_have_ended_in_time_is_proved() -> None:
    heard(ago=timedelta(hours=3))
    mine = lease(ended=timedelta(hours=2))
    told(mine, "started", ago=timedelta(hours=3))
    told(mine, "stopped", ago=timedelta(hours=2))

    assert doubts() == []


def test_a_host_that_fell_silent_while_its_work_ran_is_named() -> None:
    heard(ago=timedelta(hours=2, minutes=30))
    mine = lease(ended=timedelta(hours=2))
    told(mine, "started", ago=timedelta(hours=3))

    (said,) = doubts()

    assert said.startswith(f"lease {mine}: rack-7 has not told that its work ended (last heard")


def test_a_host_that_never_told_of_a_start_and_fell_silent_is_named() -> None:
    heard(ago=timedelta(hours=2, minutes=30))
    mine = lease(ended=timedelta(hours=2))

    assert doubts()[0].startswith(f"lease {mine}: rack-7 was not heard since before its end")


def test_a_host_that_was_heard_since_and_never_started_the_work_proves_it() -> None:
    heard(ago=timedelta(minutes=1))
    lease(ended=timedelta(hours=2))

    assert doubts() == []


def test_work_that_ran_past_its_end_is_named_with_how_long() -> None:
    heard(ago=timedelta(0))
    mine = lease(ended=timedelta(hours=2))
    told(mine, "started", ago=timedelta(hours=3))
    told(mine, "exited", ago=timedelta(hours=1))

    assert doubts() == [f"lease {mine} on rack-7 ran 3600 s past its end"]


@pytest.mark.parametrize(
    ("ended", "early", "named"),
    [
        (timedelta(minutes=1), False, False),
        (timedelta(minutes=3), False, True),
        (timedelta(minutes=3), True, False),
        (timedelta(minutes=18), True, True),
        (timedelta(days=3), False, False),
    ],
)
def test_a_lease_that_was_cut_short_leaves_its_work_the_longest_grace(
    ended: timedelta, early: bool, named: bool
) -> None:
    heard(ago=timedelta(days=4))
    told(lease(ended=ended, closed_early=early), "started", ago=ended + timedelta(minutes=9))

    assert bool(doubts()) is named
