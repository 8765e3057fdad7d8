"""A permit that speaks of a card holds for all that is cut from it, however it is listed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ledger.domain.money import Money, Rate
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Meta, load, record
from listings import commands
from listings.domain.events import (
    ByDemand,
    Chosen,
    Division,
    Form,
    Gpu,
    InventoryReported,
    Part,
)
from listings.domain.gpus import names_part
from listings.domain.hosts import Host
from listings.domain.offers import Offer
from listings.domain.permit_events import ListingAllowed
from listings.domain.permits import ListingNotAllowed, ListingPermits
from tests.conftest import NOON
from tests.listings.conftest import ADA, HOST, OFFER, OTHER_OFFER, OWNER, gpu, publish, terms

PLATFORM = Meta(actor="user:dean")
MPS = Division("mps", 4)
SLICES = Division("timeslice", parts=(Part(40_000), Part(20_000)))
INSTANCES = Division("mig", profiles=("3g.40gb", "1g.10gb"))


def say(store: MemoryStore, gpu_class: str, *, allowed: bool, everybody: bool = True) -> None:
    """Set a permit."""
    permitted = ListingAllowed(
        market="eu",
        tenant_id=None if everybody else OWNER,
        gpu_class=gpu_class,
        allowed=allowed,
        at=NOON,
    )
    commands.allow_listing(store, permitted=permitted, by_platform=True, by=PLATFORM)


def report(store: MemoryStore, *gpus: Gpu, cards: dict[str, str] | None = None) -> None:
    commands.report_inventory(store, host_id=HOST, gpus=gpus, cards=cards, by=ADA, now=NOON)


def instances(store: MemoryStore, *profiles: str, **fields: Any) -> Sequence[str]:
    """Report MIG instances as the agent does: by their card's name. Return the market's names."""
    made = [
        gpu(f"MIG-{number}", mig_profiles=(name,), mig_enabled=True, memory_mib=9_000, **fields)
        for number, name in enumerate(profiles)
    ]
    report(store, *made, cards={each.uuid: "GPU-a" for each in made})
    host = load(store, Host, HOST)
    assert host is not None
    return [host.gpus[each.uuid].model for each in made]


def models(store: MemoryStore) -> set[str]:
    offer = load(store, Offer, OFFER)
    assert offer is not None
    return {each.model for each in offer.published.gpus}


@pytest.mark.parametrize("gpu_class", ["H100", "H100-80GB", "h100", "any"])
@pytest.mark.parametrize(
    ("division", "first"),
    [
        (None, "H100-80GB"),
        (MPS, "H100-80GB-mps.25.20gb"),
        (SLICES, "H100-80GB-slice.50.20gb"),
        (INSTANCES, "H100-80GB-1g.10gb"),
    ],
    ids=["whole", "mps", "time slices", "mig"],
)
def test_who_may_not_list_a_card_lists_no_part_of_it(
    market: MemoryStore, gpu_class: str, division: Division | None, first: str
) -> None:
    report(market, gpu("GPU-a", mig_enabled=division is INSTANCES))
    say(market, gpu_class, allowed=False)

    with pytest.raises(ListingNotAllowed) as refused:
        publish(market, wanted=terms(division=division))

    assert refused.value.details["gpu_model"] == first
    assert load(market, Offer, OFFER) is None
    say(market, gpu_class, allowed=True)
    publish(market, wanted=terms(division=division))
    assert first in models(market)


@pytest.mark.parametrize("gpu_class", ["H100", "H100-1g.10gb", "H100-80GB-1g.10gb"])
def test_instances_that_the_agent_found_are_listed_as_what_they_are(
    market: MemoryStore, gpu_class: str
) -> None:
    assert instances(market, "1g.10gb") == ["H100-80GB-1g.10gb"]
    say(market, gpu_class, allowed=False)

    with pytest.raises(ListingNotAllowed) as refused:
        publish(market, wanted=terms("MIG-0", isolation="mig"))

    assert refused.value.details["gpu_model"] == "H100-80GB-1g.10gb"


@pytest.mark.parametrize(
    ("card", "profile", "model"),
    [
        ("NVIDIA H100 80GB HBM3", "3g.40gb", "H100-80GB-3g.40gb"),
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", "3g.40gb", "H100-80GB-3g.40gb"),
        ("NVIDIA H100 80GB HBM3", "1c.3g.40gb", "H100-80GB-1c.3g.40gb"),
        ("NVIDIA A100-SXM4-40GB", "1g.5gb", "A100-SXM4-40GB-1g.5gb"),
        ("NVIDIA H200", "1g.16gb", "H200-1g.18gb"),
        ("NVIDIA Z900", "1g.16gb", "Z900-1g.16gb"),
    ],
)
def test_an_instance_is_named_by_its_card_and_profile(
    market: MemoryStore, card: str, profile: str, model: str
) -> None:
    assert instances(market, profile, model=card) == [model]
    assert instances(market, profile, model=model) == [model], "its own name stays"
    assert names_part(model)


def test_inventories_of_before_are_named_when_they_are_listed(market: MemoryStore) -> None:
    old = gpu("MIG-0", model="H100-80GB", mig_profiles=("1g.10gb",), mig_enabled=True)
    known = InventoryReported(host_id=HOST, gpus=(old,), at=NOON)
    record(market, Host, HOST, lambda host: [known], by=ADA)
    say(market, "H100-1g.10gb", allowed=False)
    wanted = terms("MIG-0", isolation="mig")

    with pytest.raises(ListingNotAllowed):
        publish(market, wanted=wanted)

    say(market, "H100-1g.10gb", allowed=True)
    publish(market, wanted=wanted)
    assert models(market) == {"H100-80GB-1g.10gb"}


@pytest.mark.parametrize(
    ("card", "part", "division"),
    [
        ("H100", "H100-1g.10gb", INSTANCES),
        ("H100-80GB", "H100-1g.10gb", INSTANCES),
        ("H100-PCIE-80GB", "H100-1g.10gb", INSTANCES),
        ("H100-PCIE-80GB", "H100-mps.25.20gb", MPS),
        ("any", "H100-PCIE-80GB-slice.50.20gb", SLICES),
    ],
)
def test_what_names_the_part_comes_before_what_names_the_card(
    market: MemoryStore, card: str, part: str, division: Division
) -> None:
    pcie = gpu("GPU-a", model="NVIDIA H100 PCIe 80GB", mig_enabled=division is INSTANCES)
    report(market, pcie)
    say(market, part, allowed=False)
    say(market, card, allowed=True)
    with pytest.raises(ListingNotAllowed):
        publish(market, wanted=terms(division=division))

    permits = load(market, ListingPermits, "eu")
    assert permits is not None
    assert permits.may_list(OWNER, "H100-PCIE-80GB")
    assert permits.may_list(OWNER, "H100-PCIE-80GB-2g.20gb")
    say(market, card, allowed=False)
    say(market, part, allowed=True)
    permits = load(market, ListingPermits, "eu")
    assert permits is not None
    assert not permits.may_list(OWNER, "H100-PCIE-80GB")
    assert not permits.may_list(OWNER, "H100-PCIE-80GB-2g.20gb")
    assert permits.may_list(OWNER, f"H100-PCIE-80GB-{part.rpartition('-')[2]}")


def test_what_speaks_of_an_organisations_cards_comes_before_what_speaks_of_everybodys_parts(
    market: MemoryStore,
) -> None:
    say(market, "H100-mps.25.20gb", allowed=False)
    say(market, "H100", allowed=True, everybody=False)

    publish(market, wanted=terms(division=MPS))

    assert models(market) == {"H100-80GB-mps.25.20gb"}


def by_demand(*divisions: Division | None) -> ByDemand:
    return ByDemand(tuple(Form(each, Rate(1_000_000_000)) for each in divisions), 600)


@pytest.mark.parametrize("gpu_class", ["H100", "H100-mps.25.20gb"])
def test_an_offer_by_demand_is_refused_for_any_of_its_forms(
    market: MemoryStore, gpu_class: str
) -> None:
    say(market, gpu_class, allowed=False)

    for forms in (by_demand(None, MPS), by_demand(MPS, None)):
        with pytest.raises(ListingNotAllowed):
            publish(market, wanted=terms(by_demand=forms))


def test_a_form_that_may_no_longer_be_listed_is_not_taken(market: MemoryStore) -> None:
    publish(market, wanted=terms(by_demand=by_demand(None, MPS)))
    say(market, "H100-mps.25.20gb", allowed=False)
    offer = load(market, Offer, OFFER)
    assert offer is not None and offer.published.by_demand is not None
    head = market.head()

    with pytest.raises(ListingNotAllowed):
        commands.choose_form(
            market,
            offer=offer.published,
            form=offer.published.by_demand.forms[1],
            offer_id=OTHER_OFFER,
            chosen=Chosen(OFFER, Money(2, "USD"), Money(1, "USD"), 1, 1),
            by=Meta(actor="loop:forms"),
            now=NOON.replace(hour=13),
        )

    assert market.head() == head, "the offer stays as it is"


def test_a_repeat_of_an_offer_that_stands_is_no_new_listing(market: MemoryStore) -> None:
    before = publish(market, wanted=terms(division=MPS))
    say(market, "H100", allowed=False)

    assert publish(market, wanted=terms(division=MPS)) <= before
