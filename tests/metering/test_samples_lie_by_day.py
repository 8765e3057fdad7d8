"""The table of intervals is in parts by day: made ahead, never in the way, dropped when old."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from config.database import embedded
from config.operations.health import room_for_samples
from metering.domain.instants import millis_down
from metering.ingest.samples import SampleConflict
from metering.models import Interval, LateUse, MeterRow, OldPart, Taken
from metering.parts import DAY_MS, DAYS_AHEAD, days_without_part, parts, see_to_parts
from tests.metering.world import BOOT, HOST, LEASE, World, interval, minute

pytestmark = pytest.mark.django_db

KEPT = timedelta(days=37)


def day_of(moment: datetime) -> int:
    return millis_down(moment) // DAY_MS * DAY_MS


def put(end_ms: int, seq: int = 1) -> None:
    """An interval as it would be stored, of any time."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO metering_interval (host_id, boot_id, seq, lease_id, gpu_uuid, start_ms,"
            " end_ms, late_ms, received_at) VALUES (%s, %s, %s, %s, 'GPU-a', %s, %s, 0, now())",
            [HOST, BOOT, seq, LEASE, end_ms - 1_000, end_ms],
        )


def part_of(end_ms: int) -> str:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tableoid::regclass::text FROM metering_interval WHERE end_ms = %s", [end_ms]
        )
        [(name,)] = cursor.fetchall()
    return str(name)


@pytest.fixture
def old() -> str:
    """Return the part of a day that lies forty days back; there is none before it."""
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE metering_interval_before")
        day = day_of(timezone.now() - timedelta(days=39))
        cursor.execute("SELECT metering_make_part(%s)", [day])
    put(day + 5_000)
    return part_of(day + 5_000)


def test_the_next_days_have_parts_before_anything_comes_and_again_changes_nothing() -> None:
    assert room_for_samples().ok
    now = timezone.now() + timedelta(days=20)

    assert see_to_parts(now=now, kept=KEPT) == DAYS_AHEAD + 2

    assert days_without_part(now=now, ahead=DAYS_AHEAD) == []
    assert see_to_parts(now=now, kept=KEPT) == 0
    put(day_of(now + timedelta(days=3)))
    assert (
        part_of(day_of(now + timedelta(days=3)))
        == f"metering_interval_{now + timedelta(days=3):%Y%m%d}"
    )


def test_what_came_while_there_was_no_part_is_moved_into_its_own() -> None:
    day = timezone.now() + timedelta(days=2)
    end_ms = day_of(day) + 7
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE metering_interval_{day:%Y%m%d}")
    put(end_ms)
    assert part_of(end_ms) == "metering_interval_other"
    assert not room_for_samples().ok

    see_to_parts(now=timezone.now(), kept=KEPT)

    assert part_of(end_ms).startswith("metering_interval_2")
    assert Interval.objects.count() == 1


def test_an_old_part_is_dropped_once_it_was_due_for_a_day(old: str) -> None:
    now = timezone.now()
    see_to_parts(now=now, kept=KEPT)
    see_to_parts(now=now + timedelta(hours=23), kept=KEPT)
    assert Interval.objects.count() == 1

    see_to_parts(now=now + timedelta(days=1), kept=KEPT)

    assert old not in [part.name for part in parts()]
    assert Interval.objects.count() == 0


def test_a_clock_that_was_far_ahead_for_a_moment_drops_nothing(old: str) -> None:
    now = timezone.now()
    see_to_parts(now=now + timedelta(days=30), kept=KEPT)

    see_to_parts(now=now, kept=timedelta(days=3_650))

    assert not OldPart.objects.exists()
    assert Interval.objects.count() == 1
    with connection.cursor() as cursor:  # nor does one that stays ahead: the database looks itself
        cursor.execute("SELECT metering_drop_part(%s)", [f"metering_interval_{now:%Y%m%d}"])
        assert cursor.fetchone() == ("it may still be corrected by",)


def test_a_part_stays_while_a_lease_in_it_is_not_rated_or_late_use_is_not_looked_at(
    old: str, world: World
) -> None:
    now = timezone.now()
    world.schedule(starts_at=now - timedelta(days=41))
    assert MeterRow.objects.get().state == "open"

    assert dropped(old, now) is False
    MeterRow.objects.update(state="closed")
    late = LateUse.objects.create(lease_id=LEASE, start_ms=0, end_ms=1, arrived_at=now, arrivals=1)
    assert dropped(old, now) is False
    late.delete()
    assert dropped(old, now) is True


def dropped(name: str, now: datetime) -> bool:
    see_to_parts(now=now, kept=KEPT)
    see_to_parts(now=now + timedelta(days=1), kept=KEPT)
    return name not in [part.name for part in parts()]


def test_a_number_is_taken_once_also_after_its_sample_was_dropped(world: World) -> None:
    world.schedule()
    world.send(interval(1, 0, 1))
    Interval.objects.all().delete()

    with pytest.raises(SampleConflict):
        world.send(interval(1, 0, 1), now=minute(120))
    assert world.send(interval(1, 0, 1), now=minute(120) + timedelta(days=40)) == 1

    assert Interval.objects.count() == 0


def test_the_parts_of_before_go_on_as_they_are_and_back() -> None:
    executor = MigrationExecutor(connection)
    executor.migrate([("metering", "0007_energy")])
    for seq in (1, 2, 3, 7):
        put(1_700_000_000_000 + seq, seq)
    health = (
        "INSERT INTO metering_healthevent VALUES (%s, %s, 4, %s, NULL, 'xid', now(), '', now())"
    )
    with connection.cursor() as cursor:
        cursor.execute(health, [HOST, BOOT, uuid4()])
    before = list(Interval.objects.order_by("seq").values_list())

    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes("metering"))

    assert list(Interval.objects.order_by("seq").values_list()) == before
    assert Taken.objects.get().spans == [1, 5, 7, 8]
    assert part_of(1_700_000_000_001) == "metering_interval_before"
    assert days_without_part(now=timezone.now(), ahead=0) == []


@pytest.fixture
def two(
    transactional_db: None,
) -> Iterator[tuple[psycopg.Connection[Any], psycopg.Connection[Any]]]:
    name = str(connection.settings_dict["NAME"])
    with (
        closing(embedded.as_owner(settings.HOME, name)) as one,
        closing(embedded.as_owner(settings.HOME, name)) as other,
    ):
        yield one, other
        other.execute(f"DROP TABLE IF EXISTS metering_interval_{_FAR:%Y%m%d}")


_FAR = timezone.now() + timedelta(days=30)
_MAKE = "SELECT metering_make_part(%s)"


@pytest.mark.skipif(bool(settings.ENV.database_url), reason="the server is not ours")
def test_who_is_killed_in_the_middle_leaves_nothing_half_made_and_another_goes_on(
    two: tuple[psycopg.Connection[Any], psycopg.Connection[Any]],
) -> None:
    one, other = two
    one.autocommit = False
    assert one.execute(_MAKE, [day_of(_FAR)]).fetchone() == (True,)
    other.autocommit = True
    with pytest.raises(psycopg.errors.LockNotAvailable):
        other.execute(_MAKE, [day_of(_FAR)])

    other.execute("SELECT pg_terminate_backend(%s)", [one.info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        one.execute("SELECT 1")

    assert other.execute(_MAKE, [day_of(_FAR)]).fetchone() == (True,)
    assert other.execute(_MAKE, [day_of(_FAR)]).fetchone() == (False,)
