"""A card that its owner divides by MIG in the offer: which instances, where, and beside what."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import load
from listings import commands
from listings.domain import mig
from listings.domain.divisions import (
    MigLayoutImpossible,
    MigModeOn,
    SharesUnfit,
    are_rivals,
    card_of,
    check_division,
    compute_ppm,
    divide,
    read_share,
    weighed,
)
from listings.domain.events import Division, Gpu
from listings.domain.gpus import GpuUnreadable, IsolationUnfit
from listings.domain.hosts import GpuListedAlready
from listings.domain.offers import Offer
from listings.domain.terms import OfferTermsDiffer, cards_of
from tests.conftest import NOON
from tests.listings.conftest import ADA, HOST, OFFER, OTHER_OFFER, gpu, publish, span, terms

CARD = gpu("GPU-a", model="H100-80GB", mig_enabled=True)
MIXED = Division("mig", profiles=("3g.40gb", "2g.20gb", "1g.10gb"))
SEVEN = Division("mig", 7, profiles=("1g.10gb",))


@pytest.fixture
def divisible(market: MemoryStore) -> MemoryStore:
    """The host's two cards are in MIG mode."""
    cards = [gpu("GPU-a", mig_enabled=True), gpu("GPU-b", mig_enabled=True)]
    commands.report_inventory(market, host_id=HOST, gpus=cards, by=ADA, now=NOON)
    return market


def listed(store: MemoryStore) -> Offer:
    offer = load(store, Offer, OFFER)
    assert offer is not None
    return offer


def test_a_card_is_listed_as_the_instances_its_owner_names(divisible: MemoryStore) -> None:
    publish(divisible, wanted=terms(division=MIXED))

    offer = listed(divisible).published
    assert offer.isolation == "mig"
    assert [each.uuid for each in offer.gpus] == [
        "GPU-a/mig-3g.40gb@0-3",
        "GPU-a/mig-2g.20gb@4-5",
        "GPU-a/mig-1g.10gb@6-6",
    ]
    assert [each.model for each in offer.gpus] == [
        "H100-80GB-3g.40gb",
        "H100-80GB-2g.20gb",
        "H100-80GB-1g.10gb",
    ]
    assert [each.memory_mib >> 10 for each in offer.gpus] == [39, 19, 9]
    assert [compute_ppm(each) for each in offer.gpus] == [428_571, 285_714, 142_857]
    assert all(each.compute_percent is None and each.card_uuid == "GPU-a" for each in offer.gpus)
    assert cards_of(offer) == ("GPU-a",)


def test_a_count_of_one_profile_is_that_many_instances(divisible: MemoryStore) -> None:
    publish(divisible, wanted=terms("GPU-a", "GPU-b", division=SEVEN))

    gpus = listed(divisible).published.gpus
    assert len(gpus) == 14
    assert [each.uuid for each in gpus[:2]] == ["GPU-a/mig-1g.10gb@0-0", "GPU-a/mig-1g.10gb@1-1"]
    head = divisible.head()
    publish(
        divisible, wanted=terms("GPU-a", "GPU-b", division=Division("mig", 0, (), ("1g.10gb",) * 7))
    )
    assert divisible.head() == head
    with pytest.raises(OfferTermsDiffer):
        publish(divisible, wanted=terms("GPU-a", "GPU-b", division=MIXED))


@pytest.mark.parametrize(
    ("profiles", "least"),
    [
        (("3g.40gb", "3g.40gb", "1g.10gb"), ("3g.40gb", "3g.40gb", "1g.10gb")),
        (("4g.40gb", "4g.40gb"), ("4g.40gb", "4g.40gb")),
        (("7g.80gb", "1g.10gb"), ("7g.80gb", "1g.10gb")),
        (("1g.10gb+me", "1g.10gb+me"), ("1g.10gb+me", "1g.10gb+me")),
        (("2g.20gb", "7g.80gb", "2g.20gb"), ("7g.80gb", "2g.20gb")),
    ],
)
def test_profiles_that_cannot_be_together_are_named(
    divisible: MemoryStore, profiles: tuple[str, ...], least: tuple[str, ...]
) -> None:
    head = divisible.head()

    with pytest.raises(MigLayoutImpossible) as refused:
        publish(divisible, wanted=terms(division=Division("mig", profiles=profiles)))

    assert sorted(named(refused.value)) == sorted(least)
    assert refused.value.details["gpu_uuid"] == "GPU-a"
    assert divisible.head() == head


