"""A firm bid takes capacity from interruptible leases: proven first, minimal, compensated."""

from __future__ import annotations

from datetime import timedelta
from typing import get_args
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.ids import LeaseId
from ledger.domain.money import Money, Rate
from marketplace.domain.book.book import Book
from marketplace.domain.clearing.fills import PriceRule, Rules
from marketplace.domain.decisions.decide import on_fact
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import (
    BidPlaced,
    LeaseClosed,
    LeaseGranted,
    LeaseInterrupted,
    Share,
)
from marketplace.domain.facts.instants import from_above
from marketplace.domain.leases.reclaim import interrupt
from tests.conftest import NOON
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.leasing import (
    ADA,
    HOST_A,
    ONE_HOUR,
    START_GRACE,
    STOP_GRACE,
    active,
    after,
    share,
)
from tests.marketplace.support.market import Market
from tests.marketplace.support.preemption import HOUR, NOTICE, RUNTIME_MIN, busy_market, firm


def test_a_firm_bid_takes_the_place_of_an_interruptible_lease_after_its_notice() -> None:
    market = busy_market()
    granted = firm(market)

    assert granted is not None
    [cut] = granted.cuts
    assert cut.because == "interrupted"
    assert cut.ends_at == market.now + NOTICE
    assert granted.window.starts_at == cut.ends_at
    # 7 h 25 min at 1.00 and a tenth of it, spread over six hours.
    assert granted.price == Rate(1_359_722_222)
    audit(market.events())


def test_what_is_free_is_taken_first() -> None:
    market = busy_market()
    market.offer("b", gpus=1, at=2)
    granted = firm(market)
    assert granted is not None
    assert granted.cuts == ()


def test_no_more_are_interrupted_than_the_bid_needs() -> None:
    market = busy_market(gpus=4)
    granted = firm(market, gpus=3)
    assert granted is not None
    assert len({cut.lease_id for cut in granted.cuts}) == len(granted.cuts) == 3


def test_nobody_is_interrupted_where_the_bid_would_not_fit_even_then() -> None:
    """volcano#5067: victims of a failed attempt were evicted anyway."""
    market = busy_market(gpus=2)
    assert firm(market, gpus=3) is None
    assert all(not granted.cuts for granted in market.grants().values())


@pytest.mark.parametrize("kind", ["on-demand", "reserved"])
def test_firm_leases_are_never_interrupted(kind: str) -> None:
    market = Market()
    market.offer("a", gpus=1, at=1, notice=NOTICE)
    market.bid("held", hours=8, at=1, service_class=kind)  # type: ignore[arg-type]  # a class
    market.run()
    market.wait(hours=1)
    assert firm(market) is None


def test_an_interruptible_bid_interrupts_nobody() -> None:
    assert firm(busy_market(), service_class="interruptible") is None


def test_a_lease_has_its_least_runtime() -> None:
    market = Market()
    market.offer("a", gpus=1, at=1, notice=NOTICE)
    market.bid("cheap0", hours=8, at=1, service_class="interruptible")
    market.run()
    market.wait(minutes=1)
    granted = firm(market)
    assert granted is not None
    assert granted.cuts[0].ends_at == NOON + RUNTIME_MIN


def test_what_the_bid_pays_must_cover_what_the_interrupted_lose() -> None:
    # Lost are 7 h 25 min at 1.00 and a tenth of that; an hour at 3.00 does not pay for it.
    assert firm(busy_market(), hours=1) is None


@pytest.mark.parametrize("price", get_args(PriceRule))
def test_what_the_interrupted_lose_is_paid_under_every_price_rule(price: PriceRule) -> None:
    market = busy_market(gpus=1)
    book = Book(market.name)
    for recorded in market.events():
        book.apply(recorded.event, recorded.position)
    paid = firm(market)
    assert paid is not None
    [placed] = [
        r
        for r in market.events()
        if isinstance(r.event, BidPlaced) and r.event.bid_id == paid.bid_id
    ]
    came = book.apply(placed.event, placed.position)
    assert came is not None

    _, granted = on_fact(
        book, came, now=from_above(market.now), round_id=paid.round_id, rules=Rules(price=price)
    )

    assert isinstance(granted, LeaseGranted)
    assert (granted.price, granted.cuts) == (paid.price, paid.cuts)


def test_two_firm_bids_do_not_take_the_same_victim() -> None:
    """kueue#804: two preemptors took one victim."""
    market = busy_market(gpus=1)
    assert firm(market, "first") is not None
    assert firm(market, "second", at=5) is None
    audit(market.events())


