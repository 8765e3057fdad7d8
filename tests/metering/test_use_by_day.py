"""Sums by day are what was rated and corrected, and stay when samples are dropped."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from django.utils import timezone

from ledger.domain.span import Window
from ledger.eventstore.memory import MemoryStore
from metering.models import DayRow, Interval
from metering.queries import usage
from tests.access.conftest import admit
from tests.conftest import NOON
from tests.metering.world import (
    CONSUMING,
    HOST,
    MINUTE,
    NOSY,
    OTHER_HOST,
    OTHER_OWNING,
    OWNING,
    World,
    interval,
    minute,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    """A lease over midnight, of which both days are rated."""
    world = World(MemoryStore())
    world.fund()
    world.hold(Window(NOON, minute(24 * 60)), 2)
    world.schedule(minutes=24 * 60)
    for host_id, uuid in ((OTHER_HOST, "GPU-b"), (HOST, "GPU-a")):
        sent = [interval(hour + 1, 60 * hour, 60 * hour + 60, uuid) for hour in range(24)]
        world.send(*sent, now=minute(24 * 60), host_id=host_id)
    world.over(minute(24 * 60))
    world.close(minute(24 * 60 + 1), window_seconds=3_600)
    return world


def test_each_gpu_has_a_sum_for_each_day_and_they_add_up_to_what_is_charged(world: World) -> None:
    rows = list(usage.days(CONSUMING))

    assert [(row.day, row.gpu_uuid) for row in rows] == [
        (date(2026, 1, day), f"GPU-{name}") for day in (5, 6) for name in "ab"
    ]
    assert [row.granted_ms for row in rows] == [12 * 60 * MINUTE] * 4
    assert sum(row.busy_ms or 0 for row in rows) == 24 * 60 * MINUTE
    rated = usage.use_so_far(CONSUMING, rows[0].lease_id)
    assert sum(row.granted_ms for row in rows) == rated.granted_ms


def test_they_stay_when_samples_are_dropped(world: World) -> None:
    before = list(DayRow.objects.order_by("key").values())
    Interval.objects.all().delete()

    world.close(minute(25 * 60), window_seconds=3_600)

    assert list(DayRow.objects.order_by("key").values()) == before


def test_what_is_corrected_is_added_and_an_unknown_part_makes_a_day_unknown() -> None:
    world = World(MemoryStore())
    world.fund()
    world.schedule(minutes=120)
    world.report("started", 0)
    world.send(interval(1, 0, 30), interval(2, 40, 60, busy_ms=None), now=minute(60))
    world.close(minute(400), window_seconds=3_600)
    assert usage.days(OWNING).get().granted_ms == 50 * MINUTE
    assert usage.days(OWNING).get().busy_ms is None
    assert usage.days(OWNING).get().gap_ms >= 10 * MINUTE

    world.send(interval(3, 30, 40), now=minute(401))
    world.close(minute(402), window_seconds=3_600)

    assert usage.days(OWNING).get().granted_ms == 60 * MINUTE


def test_an_owner_sees_its_own_gpus_and_others_nothing(world: World) -> None:
    assert {row.gpu_uuid for row in usage.days(OWNING)} == {"GPU-a"}
    assert {row.gpu_uuid for row in usage.days(OTHER_OWNING)} == {"GPU-b"}
    assert not usage.days(NOSY).exists()
    assert not usage.days(CONSUMING, since=date(2026, 1, 7)).exists()
    assert usage.days(CONSUMING, since=date(2026, 1, 6)).count() == 2


@pytest.mark.parametrize("days", ["0", "367", "x", "1.5", "-1"])
def test_days_out_of_range_are_refused(days: str) -> None:
    answer = admit("ada-labs", "owner").get(f"/api/v1/usage/days?days={days}")

    assert (answer.status_code, answer.json()["code"]) == (422, "days-out-of-range")


def test_the_last_days_are_told_over_the_api(world: World) -> None:
    caller = admit("ada-labs", "owner")
    today = timezone.now().date()
    [row] = DayRow.objects.all()[:1]
    for back in (0, 30, 31):
        day = today - timedelta(days=back)
        row.pk = row.key = f"{day}"
        row.day, row.tenant_id, row.owner_id = day, caller.tenant_id, caller.tenant_id
        row.save(force_insert=True)

    told = caller.get("/api/v1/usage/days").json()["data"]

    assert [each["day"] for each in told] == [str(today - timedelta(days=30)), str(today)]
    assert told[0]["granted_ms"] == row.granted_ms
    assert len(caller.get("/api/v1/usage/days?days=32").json()["data"]) == 3
