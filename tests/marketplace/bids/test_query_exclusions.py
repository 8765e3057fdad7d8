"""Query words that take several regions, or leave out models, regions and labels."""

from __future__ import annotations

import pytest

from listings.domain.events import Division
from marketplace.domain.bids.bounds import RequestUnreadable, check_request
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.facts.events import GpuRequest, Patience
from marketplace.domain.verification.verify_round import faults
from tests.marketplace.support.market import Market, named
from tests.marketplace.support.rounds import book_of, cleared


@pytest.fixture
def market() -> Market:
    return hosts()


def hosts() -> Market:
    """Return a market with A100s in parts of eu, an H100 in asia, an A100 by MIG in us."""
    market = Market()
    market.offer("here", model="A100-80GB", region="eu-west", labels=(("team", "x"),), at=1)
    market.offer("there", model="A100-80GB", region="eu-east", at=2)
    market.offer("far", model="H100-80GB", region="asia", labels=(("team", "y"),), at=3)
    third = Division("mig", profiles=("3g.20gb",))
    market.offer("card", model="A100-40GB", region="us", at=4, division=third)
    return market


@pytest.mark.parametrize("patience", ["immediate", "patient"])
@pytest.mark.parametrize(
    ("query", "host"),
    [
        ("region=eu", "here"),
        ("region=asia,eu-east", "there"),
        ("region=asia,africa", "far"),
        ("region=africa", None),
        ("region!=eu", "far"),
        ("region!=eu-west", "there"),
        ("region=eu region!=eu-west,eu-east", None),
        ("gpu!=A100-80GB", "far"),
        ("gpu!=A100,H100", None),
        ("gpu=A100 gpu!=A100-40GB", "here"),
        ("gpu=A100-40GB-3g.20gb", "card"),
        ("gpu=A100-40GB-3g.20gb gpu!=A100-40GB", None),
        ("label.team!=x", "there"),
        ("label.team!=y", "here"),
        ("label.team=y label.team!=x", "far"),
        ("label.team=x label.team!=x", None),
    ],
)
def test_a_bid_goes_to_none_that_it_leaves_out(
    market: Market, query: str, host: str | None, patience: Patience
) -> None:
    market.bid("x", request=read_query(query), at=9, patience=patience)
    market.run()

    granted = market.grant("x")
    found = None if granted is None else granted.shares[0].host_id
    assert found == (None if host is None else named(f"host {host}"))


@pytest.mark.parametrize(
    "query", ["region!=eu", "gpu!=A100", "label.team!=x", "region=asia,us,eu-east"]
)
def test_the_independent_check_knows_what_is_left_out(query: str) -> None:
    any_will_do, picky = hosts(), hosts()
    any_will_do.bid("x", at=9, patience="patient")
    picky.bid("x", at=9, patience="patient", request=read_query(query))
    told, grants = cleared(book_of(any_will_do))
    assert grants[0].shares[0].host_id == named("host here")

    assert faults(book_of(any_will_do), told, grants) == []
    assert "is not what was asked for" in str(faults(book_of(picky), told, grants))


@pytest.mark.parametrize(
    "request_",
    [
        GpuRequest(other_regions=("eu",)),
        GpuRequest(region="eu", other_regions=tuple(f"r{each}" for each in range(12))),
        GpuRequest(not_regions=("a,b",)),
        GpuRequest(not_models=("A100,H100",)),
        GpuRequest(not_models=tuple(f"A{each}" for each in range(17))),
        GpuRequest(not_labels=(("no name", "x"),)),
        GpuRequest(not_labels=(("name", '"'),)),
    ],
)
def test_a_request_that_the_language_cannot_write_is_refused(request_: GpuRequest) -> None:
    with pytest.raises(RequestUnreadable):
        check_request(request_)
