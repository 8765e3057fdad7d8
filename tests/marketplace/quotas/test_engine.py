"""The engine under policies: quota holds at every moment, in both lanes, however it reads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from ledger.domain.ids import BidId, TenantId
from ledger.domain.money import Money
from marketplace.domain.admission.gate import models_of
from marketplace.domain.book.book import Book
from marketplace.domain.clearing import continuous
from marketplace.domain.facts.instants import from_above
from marketplace.domain.facts.policy_events import (
    LimitScope,
    QuotaOverridden,
)
from marketplace.domain.orderbook.open_bid import OpenBid
from tests.marketplace.support.governed import Governed, unit_of
from tests.marketplace.support.market import MARKET, named
from tests.marketplace.support.rounds import book_of


@pytest.fixture
def market() -> Governed:
    market = Governed()
    market.offer("rack", gpus=8)
    return market


def test_a_market_without_policies_keeps_no_quotas(market: Governed) -> None:
    bid = market.ask("red", "big", 8)
    market.run()
    assert str(bid) in market.granted()


def test_beyond_nominal_and_borrowing_it_starts_when_quota_is_free(market: Governed) -> None:
    market.govern(red=(2, 1), blue=(4, 0))
    first = market.ask("red", "first", 3)
    then = market.ask("red", "then", 1)
    market.run()
    granted = market.granted()
    assert granted[str(then)].window.starts_at == granted[str(first)].window.ends_at


def test_what_can_never_be_is_refused_with_its_reason(market: Governed) -> None:
    market.govern(red=(2, 0), blue=(4, 0))
    bid = market.ask("red", "much", 3)
    market.run()
    assert str(bid) not in market.granted()
    assert market.told(bid) == "quota"


def test_quota_that_is_given_back_serves_who_waits(market: Governed) -> None:
    market.govern(red=(2, 0), blue=(4, 0))
    held = market.ask("red", "held", 2, hours=30)
    market.run()
    waits = market.ask("red", "waits", 1)
    market.run()
    assert market.told(waits) == "quota"
    market.wait(hours=1)
    market.end(held)
    market.run()
    assert market.granted()[str(waits)].window.starts_at == market.now


def test_more_quota_serves_who_waits(market: Governed) -> None:
    market.govern(red=(0, 0), blue=(4, 0))
    waits = market.ask("red", "waits", 1)
    market.run()
    market.quota("red", 1, 0)
    market.run()
    assert str(waits) in market.granted()


def test_an_override_is_for_its_time_only(market: Governed) -> None:
    market.govern(red=(0, 0), blue=(4, 0))
    begins = market.now + timedelta(hours=3)
    market.policy(
        QuotaOverridden(
            market=MARKET,
            override_id=UUID(int=5),
            node=str(unit_of("red")),
            gpu_class="H100",
            nominal=2,
            borrowing=0,
            lending=None,
            starts_at=begins,
            ends_at=begins + timedelta(hours=1),
            request_id=None,
            at=market.now,
        )
    )
    fits = market.ask("red", "fits", 2)
    outlasts = market.ask("red", "outlasts", 1, hours=2)
    market.run()
    assert market.granted()[str(fits)].window.starts_at == begins
    assert str(outlasts) not in market.granted()


def test_who_is_within_quota_goes_first_and_pays_the_floor(market: Governed) -> None:
    market.govern(red=(8, None), blue=(0, None))
    market.change_offer("rack", "pause")
    dear = market.ask("blue", "dear", 8, at=9)
    own = market.ask("red", "own", 8, at=2)
    market.run()
    market.change_offer("rack", "resume")
    market.run()
    granted = market.granted()
    assert granted[str(own)].window.starts_at < granted[str(dear)].window.starts_at
    assert granted[str(own)].price.nanos_per_gpu_hour == 10**9, "the floor is the transfer price"
    assert granted[str(dear)].price.nanos_per_gpu_hour == 9 * 10**9


def test_rounds_keep_quotas_and_serve_the_guaranteed_first(market: Governed) -> None:
    market.govern(red=(4, 0), blue=(0, 4))
    market.run()
    dear = market.ask("blue", "dear", 8, at=9, patience="patient")
    some = market.ask("blue", "some", 4, at=9, patience="patient")
    own = market.ask("red", "own", 4, at=2, patience="patient")
    market.wait(seconds=61)
    market.run()
    granted = market.granted()
    assert str(dear) not in granted and market.told(dear) == "quota"
    assert granted[str(own)].price.nanos_per_gpu_hour == 10**9
    assert granted[str(some)].window.starts_at >= granted[str(own)].window.ends_at


@pytest.mark.parametrize("scope", ["bid", "user", "subscriber", "tenant"])
def test_every_layer_limits(market: Governed, scope: LimitScope) -> None:
    market.limit(scope, gpus=3)
    bid = market.ask("red", "much", 4)
    market.run()
    if scope == "user":
        assert str(bid) in market.granted(), "nobody in particular asked"
    else:
        assert market.told(bid) == f"limit-{scope}"


@pytest.mark.parametrize(
    ("figures", "fits"),
    [
        ({"memory_mib": 81_559 * 2}, 2),
        ({"gpu_hours": 3}, 3),
        ({"money": Money(4 * 10**9)}, 2),
    ],
    ids=["memory", "GPU-hours", "money"],
)
def test_limits_are_on_sums(market: Governed, figures: dict[str, object], fits: int) -> None:
    market.limit("bid", **figures)
    over, exact = market.ask("red", "over", fits + 1), market.ask("red", "exact", fits)
    market.run()
    assert str(exact) in market.granted()
    assert market.told(over) == "limit-bid"


def test_what_was_used_in_the_day_counts_until_midnight(market: Governed) -> None:
    market.limit("subscriber", gpu_hours=2)
    used = market.ask("red", "used", 2)
    market.run()
    market.wait(hours=1)
    market.end(used)
    more = market.ask("red", "more", 1)
    market.run()
    midnight = (market.now + timedelta(days=1)).replace(hour=0)
    assert market.granted()[str(more)].window.starts_at == midnight


def test_another_engine_that_folds_the_log_decides_alike(market: Governed) -> None:
    market.govern(red=(2, 1), blue=(2, 0))
    for number in range(4):
        market.ask("red" if number % 2 else "blue", f"bid {number}", 1 + number % 3)
        market.run()
    engine = market.new_engine()
    engine.run_once(now=market.now)
    assert engine._book is not None and market.engine._book is not None
    assert engine._book.quotas is not None and market.engine._book.quotas is not None
    assert engine._book.quotas.uses == market.engine._book.quotas.uses


def test_a_bid_for_several_models_has_one_of_which_there_is_quota(market: Governed) -> None:
    """Quota speaks of H100 only, and blue may have none of them."""
    market.offer("other", gpus=2, model="A100-80GB", at=1.5)
    market.govern(red=(8, None), blue=(0, 0))

    bid = market.ask("blue", "any", 2)
    market.run()

    assert market.granted()[str(bid)].gpu_model == "A100-80GB"


def test_own_use_spends_nothing_of_a_limit_of_money(market: Governed) -> None:
    """Red spends all it may on others' GPUs; its own, for which it pays nothing, serve it still."""
    market.limit("subscriber", money=Money(5 * 10**9))
    market.offer("of red", gpus=4, owner=TenantId(unit_of("red")), at=3)
    home = market.ask("red", "home", 4, at=5)
    away = market.ask("red", "away", 5, at=1)
    market.run()
    market.offer("more of red", gpus=2, owner=TenantId(unit_of("red")), at=3)
    again = market.ask("red", "again", 2, at=5, hours=2)
    market.run()

    granted = market.granted()
    assert granted[str(home)].own and granted[str(again)].own
    assert not granted[str(away)].own


