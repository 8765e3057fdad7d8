"""What every cloud promises, run against each of them; above all: one intent, one instance."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from bursting.clouds.faults import Verb, When
from bursting.clouds.port import (
    CapacityUnavailable,
    CloudUnavailable,
    InstanceNotVisible,
    LaunchRefused,
    PriceAboveCap,
    QuotaExceeded,
    TokenReused,
)
from bursting.domain.capacity import GpuNeed, InstancePrice, InstanceSpec

if TYPE_CHECKING:
    from tests.contracts.clouds.conftest import Rig

TAGS = {"offpeak:market": "site-a", "offpeak:bid": "bid-1"}


def test_offers_serve_the_need_and_come_cheapest_first(rig: Rig) -> None:
    need = GpuNeed(gpus=8, gpu_memory_mib_min=40_000)

    offers = rig.cloud.offers(need)

    assert offers
    assert all(offer.serves(need) and offer.cloud == rig.cloud.name for offer in offers)
    prices = [offer.nanos_per_gpu_hour for offer in offers]
    assert prices == sorted(prices)


def test_an_offer_states_the_price_of_an_instance_and_derives_that_of_a_gpu(rig: Rig) -> None:
    offer = rig.cloud.offers(GpuNeed(gpus=8, gpu_models=("H100",)))[0]

    assert offer.gpus == 8
    assert offer.price == InstancePrice(55_040_000_000)
    assert offer.nanos_per_gpu_hour == 6_880_000_000


def test_no_offers_for_what_the_cloud_does_not_have(rig: Rig) -> None:
    assert list(rig.cloud.offers(GpuNeed(gpus=9))) == []
    assert list(rig.cloud.offers(GpuNeed(gpus=1, regions=("the-moon-1",)))) == []
    assert list(rig.cloud.offers(GpuNeed(gpus=1, nvlink=True, gpu_models=("L4",)))) == []
    assert list(rig.cloud.offers(GpuNeed(gpus=1, gpu_models=("Voodoo2",)))) == []


def test_a_compute_capability_is_compared_as_a_number(rig: Rig) -> None:
    newer = rig.cloud.offers(GpuNeed(gpus=1, compute_capability_min="8.9"))

    assert {offer.gpu_model.split("-")[0] for offer in newer} >= {"L4", "H100"}
    assert all(offer.compute_capability in ("8.9", "9.0") for offer in newer)
    assert list(rig.cloud.offers(GpuNeed(gpus=1, compute_capability_min="10.0"))) == []


def test_spot_is_offered_only_where_it_will_do(rig: Rig) -> None:
    firm = rig.cloud.offers(GpuNeed(gpus=1, gpu_models=("L4",)))
    either = rig.cloud.offers(GpuNeed(gpus=1, gpu_models=("L4",), spot=True))

    assert not any(offer.spec.spot for offer in firm)
    assert {offer.spec.spot for offer in either} == {False, True}


def test_a_launched_instance_is_what_was_asked_for(rig: Rig) -> None:
    spec = rig.spec()

    instance = rig.launch(spec=spec)

    assert instance.spec == spec
    assert instance.gpus == 1
    assert instance.token == "token-1"
    assert instance.tags == TAGS
    assert instance.launched_at.utcoffset() == timedelta(0)
    assert [seen.state for seen in rig.cloud.describe([instance.instance_id])] == ["running"]


def test_an_instance_tells_its_model_and_the_price_of_the_whole_of_it(rig: Rig) -> None:
    for need in (GpuNeed(gpus=1, gpu_models=("L4",)), GpuNeed(gpus=8, gpu_models=("H100",))):
        offer = rig.cloud.offers(need)[0]

        launched = rig.launch(token=offer.spec.instance_type, spec=offer.spec)

        for told in (launched, *rig.cloud.describe([launched.instance_id])):
            assert (told.gpus, told.gpu_model) == (offer.gpus, offer.gpu_model)
            assert told.price == offer.price


def test_a_spot_instance_tells_the_price_of_spot(rig: Rig) -> None:
    need = GpuNeed(gpus=1, gpu_models=("L4",), spot=True)
    offer = next(each for each in rig.cloud.offers(need) if each.spec.spot)

    launched = rig.launch(spec=offer.spec)

    assert launched.price == offer.price
    assert rig.cloud.find(token="token-1")[0].price == offer.price


def test_an_instance_tells_when_it_ended_and_not_before(rig: Rig) -> None:
    launched = rig.launch()
    assert launched.ended_at is None

    rig.cloud.terminate(launched.instance_id)

    (seen,) = rig.cloud.describe([launched.instance_id])
    assert seen.ended_at is not None
    assert seen.ended_at.utcoffset() == timedelta(0)
    assert seen.ended_at >= launched.launched_at - timedelta(seconds=1)


def test_a_spot_instance_says_that_it_is_one(rig: Rig) -> None:
    assert rig.launch(spec=rig.spec(spot=True)).spec.spot


def test_the_same_token_starts_one_instance(rig: Rig) -> None:
    first = rig.launch()
    again = rig.launch()

    assert again.instance_id == first.instance_id
    assert rig.alive() == [first.instance_id]


def test_another_token_starts_another_instance(rig: Rig) -> None:
    assert rig.launch(token="a").instance_id != rig.launch(token="b").instance_id


def test_the_same_token_with_another_zone_tags_or_ttl_is_refused(rig: Rig) -> None:
    first = rig.launch()

    with pytest.raises(TokenReused):
        rig.launch(spec=rig.spec(other_zone=True))
    with pytest.raises(TokenReused):
        rig.launch(tags={"offpeak:market": "site-b"})
    with pytest.raises(TokenReused):
        rig.launch(ttl=timedelta(hours=3))
    with pytest.raises(TokenReused):
        rig.launch(environment={"OFFPEAK_HOST_ID": "another"})
    assert rig.alive() == [first.instance_id]


def test_a_token_does_not_bring_back_an_instance_that_has_ended(rig: Rig) -> None:
    rig.cloud.terminate(rig.launch().instance_id)

    with pytest.raises(TokenReused):
        rig.launch()
    assert rig.alive() == []


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_launch_that_fails_and_is_asked_again_starts_one_instance(
    rig: Rig, when: When, times: int
) -> None:
    rig.faults.fail("launch", times=times, when=when)
    for _ in range(times):
        with pytest.raises(CloudUnavailable) as trouble:
            rig.launch()
        assert trouble.value.retryable
        assert trouble.value.outcome_unknown

    instance = rig.launch()

    assert rig.alive() == [instance.instance_id]


def test_a_launch_that_happened_unknown_to_us_is_found_by_its_tags(rig: Rig) -> None:
    rig.faults.fail("launch", when="after")
    with pytest.raises(CloudUnavailable):
        rig.launch()

    found = rig.cloud.find(tags={"offpeak:market": "site-a"})

    assert [instance.token for instance in found] == ["token-1"]


def test_find_wants_all_tags_and_the_token(rig: Rig) -> None:
    mine = rig.launch(token="a", tags={"offpeak:market": "x", "offpeak:bid": "1"})
    other = rig.launch(token="b", tags={"offpeak:market": "x", "offpeak:bid": "2"})

    def ids(*, token: str | None = None, tags: dict[str, str] | None = None) -> set[str]:
        return {found.instance_id for found in rig.cloud.find(token=token, tags=tags)}

    assert ids(tags={"offpeak:market": "x"}) == {mine.instance_id, other.instance_id}
    assert ids(tags={"offpeak:market": "x", "offpeak:bid": "2"}) == {other.instance_id}
    assert ids(token="a", tags={"offpeak:bid": "2"}) == set()
    assert ids(token="a") == {mine.instance_id}
    assert ids() == {mine.instance_id, other.instance_id}


def test_an_instance_may_not_be_seen_at_once(rig: Rig) -> None:
    rig.faults.invisible_polls = 2

    instance = rig.launch()

    assert list(rig.cloud.describe([instance.instance_id])) == []
    with pytest.raises(InstanceNotVisible):
        rig.cloud.terminate(instance.instance_id)
    assert list(rig.cloud.find(token="token-1")) == []
    assert rig.alive() == [instance.instance_id]


def test_an_instance_not_yet_seen_is_still_the_one_of_its_token(rig: Rig) -> None:
    rig.faults.invisible_polls = 5
    first = rig.launch()
    assert list(rig.cloud.find(token="token-1")) == []

    assert rig.launch().instance_id == first.instance_id


def test_an_instance_is_pending_until_it_runs(rig: Rig) -> None:
    rig.faults.pending_polls = 2
    instance_id = rig.launch().instance_id

    states = [rig.cloud.describe([instance_id])[0].state for _ in range(3)]

    assert states == ["pending", "pending", "running"]


def test_terminating_twice_is_fine(rig: Rig) -> None:
    instance_id = rig.launch().instance_id

    rig.cloud.terminate(instance_id)
    rig.cloud.terminate(instance_id)

    assert [seen.state for seen in rig.cloud.describe([instance_id])] == ["terminated"]


def test_describe_tells_when_an_ending_instance_has_ended(rig: Rig) -> None:
    rig.faults.terminating_polls = 1
    instance_id = rig.launch().instance_id

    rig.cloud.terminate(instance_id)

    states = [rig.cloud.describe([instance_id])[0].state for _ in range(2)]
    assert states == ["terminating", "terminated"]


def test_terminate_may_fail_several_times_and_then_succeed(rig: Rig) -> None:
    instance_id = rig.launch().instance_id
    rig.faults.fail("terminate", times=3)
    for _ in range(3):
        with pytest.raises(CloudUnavailable):
            rig.cloud.terminate(instance_id)
    assert rig.alive() == [instance_id]

    rig.cloud.terminate(instance_id)

    assert rig.alive() == []


def test_terminating_what_the_cloud_never_saw_is_told(rig: Rig) -> None:
    with pytest.raises(InstanceNotVisible):
        rig.cloud.terminate("i-00000000000000000")


def test_describe_leaves_out_what_it_does_not_know_and_keeps_the_order(rig: Rig) -> None:
    one, two = (rig.launch(token=token).instance_id for token in ("a", "b"))

    seen = rig.cloud.describe([two, "i-00000000000000000", one])

    assert [instance.instance_id for instance in seen] == [two, one]
    assert list(rig.cloud.describe([])) == []


def test_a_zone_without_capacity_is_told_and_another_one_serves(rig: Rig) -> None:
    rig.faults.room[rig.spec().zone] = 0

    with pytest.raises(CapacityUnavailable):
        rig.launch(token="attempt-1")
    instance = rig.launch(token="attempt-2", spec=rig.spec(other_zone=True))

    assert rig.alive("attempt-1") == []
    assert rig.alive("attempt-2") == [instance.instance_id]


def test_a_quota_is_not_a_want_of_capacity_and_is_freed_by_ending_one(rig: Rig) -> None:
    rig.faults.quota = 1
    first = rig.launch(token="a")
    with pytest.raises(QuotaExceeded):
        rig.launch(token="b")

    rig.cloud.terminate(first.instance_id)

    assert rig.launch(token="b").instance_id != first.instance_id


def test_a_price_above_the_cap_starts_nothing(rig: Rig) -> None:
    with pytest.raises(PriceAboveCap):
        rig.launch(max_price=InstancePrice(804_799_999))
    with pytest.raises(PriceAboveCap):
        rig.launch(max_price=InstancePrice(100_000_000_000, "EUR"))
    assert rig.alive() == []

    rig.launch(max_price=InstancePrice(804_800_000))
    assert len(rig.alive()) == 1


def test_a_cap_below_the_price_still_returns_what_the_token_started(rig: Rig) -> None:
    first = rig.launch()

    assert rig.launch(max_price=InstancePrice(1)).instance_id == first.instance_id


def test_a_kind_that_the_cloud_does_not_have_is_refused(rig: Rig) -> None:
    with pytest.raises(LaunchRefused):
        rig.launch(spec=InstanceSpec(instance_type="voodoo2.large", zone=rig.spec().zone))


def test_a_notice_of_interruption_is_passed_on(rig: Rig) -> None:
    instance_id = rig.launch(spec=rig.spec(spot=True)).instance_id
    at = datetime(2026, 1, 5, 12, 2, tzinfo=UTC)
    assert list(rig.cloud.interruptions()) == []

    rig.faults.interrupt(instance_id, at=at, reason="marked-for-termination")

    notices = rig.cloud.interruptions()
    assert [(n.instance_id, n.at, n.reason) for n in notices] == [
        (instance_id, at, "marked-for-termination")
    ]


@pytest.mark.parametrize("verb", ["offers", "find", "describe", "interruptions"])
def test_a_cloud_that_does_not_answer_says_so_rather_than_nothing(rig: Rig, verb: Verb) -> None:
    instance_id = rig.launch().instance_id
    asks = {
        "offers": lambda: rig.cloud.offers(GpuNeed(gpus=1)),
        "find": lambda: rig.cloud.find(tags=TAGS),
        "describe": lambda: rig.cloud.describe([instance_id]),
        "interruptions": rig.cloud.interruptions,
    }
    rig.faults.fail(verb)

    with pytest.raises(CloudUnavailable):
        asks[verb]()
    asks[verb]()
