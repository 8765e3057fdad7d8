"""The process dies just before or after any write or call: still one machine, one cost, no orphan.

The life of a burst is played once to count its steps, then once more for each step with the
process killed there; the next process starts with nothing but the store and the cloud.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bursting.domain.events import BurstIntended, InstanceId
from bursting.domain.instances import instance_of
from bursting.domain.spill import BurstUnderWay
from ledger.domain.money import Rate
from tests.bursting.bids_and_offers import RULES
from tests.bursting.market import BID, Fuse, Killed, Market

COST = Rate(804_800_000).charge(3_600_000 + RULES.drain_seconds * 1_000)
INSTANCE = instance_of(BID.bid_id, 1)


def survive(step: Callable[[], object]) -> None:
    """Do a step; where the process dies in it, do it again as the next process would."""
    try:
        step()
    except Killed:
        step()


def spill(market: Market) -> InstanceId | None:
    try:
        return market.spill()
    except BurstUnderWay:
        return None


def play(market: Market) -> None:
    survive(lambda: spill(market))
    survive(market.tick)
    market.report_gpus(INSTANCE)
    survive(market.tick)
    lease_id = market.grant(INSTANCE)
    survive(market.tick)
    market.later(hours=1)
    market.close(lease_id)
    survive(market.tick)
    market.later(seconds=RULES.drain_seconds)
    survive(market.tick)
    survive(market.tick)


def count_steps() -> int:
    market = Market()
    play(market)
    return market.fuse.burnt


STEPS = count_steps()


def test_there_are_steps_to_die_at() -> None:
    named = ["intent", "budget", "launch", "launched", "host", "offer", "running", "terminating"]

    assert len(named) * 2 <= STEPS


@pytest.mark.parametrize("kill_at", range(1, STEPS + 1))
def test_killed_at(kill_at: int) -> None:
    market = Market(fuse=Fuse(kill_at=kill_at))

    play(market)

    assert market.fuse.burnt >= kill_at, "the process died"
    assert len(market.events(BurstIntended)) == 1
    assert len(market.cloud._rented) == 1, "the cloud never ran two"
    assert market.alive() == set()
    instance = market.instance(INSTANCE)
    assert instance.state == "terminated"
    assert instance.cost == COST
    assert market.cost() == COST.nanos
    assert market.month().set_aside == {}
    assert market.month().spent == {INSTANCE: COST}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("times", [1, 5])
def test_a_launch_without_an_answer_starts_one_machine(when: str, times: int) -> None:
    market = Market()
    instance_id = market.spill()
    market.cloud.faults.fail("launch", times=times, when="after" if when == "after" else "before")
    for _ in range(times):
        market.tick()
        assert market.instance(instance_id).state == "intended"

    market.tick()

    assert market.instance(instance_id).state == "provisioning"
    assert len(market.alive()) == 1
