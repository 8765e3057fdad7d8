"""What may happen to an instance, in which order, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bursting.domain import spill
from bursting.domain.budget import Budget, BudgetExhausted, month_of
from bursting.domain.events import BudgetEvent, BurstEvent, BurstLaunched, InstanceId
from bursting.domain.instances import (
    BurstInstance,
    InstanceNotLaunched,
    LaunchedTwice,
    instance_of,
    intend,
)
from ledger.domain.money import Money
from tests.bursting.bids_and_offers import BID, NOON, PLATFORM, RULES, bid_for, cloud_offer

EIGHT = cloud_offer("eight-l4", gpus=8, nanos=8_000_000_000)
LATER = NOON + timedelta(seconds=RULES.wait_seconds)
HOUR = timedelta(hours=1)


def intended() -> BurstInstance:
    decided = spill.choose(bid_for(gpus=8), [EIGHT], [], rules=RULES, now=LATER)
    return BurstInstance.evolve(None, intend(BID, decided, owner_id=PLATFORM, now=LATER))


def after(instance: BurstInstance, events: Sequence[BurstEvent]) -> BurstInstance:
    for event in events:
        instance = BurstInstance.evolve(instance, event)
    return instance


def launched() -> BurstInstance:
    instance = intended()
    return after(instance, instance.launch("i-1", launched_at=LATER, now=LATER))


def test_a_whole_life() -> None:
    instance = launched()
    instance = after(instance, instance.run(now=LATER))
    instance = after(instance, instance.end("lease-closed", now=LATER + HOUR))
    instance = after(instance, instance.vanish(now=LATER + HOUR))

    assert instance.state == "terminated"
    assert instance.cost == Money(8_000_000_000)
    assert instance.reason == "lease-closed"


def test_the_cost_is_that_of_the_instance_not_of_one_gpu_nor_of_eight_instances() -> None:
    assert launched().cost_until(LATER + HOUR) == Money(8_000_000_000)


def test_every_step_taken_twice_changes_nothing() -> None:
    instance = launched()
    assert instance.launch("i-1", launched_at=LATER, now=LATER) == []
    instance = after(instance, instance.run(now=LATER))
    assert instance.run(now=LATER) == []
    instance = after(instance, instance.end("idle", now=LATER))
    assert instance.end("other", now=LATER) == []
    instance = after(instance, instance.vanish(now=LATER))
    assert list(instance.vanish(now=LATER)) == []
    assert instance.refuse("capacity", now=LATER) == []


def test_what_vanishes_unasked_is_lost() -> None:
    instance = launched()

    assert after(instance, instance.vanish(now=LATER + HOUR)).state == "lost"


def test_an_unanswered_launch_can_not_be_ended_yet() -> None:
    with pytest.raises(InstanceNotLaunched):
        intended().end("bid-closed", now=LATER)


def test_a_second_machine_for_one_instance_is_refused() -> None:
    with pytest.raises(LaunchedTwice):
        launched().launch("i-2", launched_at=LATER, now=LATER)


def test_the_clouds_clock_is_held_between_the_intent_and_now() -> None:
    early, late = LATER - HOUR, LATER + HOUR

    for told, kept in ((early, LATER), (late, LATER + timedelta(minutes=1))):
        (event,) = intended().launch("i-1", launched_at=told, now=LATER + timedelta(minutes=1))
        assert isinstance(event, BurstLaunched)
        assert event.launched_at == kept


def test_the_id_of_an_attempt_is_the_same_for_whoever_decides_it() -> None:
    assert instance_of(BID.bid_id, 1) == instance_of(BID.bid_id, 1)
    assert instance_of(BID.bid_id, 1) != instance_of(BID.bid_id, 2)


steps = st.lists(st.sampled_from(["launch", "refuse", "run", "end", "vanish"]), max_size=12)


@given(steps=steps)
def test_in_whatever_order_things_come_it_ends_once_and_costs_what_it_ran(
    steps: list[str],
) -> None:
    instance, now, final = intended(), LATER, 0
    for step in steps:
        now += timedelta(minutes=7)
        if step == "end" and instance.state == "intended":
            continue
        events: dict[str, Sequence[BurstEvent]] = {
            "launch": instance.launch("i-1", launched_at=now, now=now)
            if instance.state == "intended" or instance.cloud_ref
            else [],
            "refuse": instance.refuse("capacity", now=now),
            "run": instance.run(now=now),
            "end": instance.end("idle", now=now) if instance.state != "intended" else [],
            "vanish": instance.vanish(now=now),
        }
        was_final = instance.is_final
        assert not (was_final and events[step])
        instance = after(instance, events[step])
        final += instance.is_final and not was_final

    assert final <= 1
    if instance.cost is not None:
        assert instance.launched_at is not None
        assert instance.over_at is not None
        minutes = (instance.over_at - instance.launched_at) // timedelta(minutes=1)
        assert instance.cost == Money(8_000_000_000 * minutes // 60)


ids = st.integers(1, 5).map(lambda n: instance_of(BID.bid_id, n))


@given(moves=st.lists(st.tuples(st.booleans(), ids, st.integers(0, 60)), max_size=30))
def test_a_budget_is_never_overdrawn_while_instances_keep_to_their_part(
    moves: list[tuple[bool, InstanceId, int]],
) -> None:
    cap = Money(100)
    budget = Budget(month="2026-01")
    for is_reserve, instance_id, nanos in moves:
        events: Sequence[BudgetEvent]
        try:
            if is_reserve:
                events = budget.reserve(instance_id, Money(nanos), cap=cap, now=NOON)
            else:
                part = budget.set_aside.get(instance_id, Money(0))
                cost = Money(min(nanos, part.nanos))
                events = budget.settle(instance_id, cost, now=NOON)
        except BudgetExhausted:
            continue
        for event in events:
            budget = Budget.evolve(budget, event)
        assert budget.committed_nanos() <= cap.nanos
        assert not set(budget.set_aside) & set(budget.spent)


def test_a_budget_refuses_what_it_does_not_cover_and_says_what_is_left() -> None:
    with pytest.raises(BudgetExhausted) as refused:
        Budget(month="2026-01").reserve(
            instance_of(BID.bid_id, 1), Money(101), cap=Money(100), now=NOON
        )
    assert refused.value.details == {
        "month": "2026-01",
        "left": Money(100),
        "needed": Money(101),
    }


def test_a_month_is_counted_in_utc() -> None:
    assert month_of(NOON) == "2026-01"
