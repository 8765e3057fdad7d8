"""The rest of a lease is sold with the terms it was granted on, whatever its owner says by now."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ledger.domain.ids import TenantId
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.facts.events import Patience, ResaleOpened
from marketplace.domain.facts.policy_events import LeastRunSet
from marketplace.queries.books import preview
from marketplace.queries.quotes import window_quotes
from tests.marketplace.support.market import MARKET, Market, named, rate
from tests.marketplace.support.minimum_runtime import tried
from tests.marketplace.support.promising import promise
from tests.marketplace.support.site import TERMS

HOUR = timedelta(hours=1)


def put_up(market: Market, word: str, *, hours: int, since: timedelta = timedelta()) -> None:
    """Offer the rest of the lease of a bid at 1.00, in leases of a minute and more."""
    lease_id = market.lease_id(word)
    opened = ResaleOpened(
        lease_id=lease_id,
        market=MARKET,
        tenant_id=TenantId(named(f"tenant {word}")),
        since=market.now + since,
        ends_at=market.now + hours * HOUR,
        floor=rate(1),
        lease_min_seconds=60,
        at=market.now,
    )
    market.put(f"lease-{lease_id}", opened)


def leased(market: Market, *, hours: int, **offered: Any) -> Market:
    """Let `x` lease all there is, with five minutes of notice, 15 s of grace and a fee of 10 %."""
    market.offer("a", gpus=1, windows=[(market.now, market.now + hours * HOUR)], **offered)
    market.bid("x", hours=hours, kind="inference")
    market.run()
    [share] = market.grant("x").shares  # type: ignore[union-attr]
    assert (share.notice_seconds, share.grace_seconds, share.reclaim_fee_ppm) == (300, 15, 100_000)
    return market


@pytest.mark.parametrize("patience", ["immediate", "patient"])
@pytest.mark.parametrize(
    ("query", "changed", "fits"),
    [
        ("notice>=30m", {"notice_seconds": 1_800}, False),
        ("grace>=60s", {"grace_seconds": 60}, False),
        ("reclaim>=20%", {"reclaim_fee_ppm": 200_000}, False),
        ("notice>=5m", {"notice_seconds": 60}, True),
        ("grace>=15s", {"grace_seconds": 5}, True),
        ("reclaim>=10%", {"reclaim_fee_ppm": 0}, True),
    ],
)
def test_a_bid_gets_a_rest_only_on_terms_that_it_asks_for(
    query: str, changed: dict[str, int], fits: bool, patience: Patience
) -> None:
    market = leased(Market(), hours=4)
    market.change_terms("a", **changed)
    put_up(market, "x", hours=4, since=HOUR)
    market.run()

    market.bid("y", hours=1, at=5, request=read_query(query), patience=patience)
    market.run()
    market.wait(minutes=2)
    market.run()

    granted = market.grant("y")
    if not fits:
        assert granted is None
        return
    assert granted is not None
    [share] = granted.shares
    assert share.resold is not None
    assert (share.notice_seconds, share.grace_seconds, share.reclaim_fee_ppm) == (300, 15, 100_000)


@pytest.mark.parametrize("patience", ["immediate", "patient"])
def test_a_rest_comes_without_a_promise_of_service(patience: Patience) -> None:
    market = leased(Market(), hours=4)
    promise(market, "a", start=60, below=999_000)
    put_up(market, "x", hours=4)
    market.run()
    of_rest = preview(
        market.store, terms=replace(TERMS, gpus=1, duration_seconds=3_600), now=market.now
    )
    assert of_rest.price is not None and of_rest.service == ()
    for word, query in (("y", "starts<=60s"), ("z", "availability>=0.99"), ("plain", "")):
        market.bid(word, hours=1, at=5, request=read_query(query), patience=patience)
    market.run()
    market.wait(minutes=2)
    market.run()

    assert market.grant("y") is None and market.grant("z") is None
    granted = market.grant("plain")
    assert granted is not None and granted.shares[0].resold is not None


@pytest.mark.django_db
def test_a_quote_promises_of_a_rest_what_its_buyer_gets() -> None:
    market = leased(Market(), hours=4)
    market.change_terms("a", notice_seconds=1_800, grace_seconds=60, reclaim_fee_ppm=200_000)
    put_up(market, "x", hours=4)
    market.run()

    quotes = window_quotes(
        market.store, market=MARKET, gpu_model="H100-80GB", currency="USD", now=market.now
    )
    [first, *_] = [quote.promised for quote in quotes if quote.promised is not None]
    market.bid("y", hours=1, at=5)
    market.run()

    [share] = market.grant("y").shares  # type: ignore[union-attr]
    assert first.notice_seconds_min == share.notice_seconds == 300
    assert first.grace_seconds_min == share.grace_seconds == 15


@pytest.mark.parametrize("how", ["other kinds of work", "shorter leases", "resumed"])
def test_who_waits_is_offered_a_rest_once_its_owner_lets_it(how: str) -> None:
    kinds = ("inference",) if how == "other kinds of work" else ()
    least = 4 * HOUR if how == "shorter leases" else timedelta(minutes=1)
    market = leased(Market(), hours=8, kinds=kinds, lease_min=least)
    if how == "resumed":
        market.change_offer("a", "pause")
    put_up(market, "x", hours=8)
    market.bid("y", hours=2, at=2, kind="rendering")
    market.run()
    assert market.grant("y") is None

    match how:
        case "resumed":
            market.change_offer("a", "resume")
        case "shorter leases":
            market.change_terms("a", lease_min_seconds=60)
        case _:
            market.change_terms("a", workload_kinds=())
    market.run()

    granted = market.grant("y")
    assert granted is not None and granted.shares[0].resold is not None


@pytest.mark.django_db
def test_a_trial_tells_of_no_lease_that_is_never_interrupted() -> None:
    market = leased(Market(), hours=8)
    put_up(market, "x", hours=8)
    market.bid("y", hours=6, at=2, service_class="interruptible")
    market.run()
    [share] = market.grant("y").shares  # type: ignore[union-attr]
    assert share.resold is not None
    market.wait(minutes=10)

    found = tried(market, LeastRunSet(market=MARKET, seconds=4 * 3_600, at=market.now))

    assert market.lease_id("y") not in [each.lease_id for each in found.run_changes]
