"""Before a month is closed: its use is rated, what nobody proved is a gap, and all is charged."""

from __future__ import annotations

import pytest

from ledger.domain.periods import Period
from ledger.domain.span import Window
from metering import loops
from metering.models import LateUse
from metering.queries.closing import use_is_charged, use_is_rated
from tests.conftest import NOON
from tests.metering.world import HOST, LEASE, OWNER, World, interval, minute, share

pytestmark = pytest.mark.django_db
ALONE = share(HOST, OWNER, "GPU-a")
MONTH = Period.of(NOON)
BEFORE = Period(2025, 12)


@pytest.fixture
def world_with_money(world: World) -> World:
    world.fund()
    world.hold(Window(NOON, minute(60)), 1)
    world.schedule(ALONE)
    return world


def test_a_lease_that_runs_keeps_its_month_open(world_with_money: World) -> None:
    world = world_with_money
    world.report("started", 0)
    world.send(interval(1, 0, 30))
    world.close(minute(31))

    rated = use_is_rated(MONTH, minute(31))
    assert not rated.passed and "1 leases have windows" in rated.words
    assert use_is_rated(BEFORE, minute(31)).passed


def test_what_no_host_proved_is_a_gap_in_the_end(world_with_money: World) -> None:
    world = world_with_money
    world.report("started", 0)
    world.send(interval(1, 0, 12), interval(2, 15, 60))
    world.report("stopped", 60)
    world.over(minute(60))
    world.close(minute(61))

    rated = use_is_rated(MONTH, minute(61))
    assert rated.passed and "1 gaps without proof" in rated.words
    assert use_is_charged(MONTH, minute(61)).passed


def test_late_use_that_nobody_looked_at_keeps_a_month_open(world_with_money: World) -> None:
    start = int(NOON.timestamp() * 1000)
    LateUse.objects.create(
        lease_id=LEASE, start_ms=start, end_ms=start + 1, arrived_at=NOON, arrivals=1
    )

    assert "1 have late use" in use_is_rated(MONTH, minute(1)).words
    assert use_is_rated(BEFORE, minute(1)).passed


def test_what_is_rated_and_not_charged_keeps_a_month_open(world: World) -> None:
    world.schedule(ALONE, minutes=20)
    world.send(interval(1, 0, 20))
    world.close(minute(21))
    assert not use_is_charged(MONTH, minute(21)).passed
    assert use_is_charged(BEFORE, minute(21)).passed

    world.fund()
    world.hold(Window(NOON, minute(20)), 1)
    loops.charge_what_is_left(world.store, now=minute(30))
    world.follow()

    assert use_is_charged(MONTH, minute(30)).passed
