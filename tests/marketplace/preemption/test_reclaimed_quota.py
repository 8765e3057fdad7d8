"""What a unit owns comes back from who borrowed it: minimal, with notice, and never in vain."""

from __future__ import annotations

from datetime import timedelta
from itertools import combinations
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marketplace.domain.book.book import Book
from marketplace.domain.clearing.fills import Rules
from marketplace.domain.decisions.decide import on_fact
from marketplace.domain.facts.events import BidFilled, BidPlaced, LeaseGranted, ServiceClass
from marketplace.domain.facts.instants import from_above
from marketplace.domain.orderbook.triggers import BidCame
from marketplace.domain.preemption.reclaim_quota import Standing, _Attempt, reclaim_for
from marketplace.engine import Engine
from tests.marketplace.support.borrowed import Lent
from tests.marketplace.support.market import MARKET


@pytest.fixture
def market() -> Lent:
    market = Lent()
    market.offer("rack", gpus=8)
    market.govern(red=(4, None), blue=(4, None))
    return market


def test_a_borrower_gives_back_no_more_than_is_needed(market: Lent) -> None:
    for word, gpus in (("one", 4), ("two", 2), ("three", 2)):
        market.borrow(word, gpus)
        market.wait(minutes=20)

    market.want("mine", 2)

    assert market.cut("mine") == [str(market.lease_id("three"))], "the newest of them"


def test_as_many_go_as_are_needed_and_none_besides(market: Lent) -> None:
    for word, gpus in (("own", 4), ("one", 1), ("two", 1), ("three", 2)):
        market.borrow(word, gpus)
        market.wait(minutes=20)
    market.wait(hours=1)

    market.want("mine", 3, at=9)

    assert set(market.cut("mine")) == {str(market.lease_id(word)) for word in ("two", "three")}


def test_interruptible_ones_go_before_newer_firm_ones(market: Lent) -> None:
    market.borrow("own", 4)
    market.borrow("soft", 2, service="interruptible")
    market.borrow("firm", 2)
    market.wait(hours=1)

    market.want("mine", 2)

    assert market.cut("mine") == [str(market.lease_id("soft"))]


def test_the_work_has_its_notice_and_the_owner_loses_nothing(market: Lent) -> None:
    market.borrow("all", 8)
    market.wait(hours=1)

    market.want("mine", 4)

    granted = market.grant("mine")
    assert granted is not None
    [cut] = granted.cuts
    assert cut.ends_at >= market.now + timedelta(minutes=5)
    assert granted.window.starts_at >= cut.ends_at
    assert granted.price.nanos_per_gpu_hour > 1_000_000_000, "its floor, and the compensation"


def test_where_the_newest_costs_too_much_the_cheapest_goes(market: Lent) -> None:
    market.borrow("small", 2)
    market.wait(minutes=20)
    market.borrow("large", 6)
    market.wait(hours=1)

    market.want("mine", 2, at=2)

    assert market.cut("mine") == [str(market.lease_id("small"))]


def test_nobody_goes_where_the_limit_does_not_cover_the_compensation(market: Lent) -> None:
    market.borrow("all", 8)
    market.wait(hours=1)

    market.want("mine", 4, at=1)

    assert market.grant("mine") is None


def test_who_stays_within_nominal_quota_is_left_alone(market: Lent) -> None:
    market.borrow("theirs", 4)
    market.want("mine", 4)
    market.wait(hours=1)

    market.want("more", 1)

    assert market.grant("more") is None


def test_more_than_its_own_interrupts_nobody(market: Lent) -> None:
    market.borrow("all", 8)
    market.wait(hours=1)

    market.want("mine", 5)

    assert market.grant("mine") is None


def test_a_lease_runs_its_minimum_before_it_stops(market: Lent) -> None:
    market.borrow("all", 8)

    market.want("mine", 4)

    granted = market.grant("mine")
    assert granted is not None
    assert granted.cuts[0].ends_at >= market.now + timedelta(minutes=30)


def test_an_interruptible_bid_takes_nothing_back(market: Lent) -> None:
    market.borrow("all", 8)
    market.wait(hours=1)

    market.want("mine", 4, service="interruptible")

    assert market.grant("mine") is None


def test_where_the_gpus_stand_idle_only_the_quota_comes_back() -> None:
    """Sixteen GPUs, eight in quotas: what red gets must be where blue's lease was."""
    market = Lent()
    market.offer("rack", gpus=8)
    market.offer("other", gpus=8)
    market.govern(red=(4, None), blue=(4, None))
    market.borrow("all", 8)
    market.wait(hours=1)

    market.want("mine", 4)

    granted = market.grant("mine")
    assert granted is not None and len(granted.cuts) == 1
    assert all(share.owner_id for share in granted.shares)


