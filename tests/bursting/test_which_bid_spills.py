"""Which bid spills over, when, and to what: properties of the rule."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bursting.domain import spill
from bursting.domain.capacity import CloudOffer, InstancePrice
from bursting.domain.spill import Attempt, SpillRules, Waiting
from ledger.domain.money import Rate
from ledger.domain.refusal import Refusal
from tests.bursting.bids_and_offers import BID, DAY, NOON, RULES, bid_for, cloud_offer

LATER = NOON + timedelta(seconds=RULES.wait_seconds)
ONE = cloud_offer()


def failed(number: int, offer: CloudOffer = ONE, *, reason: str = "capacity") -> Attempt:
    return Attempt(
        number=number, cloud="fake", spec=offer.spec, reason=reason, over_at=LATER - DAY / 48
    )


def choose(
    bid: Waiting = BID,
    offers: list[CloudOffer] | None = None,
    attempts: list[Attempt] | None = None,
    *,
    rules: SpillRules = RULES,
    now: datetime = LATER,
) -> spill.Spill:
    return spill.choose(
        bid, [ONE] if offers is None else offers, attempts or [], rules=rules, now=now
    )


def test_a_bid_that_waited_long_enough_spills() -> None:
    decided = choose()

    assert decided.attempt == 1
    assert decided.offer == ONE
    assert decided.price == Rate(804_800_000)


def test_a_bid_waits_for_local_supply_first() -> None:
    with pytest.raises(spill.BurstNotDue) as refused:
        choose(now=LATER - timedelta(seconds=1))
    assert refused.value.details["due_at"] == LATER


def test_a_deadline_at_risk_ends_the_wait() -> None:
    rules = replace(RULES, wait_seconds=86_400)
    tight = replace(BID, deadline=NOON + timedelta(hours=2))
    last_chance = NOON + timedelta(minutes=50)

    assert spill.due_at(tight, rules) == last_chance - timedelta(seconds=rules.risk_seconds)
    assert choose(tight, rules=rules, now=last_chance).offer == ONE
    with pytest.raises(spill.DeadlineOutOfReach):
        choose(tight, rules=rules, now=last_chance + timedelta(seconds=1))


def test_nothing_is_rented_long_before_the_bid_may_start() -> None:
    tomorrow = replace(BID, earliest_start=NOON + DAY, deadline=NOON + 2 * DAY)

    assert spill.due_at(tomorrow, RULES) == NOON + DAY - timedelta(seconds=RULES.boot_seconds)


def test_a_bid_that_does_not_allow_it_never_spills() -> None:
    with pytest.raises(spill.BurstNotAllowed):
        choose(replace(BID, burst_allowed=False))


def test_a_bid_that_is_filled_or_gone_does_not_spill() -> None:
    with pytest.raises(spill.BidNotWaiting):
        choose(replace(BID, is_open=False))


def test_one_instance_at_a_time_for_a_bid() -> None:
    under_way = Attempt(number=1, cloud="fake", spec=ONE.spec, reason=None, over_at=None)

    with pytest.raises(spill.BurstUnderWay):
        choose(attempts=[under_way])


def test_attempts_are_bounded_and_say_why_they_failed() -> None:
    attempts = [failed(number) for number in range(1, RULES.attempts_max + 1)]

    with pytest.raises(spill.AttemptsExhausted) as refused:
        choose(attempts=attempts)
    assert refused.value.details["reasons"] == ["capacity"] * RULES.attempts_max


def test_the_pause_between_attempts_doubles() -> None:
    other = cloud_offer(zone="zone-b")
    just_now = [replace(failed(number), over_at=LATER) for number in (1, 2)]

    with pytest.raises(spill.BurstBackingOff) as refused:
        choose(offers=[other], attempts=just_now)
    assert refused.value.details["until"] == LATER + timedelta(seconds=120)
    later = choose(offers=[other], attempts=just_now, now=LATER + timedelta(seconds=120))
    assert later.attempt == 3


def test_a_zone_without_capacity_is_not_tried_again_but_another_is() -> None:
    other = cloud_offer(zone="zone-b", nanos=900_000_000)

    assert choose(offers=[ONE, other], attempts=[failed(1)]).offer == other
    with pytest.raises(spill.NoCloudOffer):
        choose(offers=[ONE], attempts=[failed(1)])


def test_a_quota_rules_out_the_type_in_every_zone() -> None:
    other_zone, other_type = cloud_offer(zone="zone-b"), cloud_offer("big-l4", nanos=950_000_000)

    decided = choose(offers=[ONE, other_zone, other_type], attempts=[failed(1, reason="quota")])

    assert decided.offer == other_type


def test_a_cloud_that_did_not_answer_may_be_tried_again() -> None:
    assert choose(attempts=[failed(1, reason="unavailable")]).offer == ONE


def test_a_limit_is_compared_with_the_price_of_a_gpu_not_of_an_instance() -> None:
    eight = cloud_offer("eight-l4", gpus=8, nanos=8 * 2_000_000_000)

    assert choose(bid_for(gpus=8), [eight]).floor == Rate(2_000_000_000)


def test_a_bid_pays_for_the_whole_instance_and_not_only_the_gpus_it_needs() -> None:
    eight = cloud_offer("eight-l4", gpus=8, nanos=8 * 1_000_000_000)

    with pytest.raises(spill.CloudTooDear) as refused:
        choose(bid_for(gpus=2), [eight])
    assert refused.value.details["limit_needed"] == Rate(4_000_000_000)
    assert choose(bid_for(gpus=4), [eight]).floor == Rate(2_000_000_000)


def test_the_margin_counts_against_the_limit() -> None:
    rules = replace(RULES, margin_ppm=100_000)
    offer = cloud_offer(nanos=1_818_181_818)

    assert choose(offers=[offer], rules=rules).floor.nanos_per_gpu_hour == 2_000_000_000
    with pytest.raises(spill.CloudTooDear):
        choose(offers=[cloud_offer(nanos=1_818_181_819)], rules=rules)


def test_prices_of_another_currency_are_not_compared() -> None:
    with pytest.raises(spill.NoCloudOffer):
        choose(offers=[replace(ONE, price=InstancePrice(1, "EUR"))])


def test_spot_only_for_bids_that_may_be_interrupted() -> None:
    spot = cloud_offer(nanos=200_000_000, spot=True)

    assert choose(offers=[ONE, spot]).offer == ONE
    assert choose(bid_for(spot=True), [ONE, spot]).offer == spot


def test_labels_that_the_instance_will_bear_can_be_asked_for() -> None:
    here = replace(BID, labels=(("zone", "zone-b"),))

    assert choose(here, [ONE, cloud_offer(zone="zone-b")]).offer.spec.zone == "zone-b"
    with pytest.raises(spill.NoCloudOffer):
        choose(replace(BID, labels=(("rack", "7"),)))


def test_labels_that_the_bid_leaves_out_are_not_rented() -> None:
    other_zone = cloud_offer(zone="zone-b", nanos=900_000_000)

    elsewhere = replace(BID, not_labels=(("zone", "zone-a"),))

    assert choose(elsewhere, [ONE, other_zone]).offer == other_zone


@pytest.mark.parametrize(
    ("need", "served"),
    [
        ({"regions": ("region",)}, True),
        ({"regions": ("region-1",)}, True),
        ({"regions": ("moon", "region")}, True),
        ({"regions": ("region-1-west",)}, False),
        ({"regions": ("reg",)}, False),
        ({"not_regions": ("moon",)}, True),
        ({"not_regions": ("region",)}, False),
        ({"not_models": ("A100",)}, True),
        ({"not_models": ("L4",)}, False),
        ({"nvlink_min": 2}, False),
    ],
)
def test_a_machine_is_rented_only_where_and_as_the_bid_says(
    need: dict[str, object], served: bool
) -> None:
    if served:
        assert choose(bid_for(**need)).offer == ONE
        return
    with pytest.raises(spill.NoCloudOffer):
        choose(bid_for(**need))


@pytest.mark.parametrize(
    ("asked", "conditions"),
    [
        ({"at_home": ("tenant",)}, ["tenant"]),
        ({"at_home": ("host",), "driver_min": "580"}, ["host", "driver"]),
        ({"driver_min": "570"}, ["driver"]),
    ],
)
def test_nothing_is_rented_that_cannot_be_what_the_bid_asks_for(
    asked: dict[str, object], conditions: list[str]
) -> None:
    with pytest.raises(spill.NoCloudWillDo) as refused:
        choose(replace(BID, **asked))  # type: ignore[arg-type]  # fields by name

    assert refused.value.details["conditions"] == conditions


def test_a_driver_can_be_asked_for_where_that_of_the_machines_is_known() -> None:
    rules = replace(RULES, driver="580.82.07")

    assert choose(replace(BID, driver_min="580.65"), rules=rules).offer == ONE
    with pytest.raises(spill.NoCloudWillDo):
        choose(replace(BID, driver_min="580.95"), rules=rules)


def test_the_token_differs_by_bid_attempt_type_zone_and_spot() -> None:
    offers = [ONE, cloud_offer("x"), cloud_offer(zone="zone-b"), cloud_offer(spot=True)]
    tokens = {spill.token_of(BID.bid_id, n, offer) for n in (1, 2) for offer in offers}

    assert len(tokens) == 8
    assert all(len(token) == 64 for token in tokens)


bids = st.builds(
    lambda wait, lead, slack, duration, limit, gpus: replace(
        bid_for(gpus=gpus),
        since=NOON - timedelta(seconds=wait),
        earliest_start=NOON + timedelta(seconds=lead),
        deadline=NOON + timedelta(seconds=lead + duration + slack),
        duration_seconds=duration,
        limit=Rate(limit),
    ),
    wait=st.integers(0, 100_000),
    lead=st.integers(-10_000, 10_000),
    slack=st.integers(0, 100_000),
    duration=st.integers(60, 500_000),
    limit=st.integers(1, 10**11),
    gpus=st.integers(1, 8),
)
offers_ = st.lists(
    st.builds(
        cloud_offer,
        st.sampled_from(["a", "b", "c"]),
        zone=st.sampled_from(["x", "y"]),
        gpus=st.integers(1, 8),
        nanos=st.integers(1, 10**11),
        spot=st.booleans(),
    ),
    max_size=8,
)
rules_ = st.builds(
    SpillRules,
    wait_seconds=st.integers(0, 5_000),
    boot_seconds=st.integers(0, 2_000),
    margin_ppm=st.integers(0, 500_000),
)


@given(bid=bids, offers=offers_, rules=rules_)
def test_whatever_is_rented_serves_the_bid_in_time_within_its_limit_and_pays_for_itself(
    bid: Waiting, offers: list[CloudOffer], rules: SpillRules
) -> None:
    try:
        decided = choose(bid, offers, rules=rules, now=NOON)
    except Refusal:
        return
    hour = 3_600_000
    offer = decided.offer
    assert offer.serves(bid.need)
    assert decided.floor.nanos_per_gpu_hour <= bid.limit.nanos_per_gpu_hour
    assert decided.floor.charge(bid.need.gpus * hour).nanos >= offer.price.nanos_per_instance_hour
    up_at = NOON + timedelta(seconds=rules.boot_seconds)
    assert up_at + timedelta(seconds=bid.duration_seconds) <= bid.deadline
    starts_at = max(up_at, bid.earliest_start)
    ends_at = starts_at + timedelta(seconds=bid.duration_seconds)
    assert NOON + timedelta(seconds=decided.ttl_seconds) >= ends_at
    assert decided.worst.nanos >= 0


@given(bid=bids, offers=offers_, rules=rules_, seed=st.randoms(use_true_random=False))
def test_the_order_in_which_clouds_are_asked_does_not_matter(
    bid: Waiting, offers: list[CloudOffer], rules: SpillRules, seed: object
) -> None:
    shuffled = list(offers)
    seed.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis' Random

    assert outcome(bid, offers, rules) == outcome(bid, shuffled, rules)


def outcome(bid: Waiting, offers: list[CloudOffer], rules: SpillRules) -> object:
    try:
        decided = choose(bid, offers, rules=rules, now=NOON)
    except Refusal as refused:
        return refused.code
    return decided.floor, decided.offer.spec


@given(bid=bids, rules=rules_)
def test_a_bid_is_due_before_its_last_chance_or_at_once(bid: Waiting, rules: SpillRules) -> None:
    due_at = spill.due_at(bid, rules)

    assert due_at >= bid.since
    assert due_at <= max(bid.since, spill.last_chance(bid, rules))