@pytest.mark.parametrize(
    ("division", "of", "reason"),
    [
        (MIXED, {"mig_enabled": False}, "MIG mode is off: nvidia-smi -i GPU-a -mig 1"),
        (MIXED, {"model": "L4"}, "MIG cannot divide the model L4"),
        (MIXED, {"mig_profiles": ("3g.40gb",)}, "cannot be divided again"),
        (Division("mig", profiles=("5g.60gb",)), {}, "its profiles are 1g.10gb, 1g.10gb.me"),
        (MIXED, {"uuid": "GPU-" + "a" * 90}, "too long"),
    ],
)
def test_a_card_that_cannot_be_divided_so_says_why(
    division: Division, of: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SharesUnfit) as refused:
        divide(replace(CARD, **of), division)
    assert reason.replace(".me", "+me") in str(refused.value.details["reason"])


@pytest.mark.parametrize(
    "division",
    [
        Division("mig"),
        Division("mig", 4),
        Division("mig", 9, profiles=("1g.10gb",)),
        Division("mig", 3, profiles=("1g.10gb", "2g.20gb")),
        Division("mig", profiles=("1g.10gb",) * 9),
        Division("mps", 2, profiles=("1g.10gb",)),
    ],
)
def test_a_division_without_clear_profiles_is_refused(division: Division) -> None:
    with pytest.raises(SharesUnfit):
        check_division(division)


def test_a_card_in_mig_mode_is_leased_in_instances_only(divisible: MemoryStore) -> None:
    for wanted in (terms(), terms(isolation="cooperative"), terms(division=Division("mps", 2))):
        with pytest.raises(MigModeOn):
            publish(divisible, wanted=wanted)
    with pytest.raises(IsolationUnfit):
        publish(divisible, wanted=terms(division=MIXED, isolation="whole"))


def test_a_divided_card_is_in_no_other_offer_at_that_time(divisible: MemoryStore) -> None:
    publish(divisible, wanted=terms(division=Division("mig", profiles=("3g.40gb",))))

    other = Division("mig", profiles=("2g.20gb",))
    with pytest.raises(GpuListedAlready):
        publish(divisible, OTHER_OFFER, terms(division=other))

    publish(divisible, OTHER_OFFER, terms(division=other, windows=(span(14, 8),)))


def test_a_divided_card_is_not_offered_beside_instances_its_owner_made(
    divisible: MemoryStore,
) -> None:
    publish(divisible, wanted=terms(division=MIXED))
    made = gpu("MIG-1", mig_profiles=("3g.40gb",), mig_enabled=True, memory_mib=40_192)
    cards = {"MIG-1": "GPU-a"}
    commands.report_inventory(divisible, host_id=HOST, gpus=[made], cards=cards, by=ADA, now=NOON)

    with pytest.raises(GpuListedAlready):
        publish(divisible, OTHER_OFFER, terms("MIG-1", isolation="mig"))


def test_no_agent_may_report_a_gpu_by_the_name_of_such_an_instance(market: MemoryStore) -> None:
    (first, *_) = divide(CARD, MIXED)

    with pytest.raises(GpuUnreadable):
        commands.report_inventory(market, host_id=HOST, gpus=[first], by=ADA, now=NOON)


