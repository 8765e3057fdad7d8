"""Rounds sell on rests of leases, and interrupt interruptible ones: proven first."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.ids import LeaseId, TenantId
from marketplace.domain.book.book import Book
from marketplace.domain.clearing.fills import Rules
from marketplace.domain.decisions.decide import on_round
from marketplace.domain.facts.events import Cut, LeaseGranted, RoundCleared
from marketplace.domain.facts.instants import from_above
from marketplace.domain.rounds.preemption_pass import BIDS_MAX
from marketplace.replay.round import replay_round
from tests.conftest import NOON
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import MARKET, Market, named
from tests.marketplace.support.policies import limit
from tests.marketplace.support.preemption import NOTICE, busy_market
from tests.marketplace.support.preemption_in_rounds import (
    HOUR,
    patient,
    resale_market,
    rounded,
    sell_rest,
)
from tests.marketplace.support.rounds import ROUND, book_of, no_fault
from tests.marketplace.verification.victim_order import in_turn as in_turn

pytestmark = pytest.mark.usefixtures("in_turn")


# --- interruptions -----------------------------------------------------------------------------


def test_a_patient_firm_bid_takes_the_place_of_an_interruptible_lease() -> None:
    market = busy_market()
    patient(market)

    rounded(market)

    granted = market.grant("firm")
    assert granted is not None
    [cut] = granted.cuts
    assert cut.because == "interrupted"
    assert cut.ends_at >= granted.at + NOTICE
    assert granted.window.starts_at == cut.ends_at
    audit(market.events())


def test_free_capacity_comes_first_also_later_on() -> None:
    market = busy_market()
    patient(market, deadline=market.now + 48 * HOUR)

    rounded(market)

    granted = market.grant("firm")
    assert granted is not None
    assert granted.cuts == ()
    assert granted.window.starts_at >= NOON + 8 * HOUR


def test_two_firm_bids_of_one_round_do_not_take_one_victim() -> None:
    market = busy_market(gpus=2)
    for word in ("one", "two", "three"):
        patient(market, word)

    rounded(market)

    cuts = [cut.lease_id for granted in market.grants().values() for cut in granted.cuts]
    assert len(cuts) == len(set(cuts)) == 2
    assert sum(market.grant(word) is not None for word in ("one", "two", "three")) == 2
    audit(market.events())


def test_an_interruptible_bid_interrupts_nobody_in_a_round() -> None:
    market = busy_market()
    patient(market, service_class="interruptible")
    rounded(market)
    assert market.grant("firm") is None


def test_nobody_is_interrupted_for_a_bid_that_would_not_fit_even_then() -> None:
    market = busy_market(gpus=2)
    patient(market, gpus=3)
    rounded(market)
    assert all(not granted.cuts for granted in market.grants().values())


def test_nobody_is_interrupted_sooner_than_the_bid_can_start() -> None:
    market = busy_market(gpus=1)
    starts_at = market.now + 3 * HOUR
    patient(market, hours=4, at=4, start=starts_at, deadline=starts_at + 4 * HOUR)

    rounded(market)

    granted = market.grant("firm")
    assert granted is not None
    assert granted.cuts[0].ends_at == starts_at


def test_own_use_is_never_interrupted_by_the_market() -> None:
    market = Market()
    owner = TenantId(named("tenant owner"))
    market.offer("a", gpus=1, at=1, owner=owner)
    market.bid("mine", hours=8, at=1, tenant=owner, service_class="interruptible")
    market.run()
    market.wait(hours=1)
    patient(market, at=9)
    rounded(market)
    assert market.grant("firm") is None


def test_a_quota_keeps_a_bid_from_interrupting() -> None:
    market = busy_market()
    market.put(f"governance-{MARKET}", limit("subscriber", named("tenant firm"), gpus=0))
    patient(market)
    rounded(market)
    assert market.grant("firm") is None
    assert not any(granted.cuts for granted in market.grants().values())


def test_without_preemption_rounds_interrupt_nobody() -> None:
    market = busy_market()
    patient(market)
    book, now = book_of(market), from_above(market.now)

    with_it = on_round(book, now=now, round_id=ROUND, warn=no_fault)
    none = on_round(book, now=now, round_id=ROUND, rules=Rules(preemption=False), warn=no_fault)

    assert any(isinstance(event, LeaseGranted) for event in with_it)
    assert not any(isinstance(event, LeaseGranted) for event in none)


@pytest.mark.parametrize("price", ["floor", "limit", "midpoint"])
def test_what_the_interrupted_lose_is_paid_for_under_any_price_rule(price: Any) -> None:
    market = busy_market()
    patient(market)
    book, now = book_of(market), from_above(market.now)

    events = on_round(book, now=now, round_id=ROUND, rules=Rules(price=price), warn=no_fault)

    assert any(isinstance(event, LeaseGranted) and event.cuts for event in events)


def test_room_is_looked_for_only_for_the_worthiest() -> None:
    market = busy_market(gpus=1)
    for number in range(BIDS_MAX):
        # Worth more, and too many GPUs for the host.
        patient(market, f"big {number}", gpus=5, at=9)
    patient(market)

    rounded(market)
    assert market.grant("firm") is None

    market.cancel("big 0")
    rounded(market)
    assert market.grant("firm") is not None


# --- sales -------------------------------------------------------------------------------------


def test_a_patient_bid_buys_the_rest_of_a_lease_at_its_floor() -> None:
    market = resale_market()
    patient(market, hours=3, at=5)

    rounded(market)

    granted = market.grant("firm")
    seller = market.grant("seller")
    assert granted is not None and seller is not None
    assert granted.price == seller.price
    assert granted.cuts == (Cut(seller.lease_id, granted.window.starts_at, "resold"),)
    assert granted.shares[0].resold is not None
    assert granted.shares[0].offer_id == seller.shares[0].offer_id
    audit(market.events())


def test_a_rest_is_sold_once_even_if_its_buyer_needs_only_a_part() -> None:
    market = resale_market()
    for word in ("one", "two"):
        patient(market, word, gpus=1, hours=3, at=5, deadline=market.now + 6 * HOUR)

    rounded(market)
    assert len([word for word in ("one", "two") if market.grant(word)]) == 1
    market.take_up()
    rounded(market)

    one, two = market.grant("one"), market.grant("two")
    assert one is not None and two is not None
    bought, other = (one, two) if one.cuts else (two, one)
    assert [cut.because for cut in bought.cuts] == ["resold"] and other.cuts == ()
    [shared], [owners] = bought.shares, other.shares
    assert shared.resold is not None
    assert owners.resold is None, "what its buyer does not need is its owner's again"
    assert not set(shared.gpu_uuids) & set(owners.gpu_uuids)
    assert other.round_id != bought.round_id, "once the sale stands"
    audit(market.events())


def test_a_seller_does_not_buy_its_own_rest() -> None:
    market = resale_market()
    patient(market, hours=3, at=5, tenant=TenantId(named("tenant seller")))
    rounded(market)
    assert market.grant("firm") is None


# --- always ------------------------------------------------------------------------------------


def all_interruptible(book: Book, hosts: set[Any]) -> set[LeaseId]:
    return {
        lease_id
        for lease_id, held in book.held.items()
        if held.bid is not None
        and held.bid.service_class == "interruptible"
        and hosts & {share.host_id for share in held.granted.shares}
    }


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_rounds_that_make_room_have_no_fault_and_replay_to_the_same_events(
    data: st.DataObject,
) -> None:
    market = Market()
    market.offer("a", gpus=3, at=1, notice=NOTICE)
    market.offer("b", gpus=2, at="1.50", notice=NOTICE)
    for index in range(data.draw(st.integers(1, 5))):
        kind = data.draw(st.sampled_from(["interruptible", "interruptible", "on-demand"]))
        gpus, hours = data.draw(st.integers(1, 2)), data.draw(st.integers(2, 9))
        market.bid(f"c{index}", gpus=gpus, hours=hours, at=2, service_class=kind)  # type: ignore[arg-type]
    market.run()
    market.wait(minutes=data.draw(st.integers(0, 90)))
    for index in range(5):
        if market.grant(f"c{index}") and data.draw(st.booleans()):
            granted = market.grant(f"c{index}")
            assert granted is not None
            since = max(granted.window.starts_at - market.now, timedelta(0))
            if market.now + since + HOUR < granted.window.ends_at:
                sell_rest(market, f"c{index}", since=since + HOUR)
    for index in range(data.draw(st.integers(1, 5))):
        gpus, hours = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
        patient(
            market,
            f"w{index}",
            gpus=gpus,
            hours=hours,
            at=data.draw(st.integers(2, 9)),
            gang=data.draw(st.booleans()),
            deadline=market.now + (hours + 1) * HOUR,
            service_class=data.draw(st.sampled_from(["on-demand", "interruptible", "reserved"])),
        )
    market.run()
    book = book_of(market)
    said = {"now": from_above(market.now + timedelta(seconds=61)), "round_id": UUID(int=2)}
    on_round(book, **said, warn=no_fault)  # type: ignore[arg-type]  # as named

    rounded(market)

    audit(market.events())
    book = book_of(market)
    for hosts in ({named("host a")}, {named("host b")}, {named("host a"), named("host b")}):
        found = {each.granted.lease_id for each in book.leases.interruptible_on(hosts)}  # type: ignore[arg-type]
        assert found == all_interruptible(book, hosts)
    for each in market.decisions():
        if isinstance(each.event, RoundCleared):
            replayed = replay_round(market.store, market=MARKET, round_id=each.event.round_id)
            assert replayed.outcome == "identical", replayed.differences


@pytest.mark.parametrize("how", ["immediate", "patient"])
def test_a_rest_is_cleaned_before_its_buyer_comes(how: Any) -> None:
    ten = timedelta(minutes=10)
    market = Market()
    market.offer("a", gpus=1, at=1, cleaning=ten)
    market.bid("seller", hours=10, at=2)
    market.run()
    sell_rest(market, "seller")
    market.run()
    market.bid("buyer", hours=3, at=5, deadline=market.now + 7 * HOUR, patience=how)
    if how == "patient":
        on_round(book_of(market), now=from_above(market.now), round_id=ROUND, warn=no_fault)

    rounded(market)

    granted = market.grant("buyer")
    assert granted is not None
    assert granted.window.starts_at == NOON + HOUR + ten
    assert [cut.ends_at for cut in granted.cuts] == [NOON + HOUR]
    audit(market.events())
