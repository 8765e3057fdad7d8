"""What a cloud hands out, and what runs on it, is compared with what was planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bursting.clouds.port import CloudUnavailable, Instance
from bursting.commands.records import told_by
from bursting.domain.capacity import CloudOffer, InstancePrice, InstanceSpec
from bursting.domain.events import BurstTerminating
from bursting.domain.handed_out import differences
from bursting.domain.instances import intend
from bursting.domain.spill import NoCloudOffer, choose
from bursting.reaper import ORPHAN_GRACE
from ledger.domain.money import Money
from marketplace.domain.facts.events import GpuRequest
from tests.bursting.bids_and_offers import BID, NOON, PLATFORM, RULES, bid_for, cloud_offer
from tests.bursting.market import CATALOGUE, Fuse, Market, MortalCloud, bid_like

EIGHT = cloud_offer("eight-l4", gpus=8, nanos=8_000_000_000)
ONE = CATALOGUE[0]
SPOT = cloud_offer("one-l4", nanos=300_000_000, spot=True)


def handed(offer: CloudOffer, **bid: Any) -> Market:
    """Return a market whose cloud hands out `offer`, whatever is asked for."""
    market = Market(bid=bid_like(**bid)) if bid else Market()
    market.cloud.catalogue = [*CATALOGUE, SPOT]
    market.cloud.faults.instead.append(offer)
    return market


@pytest.mark.parametrize(
    ("offer", "words"),
    [
        (EIGHT, "type eight-l4 instead of one-l4, 8 GPUs instead of 1"),
        (replace(ONE, gpus=8), "8 GPUs instead of 1"),
        (replace(ONE, spec=replace(ONE.spec, zone="zone-c")), "zone zone-c instead of zone-a"),
        (replace(ONE, spec=replace(ONE.spec, spot=True)), "spot instead of on demand"),
        (replace(ONE, gpu_model="T4"), "T4 instead of L4"),
        (replace(ONE, price=InstancePrice(812_848_001)), "0.812848001 USD an hour instead of"),
        (replace(ONE, price=InstancePrice(402_399_999)), "0.402399999 USD an hour instead of"),
        (replace(ONE, price=InstancePrice(804_800_000, "EUR")), "0.8048 EUR an hour instead of"),
    ],
)
def test_another_machine_than_planned_is_ended_at_once_and_booked_as_it_is(
    offer: CloudOffer, words: str
) -> None:
    market = handed(offer)
    instance_id = market.spill()

    instance = market.advance(instance_id)

    assert (instance.state, instance.reason) == ("terminated", "not-as-planned")
    (decided,) = market.events(BurstTerminating)
    assert words in decided.detail
    assert market.offer(instance_id) is None
    assert market.alive() == set()


def test_a_mismatch_that_takes_a_while_to_end_costs_what_the_machine_costs() -> None:
    market = handed(EIGHT)
    market.cloud.faults.fail("terminate", times=6)
    instance_id = market.spill()
    for _ in range(7):
        market.tick()
        market.later(minutes=10)
    market.tick()

    instance = market.instance(instance_id)
    assert instance.state == "terminated"
    assert instance.cost == Money(8_000_000_000)
    assert market.cost() == market.billed() == 8_000_000_000


@pytest.mark.parametrize("nanos", [812_848_000, 804_800_000, 402_400_000])
def test_a_price_within_the_tolerance_is_taken_and_booked_as_it_is(nanos: int) -> None:
    market = handed(replace(ONE, price=InstancePrice(nanos)))
    instance_id = market.spill()
    market.advance(instance_id)
    market.report_gpus(instance_id)
    assert market.advance(instance_id).state == "running"
    market.later(minutes=10)
    market.cancel_bid()
    market.tick()

    assert market.cost() == market.billed() == nanos // 6


def test_on_demand_is_not_taken_for_spot() -> None:
    market = handed(
        replace(SPOT, spec=replace(SPOT.spec, spot=False)), service_class="interruptible"
    )

    instance = market.advance(market.spill())

    assert instance.intent.spot
    assert instance.reason == "not-as-planned"
    assert market.events(BurstTerminating)[0].detail == "on demand instead of spot"


def test_the_price_of_a_gpu_is_not_taken_for_that_of_an_instance() -> None:
    decided = choose(bid_for(gpus=8), [EIGHT], [], rules=RULES, now=NOON + timedelta(hours=1))
    intent = intend(BID, decided, owner_id=PLATFORM, now=NOON)
    cloud = MortalCloud(catalogue=[EIGHT], clock=lambda: NOON)
    cloud.fuse = Fuse()
    found = cloud.launch(
        EIGHT.spec,
        token="t",
        tags={},
        ttl=timedelta(hours=1),
        max_price=EIGHT.price,
        environment={},
    )
    whole = told_by(found)
    of_one_gpu = replace(whole, hourly=Money(1_000_000_000))

    assert whole.hourly == Money(8_000_000_000)
    assert differences(intent, whole) == []
    assert differences(intent, of_one_gpu) == ["1.00 USD an hour instead of 8.00 USD"]


def test_the_next_attempt_does_not_ask_for_the_same_again() -> None:
    market = handed(EIGHT)
    market.advance(market.spill())
    market.later(seconds=RULES.backoff_seconds)

    second = market.advance(market.spill())

    assert (second.intent.zone, second.state) == ("zone-b", "provisioning")


def test_a_cloud_that_never_hands_out_what_is_asked_for_is_left() -> None:
    market = handed(EIGHT)
    market.cloud.faults.instead.append(EIGHT)
    for _ in range(2):
        market.advance(market.spill())
        market.later(hours=1)

    with pytest.raises(NoCloudOffer):
        market.spill()


@pytest.mark.parametrize(
    ("gpus", "found", "words"),
    [
        (8, {}, "its agent finds 8 GPUs instead of 1"),
        (1, {"model": "NVIDIA H100 80GB HBM3"}, "instead of L4"),
        (1, {"model": "Tesla T4"}, "its agent finds T4 instead of L4"),
        (1, {"memory_mib": 22_117}, "its agent finds 22117 MiB a GPU instead of 24576"),
        (1, {"memory_mib": 49_152}, "its agent finds 49152 MiB a GPU instead of 24576"),
    ],
)
def test_what_the_agent_finds_is_compared_before_it_is_listed(
    gpus: int, found: dict[str, Any], words: str
) -> None:
    market = Market()
    instance_id = market.spill()
    market.advance(instance_id)
    market.report_gpus(instance_id, gpus, **found)

    instance = market.advance(instance_id)

    assert (instance.state, instance.reason) == ("terminated", "not-as-planned")
    assert words in market.events(BurstTerminating)[0].detail
    assert market.offer(instance_id) is None
    assert market.alive() == set()


def test_an_agent_that_has_not_found_all_gpus_yet_is_waited_for() -> None:
    market = Market(bid=bid_like(gpus=8, request=GpuRequest(models=("L4",))))
    market.cloud.catalogue = [EIGHT]
    instance_id = market.spill()
    market.advance(instance_id)
    market.report_gpus(instance_id, 5)
    assert market.advance(instance_id).state == "provisioning"

    market.report_gpus(instance_id, 8)
    assert market.advance(instance_id).state == "running"


def test_an_agent_that_never_finds_all_gpus_ends_it_and_says_so() -> None:
    market = Market(bid=bid_like(gpus=8))
    market.cloud.catalogue = [EIGHT]
    instance_id = market.spill()
    market.advance(instance_id)
    market.report_gpus(instance_id, 5)
    market.later(seconds=RULES.boot_seconds)

    assert market.advance(instance_id).reason == "never-came-up"
    assert market.events(BurstTerminating)[0].detail == "its agent found 5 of 8 GPUs"


class Echoing(MortalCloud):
    """A cloud whose answers to a launch are those that were hoped for, whatever it runs."""

    def launch(self, spec: InstanceSpec, **asked: Any) -> Instance:
        got = super().launch(spec, **asked)
        return replace(got, spec=spec, gpus=1, gpu_model="L4", price=ONE.price)


def use(market: Market, cloud: MortalCloud) -> None:
    cloud.fuse = market.fuse
    market.cloud = cloud
    market.use(cloud)


@pytest.mark.parametrize("listed", [False, True])
def test_what_the_cloud_shows_later_is_compared_too(listed: bool) -> None:
    market = Market()
    use(market, Echoing(catalogue=CATALOGUE, clock=lambda: market.now))
    if not listed:
        market.cloud.faults.instead.append(EIGHT)
        market.cloud.faults.invisible_polls = 1
    instance_id = market.listed() if listed else market.spill()
    if listed:
        (rented,) = market.cloud._rented.values()
        rented.instance = replace(rented.instance, spec=EIGHT.spec, gpus=8, price=EIGHT.price)
        rented.price = EIGHT.price
    market.tick()
    market.tick()

    assert market.instance(instance_id).reason == "not-as-planned"
    assert market.alive() == set()


class Confused(MortalCloud):
    """A cloud that lists every machine it has, whatever the filter, and answers with another's."""

    def find(
        self, *, token: str | None = None, tags: Mapping[str, str] | None = None
    ) -> Sequence[Instance]:
        return super().find()

    def describe(self, instance_ids: Sequence[str], /) -> Sequence[Instance]:
        return super().describe(sorted(self._rented))


