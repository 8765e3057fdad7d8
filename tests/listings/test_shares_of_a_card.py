"""A card that is leased in parts: what the parts are, and what cannot be offered beside them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from ledger.domain.ids import OfferId
from ledger.domain.money import Rate
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import load
from listings import commands
from listings.domain.divisions import (
    SharesUnfit,
    are_rivals,
    compute_ppm,
    divide,
    read_share,
)
from listings.domain.events import Division, Gpu, Part
from listings.domain.gpus import GpuUnreadable, IsolationUnfit, TooManyGpus, model_matches, model_of
from listings.domain.hosts import GpuListedAlready
from listings.domain.offers import Offer
from listings.domain.terms import OfferTermsDiffer
from tests.conftest import NOON
from tests.listings.conftest import ADA, HOST, OFFER, OTHER_OFFER, gpu, publish, span, terms

QUARTERS = Division("mps", 4)
UNEQUAL = Division("mps", parts=(Part(40_000, 60), Part(20_000, 25), Part(21_559, 15)))
THIRD_OFFER = OfferId(UUID(int=102))
CARD = gpu("GPU-a", model="H100-80GB")


def listed(store: MemoryStore) -> tuple[Gpu, ...]:
    offer = load(store, Offer, OFFER)
    assert offer is not None
    return offer.published.gpus


def test_a_card_in_four_shares_is_four_gpus_of_a_quarter_each(market: MemoryStore) -> None:
    publish(market, wanted=terms(division=QUARTERS))

    shares = listed(market)
    assert [each.uuid for each in shares] == [
        f"GPU-a/mps-{number}of4/25pct-20389mib" for number in (1, 2, 3, 4)
    ]
    assert {each.card_uuid for each in shares} == {"GPU-a"}
    assert {(each.memory_mib, each.compute_percent) for each in shares} == {(20_389, 25)}
    assert {each.model for each in shares} == {"H100-80GB-mps.25.20gb"}
    offer = load(market, Offer, OFFER)
    assert offer is not None
    assert offer.published.isolation == "mps"


def test_shares_may_be_unequal() -> None:
    shares = divide(CARD, UNEQUAL)

    assert [(each.compute_percent, each.memory_mib) for each in shares] == [
        (60, 40_000),
        (25, 20_000),
        (15, 21_559),
    ]
    assert sum(map(compute_ppm, shares)) == 1_000_000


def test_time_slices_are_equal_in_time_and_promise_memory() -> None:
    shares = divide(CARD, Division("timeslice", parts=(Part(60_000), Part(10_000), Part(5_000))))

    assert [(each.compute_percent, each.memory_mib) for each in shares] == [
        (33, 60_000),
        (33, 10_000),
        (33, 5_000),
    ]
    assert shares[2].model == "H100-80GB-slice.33.5gb"


@pytest.mark.parametrize(
    ("division", "of"),
    [
        (Division("mps", 1), {}),
        (Division("mps", 49), {}),
        (Division("mps", 3, UNEQUAL.parts[:2]), {}),
        (Division("mps", parts=(Part(40_000, 60), Part(40_000, 41))), {}),
        (Division("mps", parts=(Part(40_000, 50), Part(41_560, 50))), {}),
        (Division("mps", parts=(Part(1_000, 50),)), {}),
        (Division("mps", parts=(Part(40_000),)), {}),
        (Division("mps", parts=(Part(40_000, 0),)), {}),
        (Division("timeslice", parts=(Part(40_000, 50),)), {}),
        (Division("timeslice", 48), {"memory_mib": 24_000}),
        (QUARTERS, {"compute_capability": "6.1"}),
        (QUARTERS, {"uuid": "GPU-" + "a" * 80}),
        (QUARTERS, {"model": "H" * 60}),
        (QUARTERS, {"mig_profiles": ("3g.40gb",), "mig_enabled": True}),
    ],
)
def test_what_a_card_cannot_be_divided_into_is_refused(
    division: Division, of: dict[str, Any]
) -> None:
    with pytest.raises(SharesUnfit):
        divide(replace(CARD, **of), division)


def test_the_id_of_a_share_says_what_it_is() -> None:
    for share in (*divide(CARD, QUARTERS), *divide(CARD, UNEQUAL)):
        said = read_share(share.uuid)
        assert said is not None
        assert said.card_uuid == "GPU-a"
        assert said.compute_percent == share.compute_percent
        assert said.memory_mib == share.memory_mib
    for uuid in ("GPU-a", "MIG-GPU-a/1/0", "GPU-a/mps-1of4", "GPU-a/mig-1of4/25pct-1mib"):
        assert read_share(uuid) is None


def test_shares_of_one_division_are_beside_each_other_and_rivals_of_all_else() -> None:
    quarters, unequal = divide(CARD, QUARTERS), divide(CARD, UNEQUAL)
    slices = divide(CARD, Division("timeslice", 4))

    assert not are_rivals(quarters[0].uuid, quarters[1].uuid)
    assert not are_rivals(quarters[0].uuid, quarters[0].uuid)
    assert not are_rivals("GPU-a", "GPU-b")
    assert not are_rivals(quarters[0].uuid, "GPU-b")
    assert are_rivals(quarters[0].uuid, "GPU-a")
    assert are_rivals("GPU-a", quarters[0].uuid)
    assert are_rivals(quarters[0].uuid, unequal[1].uuid)
    assert are_rivals(quarters[3].uuid, slices[3].uuid)


def test_a_share_is_a_kind_of_its_cards_model() -> None:
    model = "L4-mps.25.6gb"

    assert model_of(model) == model
    assert model_matches("L4", model)
    assert model_matches(model, model)
    assert not model_matches(model, "L4")
    assert not model_matches("L4-mps.50.12gb", model)


def test_isolation_follows_from_the_shares_and_cannot_be_declared_without(
    market: MemoryStore,
) -> None:
    for wanted in (
        terms(division=QUARTERS, isolation="whole"),
        terms(division=QUARTERS, isolation="timeslice"),
        terms(isolation="mps"),
        terms(isolation="timeslice"),
    ):
        with pytest.raises(IsolationUnfit):
            publish(market, wanted=wanted)


def test_shares_count_towards_the_gpus_of_an_offer(market: MemoryStore) -> None:
    cards = [gpu(f"GPU-{number}", memory_mib=81_559) for number in range(6)]
    commands.report_inventory(market, host_id=HOST, gpus=cards, by=ADA, now=NOON)

    with pytest.raises(TooManyGpus):
        publish(market, wanted=terms(*(c.uuid for c in cards), division=Division("mps", 48)))


def test_no_agent_may_report_a_gpu_by_the_name_of_a_share(market: MemoryStore) -> None:
    share = divide(CARD, QUARTERS)[0]

    with pytest.raises(GpuUnreadable):
        commands.report_inventory(market, host_id=HOST, gpus=[share], by=ADA, now=NOON)


def test_publishing_shares_again_changes_nothing_even_when_the_card_looks_different(
    market: MemoryStore,
) -> None:
    publish(market, wanted=terms(division=QUARTERS))
    commands.report_inventory(
        market, host_id=HOST, gpus=[gpu("GPU-a", memory_mib=81_920)], by=ADA, now=NOON
    )

    head = market.head()

    publish(market, wanted=terms(division=QUARTERS), now=NOON + timedelta(days=1))

    assert market.head() == head
    for other in (Division("mps", 2), Division("timeslice", 4), None):
        with pytest.raises(OfferTermsDiffer):
            publish(market, wanted=terms(division=other))


@pytest.mark.parametrize(
    ("first", "second"),
    [(None, QUARTERS), (QUARTERS, None), (QUARTERS, QUARTERS), (QUARTERS, Division("mps", 2))],
)
def test_a_card_is_offered_in_one_form_at_a_time(
    market: MemoryStore, first: Division | None, second: Division | None
) -> None:
    publish(market, wanted=terms(division=first))
    head = market.head()

    with pytest.raises(GpuListedAlready):
        publish(market, OTHER_OFFER, terms(division=second, floor=Rate(1)))

    assert market.head() == head
    publish(market, OTHER_OFFER, terms(division=second, windows=(span(14, 8),)))


@pytest.mark.parametrize("form", [None, QUARTERS])
def test_a_card_is_not_offered_beside_its_mig_instances(
    market: MemoryStore, form: Division | None
) -> None:
    publish(market, wanted=terms(division=form))
    parts = [
        gpu(f"MIG-{n}", mig_profiles=("3g.40gb",), mig_enabled=True, memory_mib=40_192)
        for n in (1, 2)
    ]
    cards = {part.uuid: "GPU-a" for part in parts}
    commands.report_inventory(market, host_id=HOST, gpus=parts, cards=cards, by=ADA, now=NOON)

    with pytest.raises(GpuListedAlready):
        publish(market, OTHER_OFFER, terms("MIG-1", isolation="mig"))

    later = {"isolation": "mig", "windows": (span(14, 8),)}
    publish(market, OTHER_OFFER, terms("MIG-1", **later))
    publish(market, THIRD_OFFER, terms("MIG-2", **later))
