"""Use is charged until the right to the GPUs ended, whenever a clock looks and whatever ran on."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ledger.domain.span import Window
from ledger.eventstore.port import load
from marketplace.commands import leases
from marketplace.domain.facts.events import LeaseInterrupted
from marketplace.domain.leases.lease import Lease
from metering.domain.events import UsageWindowClosed
from metering.models import MeterRow
from metering.queries import usage
from tests.conftest import NOON, SOMEBODY
from tests.metering.world import (
    CONSUMING,
    HOST,
    LEASE,
    MINUTE,
    OWNER,
    World,
    interval,
    minute,
    share,
)

pytestmark = pytest.mark.django_db
GRACE = timedelta(minutes=10)


@pytest.fixture
def running(world: World) -> World:
    world.fund()
    world.hold(Window(NOON, minute(60)), 1)
    world.schedule(share(HOST, OWNER, "GPU-a"))
    world.report("started", 0)
    world.follow()
    return world


def look(world: World, at: int) -> None:
    leases.advance_lease(
        world.store, lease_id=LEASE, start_grace=GRACE, by=SOMEBODY, now=minute(at)
    )
    world.follow()


def billed(world: World) -> float:
    """Return the minutes that are billed."""
    windows = world.events(UsageWindowClosed)
    return sum(gpu.granted_ms for window in windows for gpu in window.gpus) / MINUTE


def billed_minutes(world: World, *, looked_at: int) -> float:
    """Return what is billed if the clock first looks at that minute; the agent is cut off."""
    for at in range(looked_at, 60):
        look(world, at)
    for n in range(50):
        world.send(interval(n + 1, n, n + 1), now=minute(51))
    world.report("stopped", 50)
    world.seen(minute(90))
    world.close(minute(300))
    return billed(world)


def test_time_in_which_files_come_is_no_fault_and_is_not_charged(world: World) -> None:
    world.fund()
    world.hold(Window(NOON, minute(60)), 1)
    world.schedule(share(HOST, OWNER, "GPU-a"))
    look(world, 0)
    world.report("fetching", 1)
    for at in range(2, 41, 6):
        look(world, at)
    world.report("started", 41)
    world.follow()
    for n in range(41, 50):
        world.send(interval(n, n, n + 1), now=minute(51))
    world.report("stopped", 50)
    world.seen(minute(90))
    world.close(minute(300))

    assert billed(world) == 9
    lease = load(world.store, Lease, LEASE)
    assert lease is not None and lease.awaiting == lease.started == frozenset({HOST})


@pytest.mark.parametrize("looked_at", [11, 15, 50])
def test_ended_by_its_consumer_at_minute_10(running: World, looked_at: int) -> None:
    leases.close_lease(running.store, lease_id=LEASE, by=SOMEBODY, now=minute(10))
    assert billed_minutes(running, looked_at=looked_at) == 10


@pytest.mark.parametrize("looked_at", [21, 50])
def test_reclaimed_to_stop_at_minute_11(running: World, looked_at: int) -> None:
    leases.reclaim_lease(running.store, lease_id=LEASE, owner_id=OWNER, by=SOMEBODY, now=minute(10))
    assert billed_minutes(running, looked_at=looked_at) == 11


@pytest.mark.parametrize("looked_at", [21, 50])
def test_interrupted_to_stop_at_minute_11(running: World, looked_at: int) -> None:
    running.tell(
        LeaseInterrupted(
            lease_id=LEASE,
            in_favour_of=LEASE,
            stop_at=minute(11),
            compensations=(),
            at=minute(10),
        )
    )
    assert billed_minutes(running, looked_at=looked_at) == 11


def test_a_window_is_not_closed_beyond_an_end_that_no_clock_has_seen_yet(running: World) -> None:
    """The loop that closes windows is up, and the lease's clock stands still."""
    leases.close_lease(running.store, lease_id=LEASE, by=SOMEBODY, now=minute(12))
    running.send(*(interval(n + 1, n, n + 1) for n in range(50)), now=minute(51))

    running.close(minute(52))
    running.follow()
    running.close(minute(52))

    assert billed(running) == 10
    look(running, 52)
    running.report("stopped", 50)
    running.close(minute(53))
    assert billed(running) == 12


def test_a_row_that_lags_bills_nothing_beyond_the_end(running: World) -> None:
    """The consumer has ended the lease, and no read model has heard of it."""
    running.send(*(interval(n + 1, n, n + 1) for n in range(30)), now=minute(31))
    leases.close_lease(running.store, lease_id=LEASE, by=SOMEBODY, now=minute(12))
    assert MeterRow.objects.get().ends_ms > MeterRow.objects.get().starts_ms + 12 * MINUTE

    running.close(minute(31))

    assert billed(running) == 10


def test_the_cost_so_far_ends_where_the_right_ended(running: World) -> None:
    leases.close_lease(running.store, lease_id=LEASE, by=SOMEBODY, now=minute(10))
    running.follow()
    running.send(*(interval(n + 1, n, n + 1) for n in range(50)), now=minute(51))
    assert usage.use_so_far(CONSUMING, LEASE).granted_ms == 10 * MINUTE
