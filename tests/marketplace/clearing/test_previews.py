"""A preview says what the bid then gets: also where others go for it, and for gangs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from ledger.domain.ids import AccountId, BidId, SubscriberId, TenantId
from marketplace.domain.bids.bid import BidTerms
from marketplace.domain.facts.events import GpuRequest, LeaseGranted, Patience, Workload
from marketplace.queries.books import book_of, explain_bid, preview
from tests.marketplace.support.borrowed import Lent
from tests.marketplace.support.governed import unit_of
from tests.marketplace.support.market import MARKET, Market, named, rate
from tests.marketplace.support.preemption import busy_market
from tests.marketplace.support.preemption_in_rounds import resale_market

HOUR = timedelta(hours=1)


def terms(
    word: str,
    *,
    now: datetime,
    gpus: int = 1,
    hours: float = 6,
    at: float = 9,
    slack: timedelta = HOUR,
    unit: object = None,
    **more: Any,
) -> BidTerms:
    tenant = TenantId(unit or named(f"tenant {word}"))  # type: ignore[arg-type]  # an id
    said = BidTerms(
        bid_id=BidId(named(f"bid {word}")),
        tenant_id=tenant,
        subscriber_id=SubscriberId(tenant),
        user_id=None,
        account_id=AccountId(tenant),
        market=MARKET,
        request=GpuRequest(),
        gpus=gpus,
        placement="same-host",
        duration_seconds=int(hours * 3_600),
        earliest_start=now,
        deadline=now + timedelta(hours=hours) + slack,
        limit=rate(at),
        service_class="on-demand",
        patience="immediate",
        workload=Workload(kind="other"),
    )
    return replace(said, **more)


def placed(market: Market, said: BidTerms) -> LeaseGranted | None:
    """Place the very bid, and let the engine decide."""
    market.bid(
        "x",
        gpus=said.gpus,
        hours=said.duration_seconds / 3_600,
        at=said.limit.nanos_per_gpu_hour / 10**9,
        deadline=said.deadline,
        gang=said.placement == "any-hosts",
        patience=said.patience,
        request=said.request,
        tenant=said.tenant_id,
    )
    market.run()
    return market.grant("x")


def agree(market: Market, said: BidTerms) -> LeaseGranted | None:
    """Check that a preview says what then happens, and changes nothing; return the grant."""
    before = len(market.decisions())
    quote = preview(market.store, terms=said, now=market.now)
    assert len(market.decisions()) == before
    with book_of(market.store, MARKET) as book:
        assert said.bid_id not in book.bids

    granted = placed(market, said)

    if granted is None:
        assert (quote.price, quote.gpus, quote.cuts) == (None, 0, 0)
        return None
    gpus = sum(len(share.gpu_uuids) for share in granted.shares)
    hosts = len({share.host_id for share in granted.shares})
    assert (quote.price, quote.window) == (granted.price, granted.window)
    assert (quote.gpus, quote.hosts, quote.cuts) == (gpus, hosts, len(granted.cuts))
    assert quote.gpu_model == granted.gpu_model
    return granted


def test_of_interruptible_leases_that_go_for_it() -> None:
    market = busy_market()
    granted = agree(market, terms("x", now=market.now))
    assert granted is not None and granted.cuts


def test_of_what_its_unit_takes_back() -> None:
    market = Lent()
    market.offer("rack", gpus=8)
    market.govern(red=(4, None), blue=(4, None))
    for word in ("one", "two"):
        market.borrow(word, 4)
        market.wait(minutes=40)
    said = terms("x", now=market.now, gpus=4, hours=4, at=4, unit=unit_of("red"))
    granted = agree(market, said)
    assert granted is not None
    assert [cut.lease_id for cut in granted.cuts] == [market.lease_id("two")]


def test_of_rests_that_are_for_sale() -> None:
    market = resale_market()
    granted = agree(market, terms("x", now=market.now, hours=3, at=5, slack=4 * HOUR))
    assert granted is not None and granted.shares[0].resold is not None


@pytest.mark.parametrize(("patience", "markets"), [("immediate", 24), ("patient", 8)])
def test_of_gangs_over_several_offers(patience: Patience, markets: int) -> None:
    """However they are spread: preview, explanation and engine agree on whether it has a place."""
    served = 0
    for seed in range(markets):
        random = Random(seed)
        market = Market()
        for number in range(random.randint(2, 4)):
            opens = market.now + random.randrange(4) * HOUR
            market.offer(
                f"o{number}",
                host=f"h{number // 2}",
                gpus=4,
                only=(0, 1) if number % 2 else (2, 3),
                at=random.choice((1, 2, 5)),
                windows=[(opens, opens + random.randrange(1, 6) * HOUR)],
            )
        for number in range(random.randrange(3)):
            market.bid(f"b{number}", gpus=random.randint(1, 3), gang=True, at=5)
        market.run()
        said = terms(
            "x",
            now=market.now,
            gpus=random.randint(2, 6),
            hours=random.choice((1, 2)),
            at=random.choice((2, 4)),
            slack=random.randrange(1, 6) * HOUR,
            placement=random.choice(("any-hosts", "same-host")),
            patience=patience,
        )
        market.engine = market.new_engine()  # its first round is due at once
        granted = agree(market, said)
        served += granted is not None
        if granted is None:
            found = explain_bid(market.store, market=MARKET, bid_id=said.bid_id, now=market.now)
            assert found is not None and found.reason is not None and found.placement is None
    assert 0 < served < markets
