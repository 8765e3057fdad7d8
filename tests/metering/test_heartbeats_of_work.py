"""Work says that it is alive; a charge for a time in which it was not is contested by itself."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import permutations
from uuid import UUID

import pytest
from django.test import Client

from ledger import disputing
from ledger.domain import account_ids
from ledger.domain.accounts import Account
from ledger.domain.span import Window
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import load
from ledger.following import follow_projections
from ledger.models import DisputeRow
from ledger.projections import PROJECTIONS as LEDGER
from ledger.queries.money import disagreements
from metering.agent.wire import Report, ReportBatch
from metering.comparing import compare_meters
from metering.domain.instants import millis_down
from metering.domain.two_meters import Tolerance
from metering.ingest.heartbeats import HeartbeatUnreadable, forget_heartbeats, take_heartbeats
from metering.ingest.reports import take_reports
from metering.models import Heartbeat, MeterRow, MetersCompared, OutageRow
from metering.queries.two_meters import meters_of
from tests.conftest import NOON, SOMEBODY
from tests.metering.agent_since import agent as agent
from tests.metering.agent_since import since as since
from tests.metering.host_agent import HostAgent
from tests.metering.host_agent import owner as owner
from tests.metering.world import (
    BOOT,
    HOST,
    LEASE,
    MINUTE,
    OTHER_HOST,
    OWNER,
    START,
    World,
    interval,
    minute,
    share,
)

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.metering.routes")]
TWO_PERCENT = Tolerance(ppm=20_000, millis=60_000)
LATER = NOON + timedelta(hours=2)
EARNINGS = account_ids.earnings_account(OWNER, "USD")


@pytest.fixture
def world(store: MemoryStore) -> World:
    """An hour of one GPU, metered by its owner from start to end."""
    world = World(store)
    world.fund()
    world.hold(Window(NOON, minute(60)), 1)
    world.schedule(share(HOST, OWNER, "GPU-a"))
    world.report("started", 0)
    world.send(*(interval(1 + at, at, at + 1) for at in range(60)))
    return world


def beat(*spans: tuple[float, float], source: UUID = LEASE, now: datetime = LATER) -> None:
    """Say so, in minutes after noon."""
    said = [(START + round(a * MINUTE), START + round(b * MINUTE)) for a, b in spans]
    take_heartbeats(LEASE, source, said, starts_ms=START, now=now)


def rated(world: World, *, window_seconds: int = 3600) -> None:
    world.report("exited", 60, exit_code=0)
    world.over(minute(60))
    world.close(minute(62), window_seconds=window_seconds)
    while follow_projections(world.store, LEDGER):
        pass
    world.follow()
    assert disagreements() == []


def compared(world: World, tolerance: Tolerance = TWO_PERCENT) -> int:
    found = compare_meters(world.store, tolerance=tolerance, now=LATER)
    while follow_projections(world.store, LEDGER):
        pass
    assert disagreements() == []
    return found


def seen_missing() -> int:
    return meters_of(MeterRow.objects.get(), Window(NOON, minute(60))).missing_ms


def test_an_owner_that_meters_on_while_the_work_is_gone_is_contested(world: World) -> None:
    beat((0, 30))
    rated(world)

    assert compared(world) == 1
    assert compared(world) == 0

    row = DisputeRow.objects.get()
    assert (row.state, row.opened_by) == ("open", None)
    assert (row.charged_millis, row.used_millis) == (60 * MINUTE, 30 * MINUTE)
    assert "1800 s of 3600 s" in row.reason
    assert MetersCompared.objects.get().is_beyond
    held = load(world.store, Account, EARNINGS)
    assert held is not None and held.held.nanos > 0

    assert disputing.decide_overdue(world.store, now=row.decide_by) == 1
    while follow_projections(world.store, LEDGER):
        pass
    row.refresh_from_db()
    assert row.state == "dismissed" and row.decision.startswith("By rule")


def test_meters_that_agree_within_the_tolerance_contest_nothing(world: World) -> None:
    beat((0, 59.1))
    rated(world)

    assert compared(world) == 0

    found = MetersCompared.objects.get()
    assert (found.missing_ms, found.is_beyond) == (54_000, False)
    assert not DisputeRow.objects.exists()


@pytest.mark.parametrize("window_seconds", [60, 300, 1200])
def test_as_much_is_contested_however_short_usage_windows_are(
    world: World, window_seconds: int
) -> None:
    beat((0, 20), (20.5, 25), (25.5, 30))  # a minute in all is tolerated in an hour, at first
    rated(world, window_seconds=window_seconds)

    while compared(world):
        pass

    rows = DisputeRow.objects.all()
    missing = sum(row.charged_millis - row.used_millis for row in rows)
    assert missing == 31 * MINUTE
    assert len(rows) == len({row.entry_id for row in rows})
    found = MetersCompared.objects.all()
    assert all(row.is_beyond == (row.missing_ms > 0) for row in found)
    last = max(rows, key=lambda row: row.starts_at)
    assert "for 1860 s of 3600 s in an hour" in last.reason, last.reason


@pytest.mark.parametrize("window_seconds", [60, 1200])
def test_a_minute_in_an_hour_is_tolerated_in_any_windows(world: World, window_seconds: int) -> None:
    beat((0, 20), (20.5, 60))
    rated(world, window_seconds=window_seconds)

    assert compared(world) == 0
    assert sum(row.missing_ms for row in MetersCompared.objects.all()) == 30_000
    assert not DisputeRow.objects.exists()


def test_work_without_a_heartbeat_is_as_its_owners_say(world: World) -> None:
    rated(world)

    assert compared(world) == 0
    assert not MetersCompared.objects.exists()


def test_nothing_is_contested_for_a_time_in_which_the_market_was_away(world: World) -> None:
    beat((0, 30))
    OutageRow.objects.create(name="web", starts_at=minute(29), ends_at=minute(61))
    rated(world)

    assert compared(world) == 0


def test_a_comparison_that_was_cut_short_is_made_again_and_contests_once(world: World) -> None:
    beat((0, 30))
    rated(world)
    assert compared(world) == 1
    head = world.store.head()
    MetersCompared.objects.all().delete()

    assert compared(world) == 0

    assert world.store.head() == head
    assert MetersCompared.objects.get().is_beyond


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_spans_come_in_any_order_and_as_often_as_they_like(world: World, order: list[int]) -> None:
    parts = [(0.0, 20.0), (15.0, 30.0), (40.0, 60.0)]
    for at in (*order, *order):
        beat(parts[at])

    assert seen_missing() == 10 * MINUTE
    assert Heartbeat.objects.count() == 1


def test_what_the_agent_passes_on_counts_for_its_own_host(store: MemoryStore) -> None:
    world = World(store)
    world.schedule()
    world.send(interval(1, 0, 60))
    world.send(interval(1, 0, 60, "GPU-b"), host_id=OTHER_HOST, boot_id=UUID(int=62))
    report = Report(
        report_id=UUID(int=90),
        lease_id=LEASE,
        what="alive",
        at=minute(45),
        since=minute(0),
        exit_code=None,
        detail="",
    )
    batch = ReportBatch(boot_id=BOOT, reports=(report,))
    for _ in range(2):
        take_reports(store, world.grants, batch, host_id=HOST, by=SOMEBODY, now=LATER)

    seen = meters_of(MeterRow.objects.get(), Window(NOON, minute(60)))

    assert {each.gpu_uuid: each.has_heartbeat for each in seen.gpus} == {
        "GPU-a": True,
        "GPU-b": False,
    }
    assert seen.missing_ms == 15 * MINUTE


def test_over_midnight_a_span_is_kept_by_day_and_old_days_go(world: World) -> None:
    beat((0, 20 * 60), now=NOON + timedelta(days=1))
    assert Heartbeat.objects.count() == 2

    later = NOON + timedelta(days=63)
    assert forget_heartbeats(now=later, kept=timedelta(days=62)) == 1
    assert forget_heartbeats(now=later, kept=timedelta(days=62)) == 0


@pytest.mark.parametrize("span", [(5, 5), (6, 5), (300, 301)])
def test_a_span_that_is_none_or_too_far_ahead_is_refused(
    world: World, span: tuple[int, int]
) -> None:
    with pytest.raises(HeartbeatUnreadable):
        beat(span)
    assert not Heartbeat.objects.exists()


def test_it_is_sent_under_the_right_of_the_consumer_alone(
    agent: HostAgent, since: datetime
) -> None:
    at = millis_down(since)
    body = {"spans": [{"from_ms": at, "until_ms": at + 60_000}]}
    path = f"/api/v1/leases/{agent.lease_id}/heartbeats"

    assert agent.call("POST", path, body).status_code in (403, 404)
    assert Client().post(path, body, content_type="application/json").status_code == 401
    assert not Heartbeat.objects.exists()