def test_a_second_engine_folds_an_interruption_to_the_same_book() -> None:
    market = busy_market(gpus=1)
    assert firm(market) is not None
    market.engine = market.new_engine()
    assert firm(market, "again", at=5) is None
    audit(market.events())


BETTER = LeaseId(UUID(int=77))
"""The lease that another one makes way for."""


def interrupted_at(*shares: Share) -> tuple[LeaseInterrupted, LeaseClosed]:
    lease = active(*(shares or (share(HOST_A, ADA),)))
    now = NOON + ONE_HOUR
    stop_at = now + timedelta(minutes=15)
    events = interrupt(lease, in_favour_of=BETTER, stop_at=stop_at, now=now)
    [told] = events
    assert isinstance(told, LeaseInterrupted)
    lease = after(lease, events)
    for moment in (stop_at, stop_at + STOP_GRACE):
        events = lease.tick(now=moment, start_grace=START_GRACE)
        lease = after(lease, events)
    [closed] = [event for event in events if isinstance(event, LeaseClosed)]
    return told, closed


def test_an_interrupted_lease_stops_as_by_a_reclaim_and_is_compensated_as_by_one() -> None:
    told, closed = interrupted_at()
    assert closed.reason == close_reasons.INTERRUPTED
    # A tenth of 3 h 45 min of two GPUs at 2.00.
    assert [each.money for each in told.compensations] == [Money(1_500_000_000)]
    assert (closed.compensation, closed.compensation_from) == (Money(1_500_000_000), ADA)


def test_an_interruption_that_comes_after_the_end_changes_nothing() -> None:
    lease = active()
    lease = after(lease, lease.close(now=NOON + ONE_HOUR))
    asked = {"in_favour_of": BETTER, "stop_at": lease.ends_at, "now": NOON}
    assert interrupt(lease, **asked) == []  # type: ignore[arg-type]  # as named


def test_an_extension_that_was_granted_before_an_interruption_lapses() -> None:
    """The engine had granted it and then cut the lease; the lease hears of both in any order."""
    lease = active()
    stop_at = lease.ends_at + ONE_HOUR
    told = interrupt(lease, in_favour_of=BETTER, stop_at=stop_at, now=NOON)
    lease = after(lease, told)
    assert lease.extend(ends_at=stop_at + ONE_HOUR, now=NOON) == []
    assert lease.due_at == lease.ends_at


@settings(max_examples=40, deadline=None)
@given(
    cheap=st.lists(
        st.tuples(st.integers(1, 3), st.integers(2, 10), st.booleans()), min_size=1, max_size=6
    ),
    wanted=st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 8), st.integers(1, 9), st.booleans()),
        min_size=1,
        max_size=4,
    ),
    minutes=st.integers(0, 90),
)
def test_never_more_than_there_is_victims_unique_and_interruptible_only(
    cheap: list[tuple[int, int, bool]],
    wanted: list[tuple[int, int, int, bool]],
    minutes: int,
) -> None:
    market = Market()
    market.offer("a", gpus=4, at=1, notice=NOTICE)
    market.offer("b", gpus=3, at="1.50", notice=NOTICE)
    may_stop: dict[object, bool] = {}
    for index, (gpus, hours, interruptible) in enumerate(cheap):
        kind = "interruptible" if interruptible else "on-demand"
        bid_id = market.bid(
            f"c{index}",
            gpus=gpus,
            hours=hours,
            at=2,
            deadline=market.now + hours * HOUR,
            service_class=kind,  # type: ignore[arg-type]  # a class
        )
        market.run()
        may_stop[bid_id] = interruptible
    market.wait(minutes=minutes)
    for index, (gpus, hours, limit, gang) in enumerate(wanted):
        deadline = market.now + (hours + 1) * HOUR
        market.bid(f"w{index}", gpus=gpus, hours=hours, at=limit, deadline=deadline, gang=gang)
        market.run()

    audit(market.events())
    grants = {granted.lease_id: granted for granted in market.grants().values()}
    cuts = [cut for granted in grants.values() for cut in granted.cuts]
    assert len({cut.lease_id for cut in cuts}) == len(cuts)
    for granted in grants.values():
        for cut in granted.cuts:
            victim = grants[cut.lease_id]
            assert may_stop.get(victim.bid_id, False)
            assert cut.ends_at >= granted.at + NOTICE
            assert cut.ends_at - victim.window.starts_at >= RUNTIME_MIN
            uuids = {uuid for each in victim.shares for uuid in each.gpu_uuids}
            taken = {uuid for each in granted.shares for uuid in each.gpu_uuids}
            assert uuids & taken, "each victim was in the way"