@pytest.mark.parametrize(("nominal", "limit", "left"), [(5, None, 2), (3, None, 0), (8, 4, 1)])
def test_the_funnel_says_how_many_gpus_a_quota_or_a_limit_leaves(
    nominal: int, limit: int | None, left: int
) -> None:
    """Red has three GPUs and asks for four more."""
    market = Governed()
    market.offer("rack", gpus=8, at=1)
    market.govern(red=(nominal, 0))
    if limit is not None:
        market.limit("subscriber", gpus=limit)
    market.ask("red", "first", 3, hours=40)
    market.ask("red", "second", 4, hours=40)
    market.run()
    book = book_of(market)

    explained = book.explain(book.bids[BidId(named("bid second"))], now=from_above(market.now))

    assert explained.funnel[-1].left == left
    assert explained.reason == ("quota" if limit is None else "limit-subscriber")


def test_who_has_no_quota_is_looked_at_once(
    market: Governed, monkeypatch: pytest.MonkeyPatch
) -> None:
    market.govern(red=(2, 0), blue=(4, 0))
    market.run()
    looked, found = list[BidId](), continuous._found

    def noted(book: Book, bid: OpenBid, **said: Any) -> Any:
        looked.append(bid.bid_id)
        return found(book, bid, **said)

    monkeypatch.setattr(continuous, "_found", noted)
    much = market.ask("red", "much", 3)
    market.run()

    assert market.told(much) == "quota"
    assert looked == [much]


def test_the_models_on_offer_are_those_of_offers_that_are_there(market: Governed) -> None:
    market.offer("older", gpus=4, model="A100-80GB")
    market.offer("other", gpus=4, model="A100-80GB")
    with_both = models_of(book_of(market).catalogue)
    market.change_offer("older", "withdraw")
    with_one_less = models_of(book_of(market).catalogue)
    market.change_offer("other", "withdraw")

    assert with_both == with_one_less == ["A100-80GB", "H100-80GB"]
    assert models_of(book_of(market).catalogue) == ["H100-80GB"]
