"""Own GPUs serve their organisation's bids first and for nothing; it never trades with itself."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from uuid import UUID

import pytest

from ledger.domain.ids import TenantId
from marketplace.domain.book.book import Book
from marketplace.domain.clearing.fills import PriceRule, Rules
from marketplace.domain.facts.events import (
    BidPlaced,
    GpuRequest,
    LeaseGranted,
    Patience,
    RoundCleared,
)
from marketplace.engine import Engine
from marketplace.queries.books import explain_bid
from marketplace.replay.round import replay_round
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, OWNER, Market, named, rate

OTHER = TenantId(named("other owner"))


def the_only_round(market: Market) -> RoundCleared:
    cleared = [each.event for each in market.decisions() if isinstance(each.event, RoundCleared)]
    assert len(cleared) == 1
    return cleared[0]


def owners_of(granted: LeaseGranted | None) -> set[TenantId]:
    assert granted is not None
    return {share.owner_id for share in granted.shares}


@pytest.mark.parametrize("patience", ["immediate", "patient"])
def test_a_bid_goes_to_its_own_tenants_gpus_for_nothing_whatever_their_floor(
    patience: Patience,
) -> None:
    market = Market()
    market.offer("cheap", owner=OTHER, at=1)
    market.offer("mine", at=9)
    market.bid("b", tenant=OWNER, at=2, patience=patience)

    market.run()

    granted = market.grant("b")
    assert owners_of(granted) == {OWNER}
    assert granted is not None
    assert (granted.price, granted.own) == (rate(0), True)


@pytest.mark.parametrize("patience", ["immediate", "patient"])
def test_only_what_its_own_cannot_serve_goes_to_the_market(patience: Patience) -> None:
    market = Market()
    market.offer("mine", at=1)
    market.offer("theirs", owner=OTHER, at=3)
    market.bid("b1", tenant=OWNER, at=5, deadline=NOON + timedelta(hours=1), patience=patience)
    market.bid("b2", tenant=OWNER, at=5, deadline=NOON + timedelta(hours=1), patience=patience)

    market.run()

    grants = [market.grant("b1"), market.grant("b2")]
    assert [(owners_of(each), each and each.price) for each in grants] == [
        ({OWNER}, rate(0)),
        ({OTHER}, rate(3)),
    ]


@pytest.mark.parametrize(
    ("seeks", "from_hour", "owner"),
    [
        ("cheapest", 20, OWNER),
        ("soonest", 20, OTHER),
        ("soonest", 0, OWNER),
        ("cheapest", 40, OTHER),
        ("soonest", 40, OTHER),
    ],
)
def test_own_gpus_serve_it_by_its_deadline_or_it_seeks_the_soonest(
    seeks: str, from_hour: int, owner: TenantId
) -> None:
    """It has a day to start; its own GPUs are there after some hours, another's now."""
    market = Market()
    opens = NOON + timedelta(hours=from_hour)
    market.offer("mine", windows=[(opens, opens + timedelta(hours=9))])
    market.offer("theirs", owner=OTHER, at=1)
    bid_id = market.bid("b", tenant=OWNER, at=5, seeks=seeks)

    explained = explain_bid(market.store, market=MARKET, bid_id=bid_id, now=NOON)
    market.run()

    assert owners_of(market.grant("b")) == {owner}
    assert explained is not None and explained.placement is not None
    assert {listed.terms.tenant_id for listed, _ in explained.placement.gpus} == {owner}


@pytest.mark.parametrize("patience", ["immediate", "patient"])
def test_a_gang_never_mixes_own_gpus_and_those_of_others(patience: Patience) -> None:
    market = Market()
    market.offer("mine", gpus=2)
    market.offer("theirs", gpus=2, owner=OTHER)
    market.bid("b", tenant=OWNER, gpus=4, gang=True, patience=patience)

    market.run()

    assert market.grant("b") is None
    told = the_only_round(market).unmatched
    assert [each.reason for each in told] == ["own"]


def test_a_gang_is_wholly_at_home_or_wholly_away() -> None:
    market = Market()
    market.offer("mine", gpus=2)
    market.offer("theirs", gpus=4, owner=OTHER)
    market.bid("away", tenant=OWNER, gpus=4, gang=True, deadline=NOON + timedelta(hours=1))
    market.bid("home", tenant=OWNER, gpus=2, gang=True)

    market.run()

    assert owners_of(market.grant("away")) == {OTHER}
    assert owners_of(market.grant("home")) == {OWNER}


def test_what_its_owner_waits_for_serves_the_owner_before_a_higher_bid() -> None:
    market = Market()
    market.bid("rich", at=9)
    market.bid("patient", tenant=OWNER, at=1, patience="patient")
    market.bid("own", tenant=OWNER, at=1)
    market.run()

    market.offer("mine", gpus=2, at=5, windows=[(NOON, NOON + timedelta(hours=1))])
    market.run()

    assert market.grant("rich") is None
    assert owners_of(market.grant("own")) == {OWNER}
    assert owners_of(market.grant("patient")) == {OWNER}


def test_what_a_lease_gives_back_serves_its_owner_first_too() -> None:
    market = Market()
    market.offer("mine", at=1)
    market.bid("first", hours=24, at=2)
    market.run()
    market.bid("rich", at=9, deadline=NOON + timedelta(hours=2))
    market.bid("own", tenant=OWNER, at=1, deadline=NOON + timedelta(hours=2))
    market.run()

    market.wait(minutes=10)
    market.close("first")
    market.run()

    granted = market.grant("own")
    assert granted is not None
    assert granted.window.starts_at == market.now
    assert market.grant("rich") is None


