"""Reading what people ask of a GPU, and saying where a query goes wrong."""

from __future__ import annotations

import string
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.ids import HostId
from ledger.domain.refusal import Refusal
from marketplace.domain.bids import query_language
from marketplace.domain.bids.query_language import CONDITIONS, ISOLATIONS, read_query, write_query
from marketplace.domain.facts.events import GpuRequest

HOSTS = (HostId(UUID(int=1)), HostId(UUID(int=2)))


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("", GpuRequest()),
        ("gpu=H100,A100", GpuRequest(models=("H100", "A100"))),
        ('gpu="RTX 4090"', GpuRequest(models=("RTX 4090",))),
        ("memory>=40GiB", GpuRequest(memory_mib_min=40_960)),
        ("memory>=40", GpuRequest(memory_mib_min=40_960)),
        ("memory>=40gb", GpuRequest(memory_mib_min=40_960)),
        ("memory>=1500MiB", GpuRequest(memory_mib_min=1_500)),
        ("compute>=8.0 nvlink", GpuRequest(compute_capability_min="8.0", nvlink=True)),
        ("nvlink=yes", GpuRequest(nvlink=True)),
        ("nvlink=no", GpuRequest()),
        ("nvlink>=4", GpuRequest(nvlink=True, nvlink_min=4)),
        ("driver>=570.86", GpuRequest(driver_min="570.86")),
        ("tenant=own", GpuRequest(own=True)),
        (f"host={HOSTS[1]},{HOSTS[0]}", GpuRequest(hosts=HOSTS)),
        (f"not-host={HOSTS[0]}", GpuRequest(not_hosts=HOSTS[:1])),
        ("  region=eu   isolation=mig ", GpuRequest(region="eu", isolation="mig")),
        ("reliability>=0.99", GpuRequest(reliability_min_ppm=990_000)),
        ("reliability>=1", GpuRequest(reliability_min_ppm=1_000_000)),
        ("prefer=label.rack,region", GpuRequest(prefer=("label.rack", "region"))),
        ("prefer=nvlink", GpuRequest(prefer=("nvlink",))),
        ("share>=50% isolation=mps", GpuRequest(compute_percent_min=50, isolation="mps")),
        ("share>=100", GpuRequest(compute_percent_min=100)),
        ("region=eu,us-east", GpuRequest(region="eu", other_regions=("us-east",))),
        (
            "gpu=A100 gpu!=A100-PCIE,A30",
            GpuRequest(models=("A100",), not_models=("A100-PCIE", "A30")),
        ),
        ("region!=eu-west region=eu", GpuRequest(region="eu", not_regions=("eu-west",))),
        (
            "label.team!=x label.team=y",
            GpuRequest(labels=(("team", "y"),), not_labels=(("team", "x"),)),
        ),
        ("label.team=x label.a=b", GpuRequest(labels=(("a", "b"), ("team", "x")))),
    ],
)
def test_a_query_reads_as_what_it_asks(text: str, request_: GpuRequest) -> None:
    assert read_query(text) == request_


