"""What breaks off at one bid, machine or cloud, expected or not, stays with that one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError

from bursting import loops, reaper
from bursting.clouds.port import Instance
from bursting.commands.instances import advance_instance
from bursting.commands.returning import pass_warning_on
from bursting.commands.spilling import spill_bid
from bursting.domain.capacity import InstancePrice, InstanceSpec
from bursting.domain.events import BurstIntended, InstanceId
from bursting.domain.instances import BurstInstance
from bursting.loops import Overflowing
from ledger.domain.ids import BidId
from ledger.eventstore.port import EventStore, OutcomeUnknown, StoreUnavailable, StreamMoved
from tests.bursting.market import BID, Market
from tests.bursting.reading import read

pytestmark = pytest.mark.django_db


class Odd(Exception):
    """A mistake of ours, or an answer that no adapter expected."""


def two_bids(market: Market) -> tuple[BidId, BidId]:
    other = BidId(UUID(int=8))
    market.place(replace(BID, bid_id=other))
    read(market)
    return BID.bid_id, other


def test_a_bid_at_which_the_loop_breaks_off_rests_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    market = Market()
    odd, other = two_bids(market)
    asked = []

    def spill(*arguments: Any, bid_id: BidId, **named: Any) -> object:
        asked.append(bid_id)
        if bid_id == odd:
            raise Odd
        return spill_bid(*arguments, bid_id=bid_id, **named)

    monkeypatch.setattr(loops, "spill_bid", spill)
    loop = Overflowing(market.overflow)
    for _ in range(3):
        loop.run_once(market.store, now=market.now)

    assert [each.bid_id for each in market.events(BurstIntended)] == [other]
    assert asked.count(odd) == 1


def test_an_instance_at_which_the_loop_breaks_off_rests_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    market = Market()
    odd = market.spill()
    two_bids(market)
    loop = Overflowing(market.overflow)
    loop.run_once(market.store, now=market.now)
    read(market)
    asked = []

    def advance(*arguments: Any, instance_id: InstanceId, **named: Any) -> object:
        asked.append(instance_id)
        if instance_id == odd:
            raise Odd
        return advance_instance(*arguments, instance_id=instance_id, **named)

    monkeypatch.setattr(loops, "advance_instance", advance)
    market.later(minutes=2)
    for _ in range(3):
        loop.run_once(market.store, now=market.now)

    states = {key: market.instance(key).state for key in market.intended()}
    assert states.pop(odd) in ("intended", "provisioning")
    assert set(states.values()) == {"provisioning"}
    assert asked.count(odd) == 1


NOT_ITS_OWN = [StreamMoved("bid-1"), OutcomeUnknown("lost"), StoreUnavailable(), OperationalError()]
"""What comes of a race, a restart or a fail-over, and says nothing of the bid or the machine."""


@pytest.mark.parametrize("failure", NOT_ITS_OWN, ids=lambda each: type(each).__name__)
def test_a_bid_at_which_the_store_was_away_is_tried_in_the_next_pass(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    market = Market()
    read(market)
    monkeypatch.setattr(loops, "spill_bid", failing_once(spill_bid, failure))
    loop = Overflowing(market.overflow)
    for _ in range(2):
        loop.run_once(market.store, now=market.now)

    assert [each.bid_id for each in market.events(BurstIntended)] == [BID.bid_id]


@pytest.mark.parametrize("failure", NOT_ITS_OWN, ids=lambda each: type(each).__name__)
def test_an_instance_at_which_the_store_was_away_is_moved_in_the_next_pass(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    market = Market()
    instance_id = market.spill()
    read(market)
    monkeypatch.setattr(loops, "advance_instance", failing_once(advance_instance, failure))
    loop = Overflowing(market.overflow)
    for _ in range(2):
        loop.run_once(market.store, now=market.now)

    assert market.instance(instance_id).state == "provisioning"


def failing_once(act: Callable[..., Any], failure: Exception) -> Callable[..., Any]:
    """Return what fails at its first call, and does what it should from then on."""
    failures = [failure]

    def acts(*arguments: Any, **named: Any) -> Any:
        if failures:
            raise failures.pop()
        return act(*arguments, **named)

    return acts


def test_a_machine_that_cannot_be_warned_keeps_no_other_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    market = Market()
    odd = market.spill()
    _, _other = two_bids(market)
    loop = Overflowing(market.overflow)
    for _ in range(3):
        loop.run_once(market.store, now=market.now)
        read(market)
        market.later(minutes=1)
    assert len(market.intended()) == 2

    def pass_on(store: EventStore, instance: BurstInstance, **named: Any) -> int:
        if instance.intent.instance_id == odd:
            raise Odd
        return pass_warning_on(store, instance, **named)

    monkeypatch.setattr(loops, "pass_warning_on", pass_on)
    for key in market.intended():
        ref = market.instance(key).cloud_ref
        assert ref is not None
        market.cloud.faults.interrupt(ref, at=market.now, reason="marked-for-termination")
    loop.run_once(market.store, now=market.now)

    ended = {key for key in market.intended() if market.instance(key).reason}
    assert ended == set(market.intended()) - {odd}


@pytest.mark.parametrize("odd", [Odd(), KeyError("state"), AssertionError()])
def test_a_machine_at_which_the_reaper_breaks_off_lets_no_other_run_on(
    monkeypatch: pytest.MonkeyPatch, odd: Exception
) -> None:
    market = Market()
    refs = [
        market.cloud.launch(
            InstanceSpec(instance_type="one-l4", zone="zone-a"),
            token=f"nobody-{number}",
            tags={"offpeak:owner": str(market.overflow.owner_id)},
            ttl=timedelta(days=1),
            max_price=InstancePrice(10**12),
            environment={},
        ).instance_id
        for number in range(3)
    ]
    judged = reaper._judge

    def judge(instance: BurstInstance | None, found: Instance) -> Any:
        if found.instance_id == refs[0]:
            raise odd
        return judged(instance, found)

    monkeypatch.setattr(reaper, "_judge", judge)
    market.later(hours=1)
    reaper.run_once(market.store, overflow=market.overflow, now=market.now)

    assert market.alive() == {refs[0]}
