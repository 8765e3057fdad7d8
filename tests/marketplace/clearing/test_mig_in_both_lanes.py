"""MIG instances are leased by their profile, in both lanes, and never as the card they are of."""

from __future__ import annotations

from datetime import timedelta

import pytest

from marketplace.domain.bids.query_language import read_query
from marketplace.domain.facts.events import Patience
from tests.conftest import NOON
from tests.marketplace.support.market import Market, named


@pytest.mark.parametrize("patience", ["immediate", "patient"])
@pytest.mark.parametrize(
    ("query", "host"),
    [
        ("gpu=H100-1g.10gb", "small"),
        ("gpu=H100-80GB-3g.40gb isolation=mig", "half"),
        ("gpu=H100", "whole"),
        ("gpu=H100 isolation=mps", "whole"),
        ("gpu=L4 isolation=mps", "shared"),
        ("gpu=L4", "shared"),
        ("gpu=L4 isolation=mig", None),
        ("gpu=H100-4g.40gb", None),
        ("gpu=H100-1g.10gb isolation=whole", None),
    ],
)
def test_a_bid_gets_the_slice_it_names_at_the_isolation_it_asks(
    query: str, host: str | None, patience: Patience
) -> None:
    market = Market()
    market.offer("small", gpus=2, model="H100-80GB-1g.10gb", isolation="mig", at=1)
    market.offer("half", model="H100-80GB-3g.40gb", isolation="mig", at=1)
    market.offer("whole", model="H100-80GB", at=3)
    market.offer("shared", model="L4", isolation="mps", at=1)
    market.bid("x", at=5, request=read_query(query), patience=patience)

    market.run()

    granted = market.grant("x")
    found = None if granted is None else granted.shares[0].host_id
    assert found == (None if host is None else named(f"host {host}"))


@pytest.mark.parametrize("patience", ["immediate", "patient"])
def test_each_instance_is_leased_once_at_a_time(patience: Patience) -> None:
    market = Market()
    market.offer("small", gpus=2, model="H100-80GB-1g.10gb", isolation="mig", at=1)
    soon = NOON + timedelta(hours=1)
    for word in ("x", "y", "z"):
        request = read_query("gpu=H100-1g.10gb")
        market.bid(word, at=5, request=request, patience=patience, deadline=soon)

    market.run()

    taken = [uuid for each in market.grants().values() for uuid in each.shares[0].gpu_uuids]
    assert sorted(taken) == ["small:0", "small:1"]