def test_no_price_interrupts_others_for_more_than_its_quota(market: Lent) -> None:
    """The interruptible lease could be bought out; the quota says no all the same."""
    market.quota("red", 1, 0)
    market.borrow("soft", 4, service="interruptible")
    market.borrow("more", 4, service="interruptible")
    market.wait(hours=1)

    market.want("mine", 2, at=99)

    assert market.grant("mine") is None


def test_under_rules_without_preemption_nobody_is_interrupted(market: Lent) -> None:
    market.borrow("all", 8)
    market.wait(hours=1)
    market.engine = Engine(market.store, MARKET, rules=Rules(preemption=False))

    market.want("mine", 4)

    assert market.grant("mine") is None


INTERRUPTED: list[int] = []
"""How many leases went in each example: a property of nobody would prove nothing."""


def test_the_set_is_minimal_and_nobody_goes_in_vain() -> None:
    INTERRUPTED.clear()
    minimal_and_not_in_vain()
    assert sum(INTERRUPTED) >= 5


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    borrowed=st.lists(
        st.tuples(st.integers(1, 4), st.booleans(), st.sampled_from(["blue", "green"])),
        min_size=3,
        max_size=8,
    ),
    own=st.integers(1, 4),
    waited=st.integers(0, 90),
)
def minimal_and_not_in_vain(borrowed: list[tuple[int, bool, str]], own: int, waited: int) -> None:
    market = Lent()
    market.offer("rack", gpus=6)
    market.offer("other", gpus=4)
    market.govern(red=(4, 1), blue=(3, None), green=(3, 2))
    for number, (gpus, firm, unit) in enumerate(borrowed):
        service: ServiceClass = "on-demand" if firm else "interruptible"
        market._ask(unit, f"lent {number}", gpus, hours=30, service=service)
        market.run()
        market.take_up()
    market.wait(minutes=waited)
    market._ask("red", "mine", own, hours=4, service="on-demand", at=9)
    book = Book(MARKET)
    bid_id = None
    for recorded in market.store.read_all(limit=1_000).events:
        trigger = book.apply(recorded.event, recorded.position)
        book.read_to = recorded.position
        if isinstance(recorded.event, BidPlaced) and isinstance(trigger, BidCame):
            bid_id = trigger.bid_id
    assert bid_id is not None
    bid, now = book.bids[bid_id], from_above(market.now)

    events = on_fact(book, BidCame(bid_id), now=now, round_id=UUID(int=7))

    for granted in events:
        if isinstance(granted, LeaseGranted) and granted.cuts:
            plan = reclaim_for(book, bid, now=now)
            if plan is None:
                continue
            assert book.quotas is not None
            standing = Standing(book, book.calendar, book.quotas, now)
            entries = list(book.entries(bid.shape))
            attempt = _Attempt(standing, bid, entries, plan.gpu_class)
            attempt._victims = dict(attempt._may_go())
            ids = [each.lease_id for each in plan.victims]
            INTERRUPTED.append(len(ids))
            for fewer in combinations(ids, len(ids) - 1):
                assert not attempt._placeable(list(fewer)), "one of them went in vain"
            if plan.firm:
                soft = [k for k, v in attempt._victims.items() if v.held.is_interruptible]
                borrowing = [k for k in soft if k in ids]
                assert not attempt._placeable(borrowing), "a firm one went before its turn"
    for event in events:
        book.apply(event, book.read_to)
        if isinstance(event, LeaseGranted):
            filled = BidFilled(bid_id=event.bid_id, lease_id=event.lease_id, at=event.at)
            book.apply(filled, book.read_to)
    _within_quotas(book)


def _within_quotas(book: Book) -> None:
    """Check that what is held fits the quotas at every moment, when taken in one by one."""
    assert book.quotas is not None
    fresh = book.quotas.fork()
    for at in {use.starts for use in fresh.uses.values()}:
        usage = fresh.usage("H100", at)
        assert usage is not None
        for node in usage.tree.parents:
            assert usage.used(node) >= 0
        assert usage.available("lab")[0] >= 0, "more is used than there is quota"


@pytest.mark.parametrize("patience", ["immediate", "patient"])
def test_whom_no_policy_puts_anywhere_borrows_from_nobody(patience: Any) -> None:
    """Green is in no cohort. Its lease is the newest, and neither goes nor stands in the way."""
    market = Lent()
    market.offer("rack", gpus=8)
    market.offer("more", gpus=1, at=3)
    market.govern(red=(4, None), blue=(4, None))
    for word in ("one", "two"):
        market.borrow(word, 4)
        market.wait(minutes=40)
    market.ask("green", "stranger", 1, at=4, hours=9)
    market.run()
    market.wait(minutes=40)

    market.asking = "red"
    deadline = market.now + timedelta(hours=4.25)
    market.bid("mine", gpus=4, at=4, hours=4, deadline=deadline, patience=patience)
    market.asking = ""
    market.wait(seconds=61)
    market.run()

    assert market.grant("stranger") is not None
    assert market.cut("mine") == [str(market.lease_id("two"))]
