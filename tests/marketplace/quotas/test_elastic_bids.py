"""A bid that makes do with less gets what its quotas and limits leave, in both lanes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ledger.domain.ids import TenantId
from marketplace.domain.facts.events import Patience
from marketplace.domain.facts.policy_events import LimitSet
from tests.marketplace.support.market import MARKET, Market, named

TENANT = TenantId(named("tenant"))


def limited(**most: Any) -> Market:
    """Return a market in which one organisation has a limit."""
    market = Market()
    none: dict[str, Any] = {"gpus": None, "memory_mib": None, "gpu_hours": None, "money": None}
    said = LimitSet(
        market=MARKET,
        scope="tenant",
        subject=TENANT,
        tenant_id=TENANT,
        period="month",
        at=market.now,
        **{**none, **most},
    )
    market.put(f"quotas-{MARKET}", said)
    return market


def gpus_of(market: Market, word: str) -> int:
    granted = market.grant(word)
    return 0 if granted is None else sum(len(share.gpu_uuids) for share in granted.shares)


@pytest.mark.parametrize("patience", ["immediate", "patient"])
@pytest.mark.parametrize("first", ["the offer", "the bid"])
def test_it_gets_fewer_gpus_where_a_limit_leaves_fewer(first: str, patience: Patience) -> None:
    market = limited(gpus=2)
    if first == "the offer":
        market.offer("a", gpus=4)
    market.bid("x", gpus=4, gpus_min=1, tenant=TENANT, patience=patience)
    market.run()
    if first == "the bid":
        market.offer("a", gpus=4)
    market.wait(minutes=2)
    market.run()

    assert gpus_of(market, "x") == 2


def test_it_gets_less_time_where_a_limit_leaves_less() -> None:
    market = limited(gpu_hours=2)
    market.offer("a", gpus=4)

    market.bid("x", hours=4, duration_min_seconds=3_600, tenant=TENANT)
    market.run()

    granted = market.grant("x")
    assert granted is not None and granted.window.length == timedelta(hours=2)


def test_it_waits_where_a_limit_leaves_less_than_its_least() -> None:
    market = limited(gpus=2)
    market.offer("a", gpus=4)

    market.bid("x", gpus=4, gpus_min=3, tenant=TENANT)
    market.run()

    assert gpus_of(market, "x") == 0
    market.bid("y", gpus=2, tenant=TENANT)
    market.run()
    assert gpus_of(market, "y") == 2
