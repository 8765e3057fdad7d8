"""A bid spills over, is served by a rented machine, and the machine is given back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from bursting.clouds.port import CloudUnavailable
from bursting.commands.returning import SENDS_BEFORE
from bursting.domain.budget import BudgetExhausted
from bursting.domain.events import BurstIntended, BurstRefused
from bursting.domain.spill import (
    AttemptsExhausted,
    BurstBackingOff,
    BurstUnderWay,
    CloudTooDear,
    NoCloudOffer,
)
from ledger.domain.money import Money, Rate
from marketplace.domain.bids.query_language import read_query
from tests.bursting.bids_and_offers import PLATFORM, RULES
from tests.bursting.market import Market, bid_like

HOUR_NANOS = 804_800_000
COST = Rate(HOUR_NANOS).charge(3_600_000 + RULES.drain_seconds * 1_000)


def test_a_rented_machine_is_an_ordinary_host_with_an_ordinary_offer_for_its_bid() -> None:
    market = Market()

    instance_id = market.listed()

    offer = market.offer(instance_id)
    assert offer is not None
    listed = offer.published
    assert (listed.source, listed.reserved_for) == ("burst", market.bid.bid_id)
    assert (listed.tenant_id, listed.market) == (PLATFORM, "site-a")
    assert listed.floor == Rate(HOUR_NANOS)
    assert dict(listed.labels)["instance-type"] == "one-l4"
    assert listed.windows[0].length >= timedelta(seconds=market.bid.duration_seconds)


@pytest.mark.parametrize(
    ("query", "grace_seconds"), [("", 15), ("grace>=5s", 15), ("grace>=1m", 60)]
)
def test_a_rented_machine_gives_the_grace_that_its_bid_asks_for(
    query: str, grace_seconds: int
) -> None:
    market = Market(bid=bid_like(request=read_query(f"gpu=L4 {query}")))

    offer = market.offer(market.listed())

    assert offer is not None
    assert (offer.published.grace_seconds, offer.published.notice_seconds) == (grace_seconds, 120)


def test_the_intent_comes_before_the_call_and_carries_all_its_terms() -> None:
    market = Market()

    market.spill()

    (intent,) = market.events(BurstIntended)
    assert market.cloud.faults.calls["launch"] == 0
    assert (intent.cloud, intent.instance_type, intent.zone) == ("fake", "one-l4", "zone-a")
    assert intent.price == Rate(HOUR_NANOS)


def test_nothing_is_listed_before_the_agent_has_reported_the_gpus() -> None:
    market = Market()
    instance_id = market.spill()

    assert market.advance(instance_id).state == "provisioning"
    assert market.offer(instance_id) is None

    market.report_gpus(instance_id)
    assert market.advance(instance_id).state == "running"


def test_when_the_lease_closes_the_machine_goes_and_its_cost_is_counted_once() -> None:
    market = Market()
    instance_id = market.listed()
    lease_id = market.grant(instance_id)
    market.later(hours=1)
    market.tick()
    assert market.instance(instance_id).state == "running"

    market.close(lease_id)
    market.tick()
    assert market.instance(instance_id).state == "running", "its agent may still send its usage"
    market.later(seconds=RULES.drain_seconds)
    market.tick()

    instance = market.instance(instance_id)
    assert (instance.state, instance.reason) == ("terminated", "lease-closed")
    assert instance.cost == COST
    assert market.cost() == COST.nanos
    assert market.alive() == set()
    offer, host = market.offer(instance_id), market.host(instance_id)
    assert offer is not None and offer.state == "withdrawn"
    assert host is not None and host.is_retired
    assert market.month().set_aside == {}
    assert market.month().spent == {instance_id: COST}


def test_a_bid_that_gets_local_supply_meanwhile_comes_home() -> None:
    market = Market()
    instance_id = market.listed()

    market.grant(None)
    market.tick()

    assert market.instance(instance_id).reason == "came-home"
    assert market.alive() == set()


def test_a_bid_that_is_cancelled_ends_its_machine_in_every_state() -> None:
    for steps in (0, 1, 2):
        market = Market()
        instance_id = market.spill()
        if steps > 0:
            market.advance(instance_id)
        if steps > 1:
            market.report_gpus(instance_id)
            market.advance(instance_id)

        market.cancel_bid()
        market.tick()

        assert market.instance(instance_id).is_final
        assert market.instance(instance_id).reason == "bid-closed"
        assert market.alive() == set()
        assert market.month().set_aside == {}


def test_a_machine_that_nobody_takes_is_given_back() -> None:
    market = Market()
    instance_id = market.listed()

    market.later(seconds=RULES.idle_seconds_max - 1)
    market.tick()
    assert market.instance(instance_id).state == "running"
    market.later(seconds=1)
    market.tick()

    assert market.instance(instance_id).reason == "idle"
    assert market.alive() == set()


def test_a_machine_whose_agent_never_reports_is_given_back() -> None:
    market = Market()
    instance_id = market.spill()
    market.advance(instance_id)

    market.later(seconds=RULES.boot_seconds)
    market.tick()

    assert market.instance(instance_id).reason == "never-came-up"
    assert market.alive() == set()


def test_one_machine_for_one_bid() -> None:
    market = Market()
    market.spill()

    with pytest.raises(BurstUnderWay):
        market.spill()


def test_a_zone_without_capacity_leads_to_the_next_one() -> None:
    market = Market()
    market.cloud.faults.room["zone-a"] = 0

    refused = market.advance(market.spill())
    assert (refused.state, refused.reason) == ("refused", "capacity")
    with pytest.raises(BurstBackingOff):
        market.spill()
    market.later(seconds=RULES.backoff_seconds)
    taken = market.advance(market.spill())

    assert (taken.intent.zone, taken.state) == ("zone-b", "provisioning")
    assert len(market.alive()) == 1


def test_without_capacity_anywhere_attempts_are_bounded_and_their_reasons_kept() -> None:
    market = Market()
    market.cloud.faults.room.update({"zone-a": 0, "zone-b": 0})
    for _ in range(2):
        market.advance(market.spill())
        market.later(hours=1)

    with pytest.raises(NoCloudOffer):
        market.spill()

    assert [event.reason for event in market.events(BurstRefused)] == ["capacity", "capacity"]
    assert market.cloud.faults.calls["launch"] == 2


def test_a_cloud_that_never_answers_is_asked_a_bounded_number_of_times() -> None:
    market = Market()
    market.cloud.faults.fail("launch", times=1_000)
    for _ in range(RULES.attempts_max):
        instance_id = market.spill()
        with pytest.raises(CloudUnavailable):
            market.advance(instance_id)
        market.later(seconds=RULES.boot_seconds)
        assert market.advance(instance_id).reason == "unavailable"
        market.later(hours=1)

    with pytest.raises(AttemptsExhausted) as refused:
        market.spill()
    assert refused.value.details["reasons"] == ["unavailable"] * RULES.attempts_max


def test_a_quota_is_not_asked_for_again_and_again() -> None:
    market = Market()
    market.cloud.faults.quota = 0
    market.advance(market.spill())
    market.later(hours=1)

    with pytest.raises(NoCloudOffer):
        market.spill()
    assert market.cloud.faults.calls["launch"] == 1


def test_a_price_above_the_limit_is_refused_before_anything_is_recorded() -> None:
    market = Market(bid=bid_like(limit=Rate(HOUR_NANOS - 1)))

    with pytest.raises(CloudTooDear):
        market.spill()
    assert market.events(BurstIntended) == []


def test_a_price_that_rose_after_the_quote_is_refused_by_the_cap() -> None:
    market = Market()
    instance_id = market.spill()
    market.cloud.catalogue = [
        replace(offer, price=replace(offer.price, nanos_per_instance_hour=HOUR_NANOS + 1))
        for offer in market.cloud.catalogue
    ]

    refused = market.advance(instance_id)

    assert (refused.state, refused.reason) == ("refused", "price")
    assert market.alive() == set()


def test_the_budget_of_the_month_is_not_exceeded() -> None:
    market = Market(budget=Money(HOUR_NANOS))

    with pytest.raises(BudgetExhausted):
        market.spill()
    assert market.events(BurstIntended) == []


def test_a_budget_that_was_spent_meanwhile_stops_the_launch() -> None:
    market = Market()
    instance_id = market.spill()
    market.budget = Money(1)
    market.use(market.cloud)

    refused = market.advance(instance_id)

    assert (refused.state, refused.reason) == ("refused", "budget")
    assert market.alive() == set()


def test_a_machine_that_is_not_seen_at_once_is_waited_for() -> None:
    market = Market()
    market.cloud.faults.invisible_polls = 3
    instance_id = market.spill()
    for _ in range(3):
        assert market.advance(instance_id).state == "provisioning"
        market.later(seconds=10)

    market.advance(instance_id)
    market.report_gpus(instance_id)

    assert market.advance(instance_id).state == "running"


def test_terminate_is_asked_until_the_cloud_says_that_it_is_gone() -> None:
    market = Market()
    market.cloud.faults.terminating_polls = 3
    instance_id = market.listed()
    market.cancel_bid()
    market.cloud.faults.fail("terminate", times=4)
    for _ in range(4):
        market.tick()
        assert market.instance(instance_id).state == "terminating"
        assert len(market.alive()) == 1

    market.tick()
    assert market.alive() == set()
    assert market.instance(instance_id).state == "terminating"
    market.tick()
    market.tick()

    assert market.instance(instance_id).state == "terminated"


def test_an_interruption_is_passed_on_to_the_lease_as_a_reclaim() -> None:
    market = Market()
    instance_id = market.listed()
    lease_id = market.grant(instance_id)
    at = market.now + timedelta(minutes=2)
    market.warn(instance_id, at=at)

    lease = market.lease(lease_id)

    assert lease.stop_at == at - SENDS_BEFORE, "what is left is for its last version"
    assert market.instance(instance_id).state == "running"


def test_an_interruption_without_a_lease_ends_the_machine() -> None:
    market = Market()
    instance_id = market.listed()

    market.warn(instance_id, at=market.now)

    assert market.instance(instance_id).reason == "interrupted"


def test_a_warning_of_next_week_does_not_end_anything_today() -> None:
    market = Market()
    instance_id = market.listed()

    market.warn(instance_id, at=market.now + timedelta(days=7))

    assert market.instance(instance_id).reason is None
