"""Which MIG instances fit on one card together, against every way there is to place them."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.eventstore.memory import MemoryStore
from listings import commands
from listings.domain.gpus import MigImpossible, check_inventory
from listings.domain.mig import (
    CARDS,
    Placed,
    card_of,
    coexist,
    layout,
    placements,
    still_fits,
    too_many,
)
from tests.conftest import NOON
from tests.listings.conftest import ADA, HOST, gpu

A100, H100, A30 = CARDS["A100-40GB"], CARDS["H100-80GB"], CARDS["A30"]


def by_hand(card: str, names: tuple[str, ...]) -> bool:
    """Tell if any choice of starts leaves no slice used twice: no cleverness at all."""
    profiles = [CARDS[card].profile(name) for name in names]
    for starts in product(*(profile.starts for profile in profiles if profile)):
        slices = [
            at
            for profile, start in zip(profiles, starts, strict=True)
            if profile
            for at in range(start, start + profile.memory)
        ]
        if len(slices) == len(set(slices)) and sum("+me" in name for name in names) <= 1:
            return True
    return False


@pytest.mark.parametrize("name", sorted(CARDS))
def test_every_set_of_up_to_three_instances_is_judged_as_by_trying_all_places(name: str) -> None:
    card = CARDS[name]
    names = [profile.name for profile in card.profiles]

    for count in (1, 2, 3):
        for profiles in combinations_with_replacement(names, count):
            assert coexist(card, profiles) == by_hand(name, profiles), profiles


@given(st.lists(st.sampled_from(["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb"]), max_size=5))
def test_larger_sets_too(names: list[str]) -> None:
    assert coexist(H100, names) == by_hand("H100-80GB", tuple(names))


@given(st.lists(st.sampled_from([each.name for each in A100.profiles]), max_size=7))
def test_a_layout_uses_no_slice_twice_and_only_places_that_exist(names: list[str]) -> None:
    found = layout(A100, names)

    if found is not None:
        taken: list[int] = []
        for each in found:
            profile = A100.profile(each.profile)
            assert profile is not None
            assert each.start in placements(A100, each.profile)
            taken += range(each.start, each.start + profile.memory)
        assert len(taken) == len(set(taken))
        assert sorted(each.profile for each in found) == sorted(names)


@given(st.lists(st.sampled_from([each.name for each in A100.profiles]), max_size=6))
def test_what_still_fits_beside_a_layout_is_what_leaves_every_slice_to_one(
    names: list[str],
) -> None:
    there = layout(A100, names)
    if there is None:
        return

    fits = still_fits(A100, there)

    sizes = {profile.name: profile.memory for profile in A100.profiles}
    used = {at for each in there for at in range(each.start, each.start + sizes[each.profile])}
    for profile in A100.profiles:
        free = tuple(
            start
            for start in profile.starts
            if not used & set(range(start, start + profile.memory))
        )
        if profile.has_media and any("+me" in each.profile for each in there):
            free = ()
        assert fits.get(profile.name, ()) == free


def test_the_tables_of_the_user_guide_hold() -> None:
    assert coexist(A100, ["1g.5gb"] * 7)
    assert not coexist(A100, ["1g.5gb"] * 8)
    assert coexist(A100, ["3g.20gb", "3g.20gb"])
    assert coexist(A100, ["4g.20gb", "3g.20gb"])
    assert not coexist(A100, ["4g.20gb", "4g.20gb"])
    assert coexist(A100, ["2g.10gb", "2g.10gb", "2g.10gb", "1g.5gb"])
    assert not coexist(A100, ["3g.20gb", "3g.20gb", "1g.5gb"])
    assert coexist(H100, ["1g.20gb"] * 4)
    assert coexist(A30, ["2g.12gb", "1g.6gb", "1g.6gb"])
    assert not coexist(A30, ["4g.24gb", "1g.6gb"])
    assert not coexist(A100, ["1g.5gb+me", "1g.5gb+me"])


def test_an_instance_in_an_unlucky_place_stays_in_the_way() -> None:
    fits = still_fits(A100, [Placed(2, "1g.5gb"), Placed(4, "1g.5gb")])

    assert "3g.20gb" not in fits
    assert fits["2g.10gb"] == (0,)


def test_a_card_is_known_by_the_name_of_its_model() -> None:
    names = {
        "A100-SXM4-80GB": "A100-80GB",
        "A100-PCIE-40GB": "A100-40GB",
        "H100-PCIE": "H100-80GB",
        "H100-NVL": "H100-94GB",
        "GH200-480GB": "H100-96GB",
        "H200": "H200",
        "H100-80GB-3g.40gb": "H100-80GB",
    }
    for model, name in names.items():
        card = card_of(model)
        assert card is not None and card.name == name
    assert card_of("RTX-4090") is None


def test_a_profile_is_known_by_the_memory_an_agent_sees() -> None:
    found = CARDS["H200"].profile("1g.16gb")

    assert found is not None and found.name == "1g.18gb"
    assert A100.profile("5g.20gb") is None


def test_what_is_too_much_is_named() -> None:
    assert too_many(A100, ["1g.5gb", "4g.20gb", "4g.20gb"]) == ("4g.20gb", "4g.20gb")
    assert too_many(A100, ["1g.5gb"]) == ()


def test_a_report_of_instances_that_cannot_coexist_is_refused_and_changes_nothing(
    market: MemoryStore,
) -> None:
    before = list(market.read_stream(f"host-{HOST}"))
    whole = [gpu("MIG-a", mig_profiles=("4g.40gb",)), gpu("MIG-b", mig_profiles=("4g.40gb",))]

    with pytest.raises(MigImpossible) as caught:
        commands.report_inventory(
            market,
            host_id=HOST,
            gpus=whole,
            cards={"MIG-a": "GPU-a", "MIG-b": "GPU-a"},
            by=ADA,
            now=NOON,
        )

    assert caught.value.details == {"gpu_uuid": "GPU-a", "profiles": ("4g.40gb", "4g.40gb")}
    assert list(market.read_stream(f"host-{HOST}")) == before


def test_instances_of_two_cards_are_judged_apart() -> None:
    instances = [gpu("MIG-a", mig_profiles=("4g.40gb",)), gpu("MIG-b", mig_profiles=("4g.40gb",))]

    assert len(check_inventory(instances, {"MIG-a": "GPU-a", "MIG-b": "GPU-b"})) == 2
    assert len(check_inventory(instances, {})) == 2


def test_the_card_is_read_from_an_older_drivers_name() -> None:
    instances = [gpu(f"MIG-GPU-a/{n}/0", mig_profiles=("4g.40gb",)) for n in (1, 2)]

    with pytest.raises(MigImpossible):
        check_inventory(instances, {})


def test_a_card_is_not_listed_beside_its_own_parts() -> None:
    both = [gpu("GPU-a"), gpu("MIG-a", mig_profiles=("1g.10gb",))]

    with pytest.raises(MigImpossible):
        check_inventory(both, {"MIG-a": "GPU-a"})


def test_compute_instances_that_share_memory_are_not_counted_as_cards_parts() -> None:
    shared = [gpu(f"MIG-{n}", mig_profiles=("1c.3g.40gb",)) for n in range(3)]

    assert len(check_inventory(shared, {each.uuid: "GPU-a" for each in shared})) == 3