def test_own_use_moves_no_statistic_of_a_round() -> None:
    market = Market()
    market.offer("mine", at=5)
    market.offer("theirs", owner=OTHER, at=2)
    market.bid("own", tenant=OWNER, at=3, patience="patient")
    market.bid("trade", at=3, patience="patient")

    market.run()

    cleared = the_only_round(market)
    assert cleared.certificate is not None
    assert (cleared.grants, cleared.price_low, cleared.price_high) == (
        2,
        rate(2).nanos_per_gpu_hour,
        rate(2).nanos_per_gpu_hour,
    )
    assert cleared.certificate.welfare_nanos == rate(1).nanos_per_gpu_hour
    assert cleared.certificate.price_mean == rate(2).nanos_per_gpu_hour


def test_a_bid_that_makes_do_with_less_prefers_all_of_it_away_to_less_at_home() -> None:
    market = Market()
    market.offer("mine", gpus=2)
    market.offer("theirs", gpus=4, owner=OTHER)
    market.bid("b", tenant=OWNER, gpus=4, gpus_min=1)

    market.run()

    assert owners_of(market.grant("b")) == {OTHER}


def test_of_less_at_home_and_away_it_takes_the_larger_and_of_equal_ones_home() -> None:
    market = Market()
    market.offer("mine", gpus=2)
    market.offer("theirs", gpus=3, owner=OTHER)
    market.bid("larger", tenant=OWNER, gpus=8, gpus_min=1, deadline=NOON + timedelta(hours=1))
    market.offer("more", gpus=2, owner=OTHER)
    market.bid("equal", tenant=OWNER, gpus=8, gpus_min=1, deadline=NOON + timedelta(hours=1))

    market.run()

    assert owners_of(market.grant("larger")) == {OTHER}
    assert owners_of(market.grant("equal")) == {OWNER}


def test_a_bid_interrupts_nobody_on_its_own_tenants_gpus() -> None:
    market = Market()
    market.offer("mine", at=1)
    market.bid("guest", hours=8, service_class="interruptible", at=2)
    market.run()
    market.wait(hours=1)

    market.bid("own", tenant=OWNER, at=9, deadline=market.now + timedelta(hours=2))
    market.run()

    assert market.grant("own") is None


def test_own_use_is_extended_at_its_price_however_high_the_floor() -> None:
    market = Market()
    market.offer("mine", at=5)
    market.bid("own", tenant=OWNER, at=1)
    market.run()

    market.extend("own", NOON + timedelta(hours=3))
    market.run()

    assert market.decisions()[-1].type == "marketplace.extension-granted"


@pytest.mark.parametrize("rule", ["floor", "midpoint", "limit"])
def test_no_rule_of_the_lab_puts_a_price_on_own_use(rule: PriceRule) -> None:
    market = Market()
    market.engine = Engine(market.store, MARKET, rules=Rules(price=rule))
    market.offer("mine", at=1)
    market.bid("own", tenant=OWNER, at=3)

    market.run()

    granted = market.grant("own")
    assert granted is not None
    assert granted.price == rate(0)


def test_bids_of_who_owns_many_hosts_find_the_one_with_room() -> None:
    market = Market()
    for number in range(40):
        market.offer(f"full {number}", at=1)
        market.bid(f"fill {number}", at=2, hours=100)
    market.offer("free", at=1, windows=[(NOON, NOON + timedelta(hours=200))])
    market.bid("own", tenant=OWNER, at=1, deadline=NOON + timedelta(hours=3))

    market.run()

    granted = market.grant("own")
    assert granted is not None
    assert granted.shares[0].host_id == named("host free")


def test_no_random_market_trades_with_itself_and_every_round_replays() -> None:
    random = Random(20260105)
    tenants = [TenantId(named(f"org {number}")) for number in range(4)]
    market = Market()
    for number in range(120):
        word = str(number)
        if random.random() < 0.4:
            market.offer(
                word,
                gpus=random.choice([1, 2, 4]),
                owner=random.choice(tenants),
                at=random.randint(1, 5),
                windows=[(market.now, market.now + timedelta(hours=random.randint(2, 30)))],
            )
        else:
            gpus = random.choice([1, 2, 4, 6])
            market.bid(
                word,
                tenant=random.choice(tenants),
                gpus=gpus,
                gpus_min=random.choice([None, 1]),
                gang=random.random() < 0.5,
                hours=random.randint(1, 6),
                at=random.randint(1, 6),
                patience=random.choice(["immediate", "patient"]),
                service_class=random.choice(["on-demand", "interruptible"]),
                request=GpuRequest(own=random.random() < 0.1),
            )
        market.wait(minutes=random.randint(0, 40))
        market.run()

    bidders = {
        bid.bid_id: bid.tenant_id
        for bid in (each.event for each in market.events())
        if isinstance(bid, BidPlaced)
    }
    granted = list(market.grants().values())
    own = [each for each in granted if each.own]
    assert own
    for each in granted:
        owners = owners_of(each)
        assert (bidders[each.bid_id] in owners) == each.own
        assert len(owners) == 1 or not each.own
        assert not each.own or each.price == rate(0)
    for round_id in rounds_of(market):
        assert replay_round(market.store, market=MARKET, round_id=round_id).outcome == "identical"


def rounds_of(market: Market) -> list[UUID]:
    return [
        each.event.round_id for each in market.decisions() if isinstance(each.event, RoundCleared)
    ]


def test_a_book_of_a_tenant_without_offers_keeps_nothing_to_look_through() -> None:
    market, book = Market(), Book(MARKET)
    market.offer("mine")
    market.change_offer("mine", "withdraw")
    market.bid("b", tenant=OWNER)
    for recorded in market.events():
        book.apply(recorded.event, recorded.position)

    assert OWNER not in book.owners