def test_instances_are_rivals_where_they_take_the_same_slices() -> None:
    three, two, one = (each.uuid for each in divide(CARD, MIXED))
    halves = [each.uuid for each in divide(CARD, Division("mig", profiles=("3g.40gb",) * 2))]

    assert halves[0] == three and not are_rivals(halves[0], three)
    assert not are_rivals(three, halves[1])
    assert are_rivals(two, halves[1]) and are_rivals(halves[1], one)
    assert are_rivals(three, "GPU-a") and are_rivals("GPU-a", three)
    assert not are_rivals(three, "GPU-b") and not are_rivals(three, two)
    assert are_rivals(three, "GPU-a/mps-1of4/25pct-20389mib")
    assert are_rivals("GPU-a/mig-1g.10gb+me@0-0", "GPU-a/mig-1g.10gb+me@6-6")
    assert not are_rivals("GPU-a/mig-1g.10gb@0-0", "GPU-a/mig-1g.10gb+me@6-6")


def test_time_on_an_instance_weighs_its_part_of_the_card() -> None:
    assert weighed("GPU-a/mig-3g.40gb@0-3", 7_000) == 3_000
    assert weighed("GPU-a/mig-1g.6gb@0-0", 8_000) == 2_000
    assert sum(weighed(each.uuid, 700) for each in divide(CARD, check(SEVEN))) == 700


def check(division: Division) -> Division:
    checked = check_division(division)
    assert checked is not None
    return checked


def named(refused: MigLayoutImpossible) -> list[str]:
    profiles = refused.details["profiles"]
    assert isinstance(profiles, tuple)
    return list(profiles)


CARDS = {name: gpu("GPU-a", model=name, mig_enabled=True) for name in mig.CARDS}


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Gpu, tuple[str, ...]]:
    model = draw(st.sampled_from(sorted(CARDS)))
    names = [each.name for each in mig.CARDS[model].profiles]
    return CARDS[model], tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=8)))


@given(layouts())
def test_what_is_published_is_what_the_card_can_be(wanted: tuple[Gpu, tuple[str, ...]]) -> None:
    """Instances have places of the card, share no slice, and are refused exactly if they must."""
    card, profiles = wanted
    model = mig.CARDS[card.model]
    try:
        made = divide(card, check(Division("mig", profiles=profiles)))
    except MigLayoutImpossible as refused:
        least = named(refused)
        assert not mig.coexist(model, least)
        for name in set(least):
            fewer = least.copy()
            fewer.remove(name)
            assert mig.coexist(model, fewer)
        return
    assert sorted(each.mig_profiles[0] for each in made) == sorted(profiles)
    assert sum(map(compute_ppm, made)) <= 1_000_000
    for each in made:
        said = read_share(each.uuid)
        profile = model.profile(each.mig_profiles[0])
        assert said is not None and profile is not None
        assert said.first in profile.starts and said.last == said.first + profile.memory - 1
        assert card_of(each.uuid) == "GPU-a" and said.kind == "mig"
    assert not any(are_rivals(one.uuid, other.uuid) for one, other in combinations(made, 2))


@given(layouts(), layouts())
def test_instances_of_two_layouts_that_are_no_rivals_can_be_on_a_card_together(
    one: tuple[Gpu, tuple[str, ...]], other: tuple[Gpu, tuple[str, ...]]
) -> None:
    """So the market may lease what an older layout leaves free."""
    card = one[0]
    model = mig.CARDS[card.model]
    kept: list[Gpu] = []
    for profiles in (one[1], other[1]):
        try:
            made = divide(card, check(Division("mig", profiles=profiles)))
        except (MigLayoutImpossible, SharesUnfit):
            continue
        there = list(kept)
        kept += [
            each
            for each in made
            if not any(are_rivals(each.uuid, old.uuid) or each.uuid == old.uuid for old in there)
        ]
    assert sum(map(compute_ppm, kept)) <= 1_000_000
    assert mig.coexist(model, [each.mig_profiles[0] for each in kept])
