"""What a bid asks for in its query and no rented machine can be: then none is rented for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bursting.commands.spilling import waiting_of
from bursting.domain.spill import NoCloudWillDo
from marketplace.domain.bids.bid import Bid
from marketplace.domain.bids.query_language import read_query
from tests.bursting.market import BID, Market

HOST = "host=00000000-0000-4000-8000-00000000000a"


@pytest.mark.parametrize(
    ("query", "conditions"),
    [
        ("gpu=L4 memory>=20GiB not-" + HOST, ()),
        ("notice>=2m", ()),
        ("tenant=own", ("tenant",)),
        (HOST, ("host",)),
        ("reliability>=0.9", ("reliability",)),
        ("starts<=1h", ("starts",)),
        ("availability>=0.5", ("availability",)),
        ("notice>=3m", ("notice",)),
        ("reclaim>=1%", ("reclaim",)),
        ("grace>=60s", ()),
        ("grace>=61s", ("grace",)),
        ("tenant=own notice>=1h", ("tenant", "notice")),
    ],
)
def test_what_it_asks_for_keeps_it_at_home(query: str, conditions: tuple[str, ...]) -> None:
    bid = Bid.evolve(None, replace(BID, request=read_query(query)))

    assert waiting_of(bid).at_home == conditions


def test_nothing_is_rented_and_no_attempt_is_spent() -> None:
    market = Market(bid=replace(BID, request=read_query("gpu=L4 notice>=1h")))

    with pytest.raises(NoCloudWillDo) as refused:
        market.spill()

    assert refused.value.details["conditions"] == ["notice"]
    assert market.intended() == []
