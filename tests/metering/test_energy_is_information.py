"""Energy goes from what agents send to windows, answers and exports, and changes no charge."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ledger.domain.periods import Period
from ledger.domain.span import Window
from ledger.exports.charges import charges
from ledger.exports.focus import row_of
from ledger.following import follow_projections
from ledger.projections.money import MONEY
from metering.domain.rollup import WATTS_MAX, Sampled, roll_up
from metering.queries import usage
from tests.conftest import NOON
from tests.metering.world import CONSUMING, HOST, LEASE, OWNER, World, interval, minute, share

pytestmark = pytest.mark.django_db
ALONE = share(HOST, OWNER, "GPU-a")


def of_lease(world: World, *energies: int | None) -> None:
    """Have a lease of an hour whose GPU took so much in each ten minutes."""
    world.fund()
    world.hold(Window(NOON, minute(60)), 1)
    world.schedule(ALONE)
    for number, energy_mj in enumerate(energies):
        world.send(interval(number + 1, number * 10, number * 10 + 10, energy_mj=energy_mj))


def test_the_energy_of_a_window_is_told_and_costs_nothing(world: World) -> None:
    of_lease(world, 180_000_000, 60_000_000)
    world.close(minute(21))

    found = usage.use_so_far(CONSUMING, LEASE)
    assert found.energy_mj == 240_000_000
    assert [row.energy_mj for row in usage.usage_windows(CONSUMING, LEASE)] == [
        180_000_000,
        60_000_000,
    ]
    assert found.charged == found.cost


def test_energy_that_is_not_known_is_null_and_never_0(world: World) -> None:
    of_lease(world, 180_000_000, None)
    world.close(minute(21))

    assert usage.use_so_far(CONSUMING, LEASE).energy_mj is None
    assert [row.energy_mj for row in usage.usage_windows(CONSUMING, LEASE)] == [180_000_000, None]


def test_an_energy_that_no_card_takes_is_as_good_as_none() -> None:
    most = Sampled(0, 1_000, energy_mj=1_000 * WATTS_MAX)

    assert roll_up([most], window=(0, 1_000)).energy_mj == 1_000 * WATTS_MAX
    beyond = most._replace(energy_mj=1_000 * WATTS_MAX + 1)
    assert roll_up([beyond], window=(0, 1_000)).energy_mj is None


def test_late_use_brings_its_energy(world: World) -> None:
    of_lease(world, 180_000_000)
    world.close(minute(20) + timedelta(hours=2))
    world.send(interval(7, 10, 20, energy_mj=30_000_000), now=NOON + timedelta(hours=3))
    world.close(NOON + timedelta(hours=3))

    (late,) = usage.corrections(CONSUMING, LEASE)
    assert late.energy_mj == 30_000_000
    assert usage.use_so_far(CONSUMING, LEASE).energy_mj == 210_000_000


def test_energy_stands_beside_the_charge_in_exports(world: World) -> None:
    of_lease(world, 180_000_000, None)
    world.close(minute(21))
    follow_projections(world.store, [MONEY])

    period = Period.of(NOON)
    rows = [
        row_of(charge, period=period)
        for charge in charges(CONSUMING, period=period, position=world.store.head())
        if charge.use is not None
    ]
    assert [row.get("x_EnergyMillijoules") for row in rows] == ["180000000", None]
