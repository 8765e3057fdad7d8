"""Use of a lease whose price changes: cut at that moment, each part charged at its price."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.commands.repricing import repricing_hold
from ledger.domain.agreed_rates import RateSince, cost
from ledger.domain.events import UsageCaptured
from ledger.domain.money import Rate
from ledger.domain.span import Window
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.together import record_together
from marketplace.domain.facts.events import LeaseRepriced
from metering.domain.events import UsageCorrected, UsageWindowClosed
from metering.queries import usage
from tests.conftest import NOON, SOMEBODY
from tests.emptying import empty_tables
from tests.metering.world import (
    CONSUMING,
    FUNDS,
    HOLD,
    HOST,
    LEASE,
    OWNER,
    PRICE,
    World,
    interval,
    minute,
    share,
)

pytestmark = pytest.mark.django_db

ALONE = share(HOST, OWNER, "GPU-a")
DEARER = Rate(2_500_000_007)
SINCE = 25.5
"""Minutes after noon: within the window of ten minutes that begins at 20."""


def world_at_two_prices(world: World, *, since: float = SINCE) -> World:
    """A lease of one GPU for an hour from noon on, whose price changes."""
    world.fund()
    world.hold(Window(NOON, minute(60)), 2)
    world.schedule(ALONE)
    part = repricing_hold(
        account_id=FUNDS,
        hold_id=HOLD,
        before=PRICE,
        price=DEARER,
        since=minute(since),
        money=DEARER.charge(Window(NOON, minute(60)).millis),
        by=SOMEBODY,
        now=NOON,
    )
    record_together(world.store, [part])
    world.tell(
        LeaseRepriced(
            lease_id=LEASE,
            market="main",
            proposal_id=uuid4(),
            before=PRICE,
            price=DEARER,
            since=minute(since),
            at=NOON,
        )
    )
    return world


def due(since: float = SINCE) -> int:
    later = [RateSince(minute(since), DEARER)]
    return cost(PRICE, later, Window(NOON, minute(60)), 1).nanos


def charges(world: World) -> list[UsageCaptured]:
    stream = world.store.read_stream(f"account-{FUNDS}")
    return [each.event for each in stream if isinstance(each.event, UsageCaptured)]


def test_a_window_ends_where_the_price_changes(world: World) -> None:
    world_at_two_prices(world)
    world.report("started", 0)
    world.send(*(interval(n + 1, n, n + 1) for n in range(60)))
    world.report("stopped", 60)
    world.over(minute(60))

    world.close(minute(61))

    borders = [each.window.ends_at for each in world.events(UsageWindowClosed)]
    assert minute(SINCE) in borders
    of = {each.window.starts_at: each.price for each in charges(world)}
    assert of[minute(20)] == PRICE
    assert of[minute(SINCE)] == DEARER
    assert sum(each.charged.nanos for each in charges(world)) == due()
    assert world.account().holds[HOLD].captured.nanos == due()


def test_what_a_lease_cost_so_far_is_told_at_its_prices_before_it_is_rated(world: World) -> None:
    world_at_two_prices(world)
    world.report("started", 0)
    world.send(*(interval(n + 1, n, n + 1) for n in range(60)))

    assert usage.use_so_far(CONSUMING, LEASE).cost.nanos == due()

    world.close(minute(45))
    assert usage.use_so_far(CONSUMING, LEASE).cost.nanos == due()


def test_use_that_is_proved_late_is_charged_at_the_price_of_its_time(world: World) -> None:
    world_at_two_prices(world)
    world.report("started", 0)
    early = [interval(n + 1, n, n + 1) for n in range(60)]
    missing = interval(61, 24, 27)
    world.send(*(each for each in early if not 24 <= (each.seq - 1) < 27))
    world.report("stopped", 60)
    world.over(minute(60))
    world.close(NOON + timedelta(hours=3))

    world.send(missing, now=NOON + timedelta(hours=4))
    world.close(NOON + timedelta(hours=5))

    assert {each.window.starts_at for each in world.events(UsageCorrected)} == {
        minute(20),
        minute(SINCE),
    }
    assert sum(each.charged.nanos for each in charges(world)) == due()


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    since=st.integers(1, 3_599).map(lambda seconds: seconds / 60),
    mix=st.randoms(use_true_random=False),
    size=st.integers(1, 20),
)
def test_the_sum_is_the_same_whenever_the_price_changes_and_however_use_comes(
    db: None, since: float, mix: Random, size: int
) -> None:
    empty_tables(None)
    world = world_at_two_prices(World(MemoryStore()), since=since)
    sent = [interval(n + 1, n, n + 1) for n in range(60)]
    batches = [sent[at : at + size] for at in range(0, 60, size)] * 2
    mix.shuffle(batches)
    world.report("started", 0)
    for number, batch in enumerate(batches):
        world.send(*batch)
        world.close(minute(number))
    world.report("stopped", 60)
    world.over(minute(60))
    world.close(NOON + timedelta(hours=3))
    world.close(NOON + timedelta(hours=4))

    assert sum(each.charged.nanos for each in charges(world)) == due(since)
