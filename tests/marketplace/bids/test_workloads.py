"""What kinds of workload need, and what an offer allows."""

from __future__ import annotations

import pytest

from marketplace.domain.bids import workload_profiles
from marketplace.domain.bids.workload_profiles import (
    ENVELOPES,
    SLICES,
    advise,
    allowed_by,
    complete,
    smallest_slices,
)
from marketplace.domain.facts.events import GpuRequest


def test_a_7b_model_is_served_on_the_smallest_slice_that_holds_it() -> None:
    best = smallest_slices("inference-7b")[0]

    assert (best.model, best.profile) == ("A100-80GB", "1g.20gb")
    assert best.share_ppm == 1_000_000 // 7


def test_a_70b_model_needs_several_cards() -> None:
    assert smallest_slices("inference-70b") == ()
    assert smallest_slices("inference-70b", gpus=4)[0].memory_mib >= 187 * 1024 // 4


@pytest.mark.parametrize("kind", sorted(ENVELOPES))
def test_slices_come_smallest_first_and_all_of_them_fit(kind: str) -> None:
    need = ENVELOPES[kind].memory_mib

    found = smallest_slices(kind)

    assert list(found) == sorted(found)
    assert all(each.memory_mib >= need for each in found)
    assert {each for each in SLICES if each.memory_mib >= need} == set(found)


def test_a_request_that_says_what_it_needs_is_left_alone() -> None:
    for said in (GpuRequest(models=("T4",)), GpuRequest(memory_mib_min=1)):
        assert complete(said, "training-13b", gpus=1) == said


def test_memory_is_shared_by_the_gpus_of_a_bid() -> None:
    assert complete(GpuRequest(), "inference-70b", gpus=4).memory_mib_min == 187 * 1024 // 4


def test_an_offer_takes_kinds_by_name_and_by_family() -> None:
    assert allowed_by((), "render")
    assert allowed_by(("inference",), "inference-7b")
    assert allowed_by(("inference-7b",), "inference-7b")
    assert not allowed_by(("inference-13b", "training"), "inference-7b")


def test_an_unknown_kind_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(workload_profiles.WorkloadUnknown) as caught:
        workload_profiles.workload_named("mining")

    assert "other" in caught.value.details["known"]  # type: ignore[operator]  # a list of names


@pytest.mark.parametrize("kind", sorted(ENVELOPES))
def test_advice_names_the_smallest_sizes_that_hold_the_kind_each_once(kind: str) -> None:
    advice = advise(kind, gpus=2)

    sizes = [(each.memory_mib, each.share_ppm) for each in advice.slices]
    assert sizes == sorted(set(sizes))
    assert all(each.memory_mib >= advice.memory_mib for each in advice.slices)
    assert advice.memory_mib * 2 >= ENVELOPES[kind].memory_mib
    if ENVELOPES[kind].memory_mib:
        best = smallest_slices(kind, gpus=2)
        assert advice.slices[:1] == best[:1]


def test_nothing_is_advised_for_what_nothing_is_known_of() -> None:
    assert advise("other").slices == ()


@pytest.mark.parametrize("isolation", [None, "whole", "mig"])
def test_shares_are_advised_only_to_who_takes_them(isolation: str | None) -> None:
    assert {each.isolation for each in advise("interactive").slices} <= {"whole", "mig"}
    assert advise("interactive", isolation=isolation) == advise("interactive")


def test_shares_are_among_the_smallest_slices_of_who_takes_them() -> None:
    slices = advise("interactive", isolation="mps").slices

    assert [(each.memory_mib, each.model, each.profile, each.isolation) for each in slices[:2]] == [
        (4 * 1024, "A100-40GB", "1g.5gb", "mig"),
        (39 * 1024 // 8, "A100-40GB", "mps.12.5gb", "mps"),
    ]
    assert slices[1].share_ppm == 120_000
    assert advise("interactive", gpus=2, isolation="mps") == advise("interactive", gpus=2)
