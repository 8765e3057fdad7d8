"""The demo where an installation has several markets: each machine and bid is on one of them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import listings.policies
import marketplace.policies
import metering.policies
from config.demo.founding import found
from config.demo.pump import Pump
from config.demo.seeding import found_platform
from config.demo.week import Week
from config.env import Env
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import load
from listings.domain.events import OfferPublished
from listings.domain.markets import read_markets
from marketplace.domain.facts.events import BidPlaced, LeaseGranted
from marketplace.domain.quotas.policies_in_force import Policies

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
MARKETS = read_markets("main", "eu=eu;us=us-east,us-west")


@pytest.mark.django_db
def test_each_machine_is_listed_governed_and_leased_on_its_market(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("config.demo.week.DAYS", 1)
    store = MemoryStore()
    policies = (
        *listings.policies.POLICIES,
        *marketplace.policies.policies(fee_ppm=50_000),
        *metering.policies.POLICIES,
    )
    pump, before = Pump(store, policies), NOON - timedelta(days=1, hours=1)
    found_platform(store, Env(), before)
    found(store, home=tmp_path, market="main", currency="USD", now=before, markets=MARKETS)
    pump.run()

    Week(store, pump, market="main", currency="USD", ends_at=NOON, markets=MARKETS).run()

    counted: Counter[tuple[str, str]] = Counter()
    for recorded in store.read_all(limit=100_000).events:
        if isinstance(event := recorded.event, OfferPublished | BidPlaced | LeaseGranted):
            counted[type(event).__name__, event.market] += 1
    for kind in ("OfferPublished", "BidPlaced", "LeaseGranted"):
        assert counted[kind, "eu"] and counted[kind, "us"], kind
    assert not counted["OfferPublished", "main"], "no machine is in any other region"
    assert load(store, Policies, "eu") and load(store, Policies, "us")