@pytest.mark.parametrize(
    ("text", "refusal", "column"),
    [
        ("gpu=H100 !", query_language.ConditionUnreadable, 10),
        ('gpu="H100', query_language.ConditionUnreadable, 1),
        ("gpu=H100 colour=red", query_language.ConditionUnknown, 10),
        ("gpu=H100 gpu=A100", query_language.ConditionRepeated, 10),
        ("label.a=b label.a=c", query_language.ConditionRepeated, 11),
        ("gpu!=H100 gpu!=A100", query_language.ConditionRepeated, 11),
        ("memory!=40GiB", query_language.ComparisonUnfit, 1),
        ("tenant!=own", query_language.ComparisonUnfit, 1),
        ("region!=", query_language.ValueUnreadable, 1),
        ("region=eu,", query_language.ValueUnreadable, 1),
        ("label.a!=", query_language.ValueUnreadable, 1),
        ("memory=40GiB", query_language.ComparisonUnfit, 1),
        ("memory<=40GiB", query_language.ComparisonUnfit, 1),
        ("gpu>=H100", query_language.ComparisonUnfit, 1),
        ("gpu", query_language.ComparisonUnfit, 1),
        ("memory>=lots", query_language.ValueUnreadable, 1),
        ("reliability>=99", query_language.ValueUnreadable, 1),
        ("reliability>=0", query_language.ValueUnreadable, 1),
        ("reliability>=0.9999999", query_language.ValueUnreadable, 1),
        ("reliability=0.9", query_language.ComparisonUnfit, 1),
        ("prefer=colour", query_language.ValueUnreadable, 1),
        ("prefer=region,region", query_language.ValueUnreadable, 1),
        ("memory>=0", query_language.ValueUnreadable, 1),
        ("memory>=-4GiB", query_language.ValueUnreadable, 1),
        ("memory>=99999999TiB", query_language.ValueUnreadable, 1),
        ("compute>=nine", query_language.ValueUnreadable, 1),
        ("gpu=", query_language.ValueUnreadable, 1),
        ("gpu=H100,,A100", query_language.ValueUnreadable, 1),
        ("share>=0%", query_language.ValueUnreadable, 1),
        ("share>=101%", query_language.ValueUnreadable, 1),
        ("share>=half", query_language.ValueUnreadable, 1),
        ("share=50%", query_language.ComparisonUnfit, 1),
        ("isolation=total", query_language.ValueUnreadable, 1),
        ("nvlink=maybe", query_language.ValueUnreadable, 1),
        ("nvlink=", query_language.ValueUnreadable, 1),
        ("nvlink>=1", query_language.ValueUnreadable, 1),
        ("nvlink>=many", query_language.ValueUnreadable, 1),
        ("nvlink<=4", query_language.ComparisonUnfit, 1),
        ("driver=570", query_language.ComparisonUnfit, 1),
        ("driver>=new", query_language.ValueUnreadable, 1),
        ("tenant=others", query_language.ValueUnreadable, 1),
        ("host=gpu-12", query_language.ValueUnreadable, 1),
        ("label.=x", query_language.ValueUnreadable, 1),
    ],
)
def test_a_query_that_cannot_be_read_is_refused_at_its_place(
    text: str, refusal: type[Refusal], column: int
) -> None:
    with pytest.raises(refusal) as caught:
        read_query(text)

    assert caught.value.details["column"] == column


def test_a_query_has_an_end() -> None:
    with pytest.raises(query_language.QueryTooLong):
        read_query("gpu=" + "x" * 1_000)


@pytest.mark.parametrize("condition", [c for c in CONDITIONS.values() if c.name != "label.NAME"])
def test_the_example_of_every_condition_can_be_read(condition: Any) -> None:
    assert read_query(condition.example) != GpuRequest()


WORD = st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=12)
PHRASE = st.lists(WORD, min_size=1, max_size=3).map(" ".join)
REQUESTS = st.builds(
    GpuRequest,
    models=st.lists(PHRASE, max_size=3).map(tuple),
    memory_mib_min=st.none() | st.integers(1, 16 * 1024 * 1024),
    compute_capability_min=st.none() | st.sampled_from(["7.0", "8.6", "10.0"]),
    nvlink=st.booleans(),
    region=st.just("eu"),
    other_regions=st.lists(PHRASE, max_size=3).map(tuple),
    not_models=st.lists(PHRASE, max_size=3).map(tuple),
    not_regions=st.lists(PHRASE, max_size=3).map(tuple),
    not_labels=st.dictionaries(WORD, PHRASE, max_size=3).map(lambda d: tuple(sorted(d.items()))),
    isolation=st.none() | st.sampled_from(ISOLATIONS),
    compute_percent_min=st.none() | st.integers(1, 100),
    driver_min=st.none() | st.sampled_from(["570", "570.86", "570.86.10"]),
    hosts=st.lists(st.sampled_from(HOSTS), unique=True).map(sorted).map(tuple),
    not_hosts=st.lists(st.sampled_from(HOSTS), unique=True).map(sorted).map(tuple),
    own=st.booleans(),
    labels=st.dictionaries(WORD, PHRASE, max_size=3).map(lambda d: tuple(sorted(d.items()))),
)


@given(REQUESTS)
def test_every_request_can_be_written_and_reads_back_equal(request_: GpuRequest) -> None:
    for labels in (request_.labels, request_.not_labels):
        names = {name.lower() for name, _ in labels}
        if len(names) < len(labels):
            return  # one label in two spellings cannot be said

    assert read_query(write_query(request_)) == request_


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read = read_query(text)
    except Refusal:
        return
    assert read_query(write_query(read)) == read