def test_a_machine_of_others_is_never_ended_nor_counted_where_the_cloud_lists_too_much() -> None:
    market = Market()
    use(market, Confused(catalogue=CATALOGUE, clock=lambda: market.now))
    other = market.cloud.launch(
        ONE.spec,
        token="theirs",
        tags={"offpeak:owner": "another installation"},
        ttl=timedelta(days=1),
        max_price=ONE.price,
        environment={},
    )
    market.later(seconds=ORPHAN_GRACE.total_seconds())
    instance_id = market.listed()
    market.cancel_bid()
    market.tick()
    market.reap()
    market.settle()

    assert market.alive() == {other.instance_id}
    assert market.instance(instance_id).state == "terminated"
    assert market.cost() == 0


def test_an_intent_without_effect_takes_no_machine_of_others_for_its_own() -> None:
    market = Market()
    use(market, Confused(catalogue=CATALOGUE, clock=lambda: market.now))
    market.cloud.launch(
        ONE.spec,
        token="theirs",
        tags={},
        ttl=timedelta(days=1),
        max_price=ONE.price,
        environment={},
    )
    instance_id = market.spill()
    market.cancel_bid()

    assert market.advance(instance_id).state == "refused"


def test_an_answer_that_names_another_launch_is_no_answer() -> None:
    market = Market()

    class Crossed(MortalCloud):
        def launch(self, spec: InstanceSpec, **asked: Any) -> Instance:
            return replace(super().launch(spec, **asked), instance_id="theirs", token="theirs")

    use(market, Crossed(catalogue=CATALOGUE, clock=lambda: market.now))
    instance_id = market.spill()

    with pytest.raises(CloudUnavailable) as trouble:
        market.advance(instance_id)

    assert trouble.value.outcome_unknown
    market.reap()
    assert market.instance(instance_id).cloud_ref == "fake-000001"
