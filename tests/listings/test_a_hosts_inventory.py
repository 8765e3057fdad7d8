from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import load
from listings import commands
from listings.domain.gpus import GpuNamedTwice, GpuUnreadable, TooManyGpus, model_matches, model_of
from listings.domain.hosts import Host, HostIsRetired, HostTermsDiffer
from listings.domain.terms import LabelsUnreadable, NameUnreadable, TitleUnreadable
from tests.conftest import NOON
from tests.listings.conftest import ADA, HOST, OTHER_HOST, OWNER, gpu

REGISTERED: dict[str, Any] = {
    "host_id": HOST,
    "tenant_id": OWNER,
    "title": "Lab 3, rack 2",
    "market": "eu",
    "region": "eu-west",
    "labels": (("rack", "2"),),
    "by": ADA,
    "now": NOON,
}


def report(store: MemoryStore, *gpus: Any) -> int:
    return commands.report_inventory(store, host_id=HOST, gpus=gpus, by=ADA, now=NOON)


def test_registering_again_is_harmless_with_the_same_terms_only(market: MemoryStore) -> None:
    head = market.head()

    commands.register_host(market, **REGISTERED)

    assert market.head() == head
    with pytest.raises(HostTermsDiffer):
        commands.register_host(market, **(REGISTERED | {"region": "eu-north"}))


def test_only_a_changed_inventory_is_recorded(market: MemoryStore) -> None:
    head = market.head()

    report(market, gpu("GPU-b"), gpu("GPU-a"))
    assert market.head() == head

    report(market, gpu("GPU-a", driver="590.1"))
    host = load(market, Host, HOST)
    assert host is not None
    assert list(host.gpus) == ["GPU-a"]
    assert host.gpus["GPU-a"].driver == "590.1"


@pytest.mark.parametrize(
    "wrong",
    [
        {"uuid": "GPU a"},
        {"model": " "},
        {"model": "H100\x00"},
        {"memory_mib": 0},
        {"memory_mib": 2**40},
        {"compute_capability": "nine"},
        {"driver": ""},
        {"nvlink_group": "x" * 201},
        {"mig_profiles": ("9g.80gb",)},
        {"mig_profiles": ("1g.10gb",) * 65},
    ],
)
def test_a_report_with_one_unreadable_gpu_changes_nothing(
    market: MemoryStore, wrong: dict[str, Any]
) -> None:
    head = market.head()

    with pytest.raises(GpuUnreadable):
        report(market, gpu("GPU-new"), gpu(**wrong))

    assert market.head() == head


def test_a_gpu_is_reported_once_and_a_host_has_not_too_many(market: MemoryStore) -> None:
    with pytest.raises(GpuNamedTwice):
        report(market, gpu("GPU-a"), gpu("GPU-a"))
    with pytest.raises(TooManyGpus):
        report(market, *(gpu(f"GPU-{n}") for n in range(257)))


def test_a_retired_host_reports_nothing_more(market: MemoryStore) -> None:
    commands.retire_host(market, host_id=HOST, by=ADA, now=NOON)

    with pytest.raises(HostIsRetired):
        report(market, gpu("GPU-c"))


@pytest.mark.parametrize(
    ("field", "value", "refusal"),
    [
        ("title", "  ", TitleUnreadable),
        ("title", "x" * 121, TitleUnreadable),
        ("market", "EU", NameUnreadable),
        ("region", "", NameUnreadable),
        ("labels", (("rack", ""),), LabelsUnreadable),
    ],
)
def test_a_host_out_of_bounds_is_refused(
    store: MemoryStore, field: str, value: object, refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        commands.register_host(store, **(REGISTERED | {"host_id": OTHER_HOST, field: value}))

    assert store.head() == 0


@pytest.mark.parametrize(
    ("driver", "market_name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-80GB"),
        ("NVIDIA H100 PCIe", "H100-PCIE"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", "H100-80GB-3g.40gb"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb+me", "A100-SXM4-40GB-1g.5gb+me"),
    ],
)
def test_models_have_the_markets_names(driver: str, market_name: str) -> None:
    assert model_of(driver) == market_name


@given(st.text(min_size=1, max_size=60))
def test_a_normal_name_is_normal(name: str) -> None:
    assert model_of(model_of(name)) == model_of(name)


@pytest.mark.parametrize(
    ("asked", "model", "met"),
    [
        ("H100", "H100-80GB", True),
        ("h100 80gb", "H100-80GB", True),
        ("A100-40GB", "A100-SXM4-40GB", True),
        ("H100", "GH100-80GB", False),
        ("H100-94GB", "H100-80GB", False),
        ("H100", "H100-80GB-3g.40gb", False),
        ("H100 3g.40gb", "H100-80GB-3g.40gb", True),
    ],
)
def test_a_wider_name_is_met_by_a_narrower_model(asked: str, model: str, met: bool) -> None:
    assert model_matches(asked, model) is met
