"""Work that has had its firm time is paused for work that has not, and for bids that cannot be."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ledger.domain.ids import BidId
from listings.domain.events import OfferPublished
from marketplace.domain.book.snapshot import restored, state_of
from marketplace.domain.facts.events import ReturnDue
from marketplace.domain.facts.instants import from_above
from marketplace.domain.facts.policy_events import LeastRunSet
from tests.conftest import NOON
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import MARKET, Market, named
from tests.marketplace.support.pausing import (
    HOUR,
    SAVES,
    fresh,
    pausable,
    pause,
    paused_at,
    rest_of,
)
from tests.marketplace.support.preemption_in_rounds import patient, rounded
from tests.marketplace.support.rounds import book_of

NOTICE = timedelta(minutes=5)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def market() -> Market:
    """Return a market of one GPU, on which work runs that may be paused."""
    made = Market()
    made.offer("a", at=1, notice=NOTICE)
    assert pausable(made) is not None
    return made


def test_who_finds_no_room_has_work_paused_that_had_its_firm_hour(market: Market) -> None:
    market.wait(hours=2)

    granted = fresh(market)

    assert granted is not None
    assert paused_at(granted, market) == {market.lease_id("long"): NOTICE}
    assert granted.window.starts_at == market.now + NOTICE
    audit(market.events())


def test_it_has_its_firm_hour_whoever_comes(market: Market) -> None:
    market.wait(minutes=20)

    assert fresh(market) is None, "it would have to begin half an hour before the hour is over"

    market.wait(minutes=31)
    granted = fresh(market, "later")
    assert granted is not None
    assert paused_at(granted, market) == {market.lease_id("long"): 9 * MINUTE}


@pytest.mark.parametrize(("hours", "told"), [(0, True), (3, False)])
def test_how_long_it_is_firm_is_a_policy(market: Market, hours: int, told: bool) -> None:
    market.put(
        f"quotas-{MARKET}",
        LeastRunSet(market=MARKET, seconds=hours * 3_600, at=market.now, firm=True),
    )
    market.wait(minutes=40)

    assert (fresh(market) is not None) is told


def test_what_was_done_before_counts_but_each_lease_runs_half_an_hour() -> None:
    market = Market()
    market.offer("a", at=1, notice=NOTICE)
    rest_of(market, "rest", done=2 * HOUR)
    market.wait(minutes=10)

    assert fresh(market) is None

    market.wait(minutes=15)
    granted = fresh(market, "later")
    assert granted is not None
    assert paused_at(granted, market) == {market.lease_id("rest"): 5 * MINUTE}


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({}, True),
        ({"service_class": "reserved"}, True),
        ({"service_class": "interruptible"}, False),
        ({"pausable": True, "work": SAVES, "service_class": "interruptible"}, True),
        ({"pausable": True, "work": SAVES}, True),
    ],
)
def test_who_may_have_others_paused(market: Market, how: dict[str, Any], told: bool) -> None:
    market.wait(hours=2)

    assert (fresh(market, **how) is not None) is told


@pytest.mark.parametrize(("seeks", "waits"), [("soonest", False), ("cheapest", True)])
def test_who_seeks_the_soonest_start_does_not_wait_for_a_place_that_is_free_later(
    market: Market, seeks: str, waits: bool
) -> None:
    market.wait(hours=2)

    granted = fresh(market, deadline=market.now + 24 * HOUR, seeks=seeks)

    assert granted is not None
    assert (granted.cuts == ()) is waits
    assert granted.window.starts_at == (NOON + 8 * HOUR if waits else market.now + NOTICE)


def test_two_pieces_of_work_do_not_pause_one_another(market: Market) -> None:
    market.wait(hours=2)
    other = fresh(market, "other", pausable=True, work=SAVES)
    assert other is not None
    market.take_up()
    market.wait(minutes=5)
    pause(market)

    assert rest_of(market, "rest") is None, "it had its firm hour: it waits"

    market.wait(hours=2)
    market.close("other")
    market.run()
    again = market.grant("rest")
    assert again is not None
    assert again.cuts == ()
    assert again.window.starts_at == market.now


def test_the_rest_reserves_nothing_that_somebody_holds_until_later(market: Market) -> None:
    market.offer("b", at=1)
    market.bid("firm", hours=9)
    market.run()
    market.wait(hours=2)

    assert rest_of(market, "rest", of="another") is None
    assert book_of(market).told[BidId(named("bid rest"))] == "taken"

    market.wait(minutes=415)
    market.close("firm")
    market.run()
    again = market.grant("rest")
    assert again is not None
    assert again.window.starts_at == market.now


def test_a_deadline_that_was_amended_counts_and_so_does_how_long_it_is_extended() -> None:
    market = Market()
    market.bid("long", hours=8, at=2, pausable=True, resume=True, work=SAVES,
               deadline=market.now + 48 * HOUR)  # fmt: skip
    market.bid("extended", hours=1, at=2, pausable=True, resume=True, work=SAVES,
               deadline=market.now + 2 * HOUR, auto_extend_until=NOON + 40 * HOUR)  # fmt: skip
    market.amend("long", at=2, deadline=market.now + 9 * HOUR)
    market.run()
    market.offer("a", gpus=2, at=1, notice=NOTICE)
    market.run()
    market.extend("extended", NOON + 6 * HOUR)
    market.run()
    market.wait(hours=2)

    granted = fresh(market)

    assert granted is not None
    assert set(paused_at(granted, market)) == {market.lease_id("extended")}


def test_the_rest_takes_the_room_of_a_window_that_opens_later() -> None:
    market = Market()
    opens = NOON + 5 * HOUR
    market.offer("night", windows=[(opens, opens + 10 * HOUR)])

    again = rest_of(market, "rest")

    assert again is not None
    assert again.window.starts_at == opens


def test_the_rest_comes_before_all_that_pays_no_more(market: Market) -> None:
    soon = market.now + 1.5 * HOUR
    market.bid("before", hours=1, at=2, deadline=soon)
    market.bid("dearer", hours=1, at=3, deadline=soon)
    rest_of(market, "rest", of="another", at=2)

    queue = book_of(market).resting()

    words = ["dearer", "rest", "before"]
    assert [bid.bid_id for bid in queue] == [BidId(named(f"bid {word}")) for word in words]


@pytest.mark.parametrize(
    ("until", "due_in"),
    [(40 * HOUR, 12 * HOUR), (10 * HOUR, 10 * HOUR - 6 * HOUR - 30 * MINUTE)],
)
def test_the_rest_of_paused_work_is_due_after_half_a_day_or_near_its_deadline(
    until: timedelta, due_in: timedelta
) -> None:
    market = Market()
    market.offer("a", at=1)
    market.bid("firm", hours=20)
    market.run()
    rest_of(market, "rest", deadline=market.now + until)
    book = book_of(market)

    market.wait(seconds=due_in.total_seconds() - 1)
    assert book.returns.due(book.bids, _millis(market)) == []
    market.wait(seconds=2)
    assert book.returns.due(book.bids, _millis(market)) == [BidId(named("bid rest"))]
    assert book.returns.due(book.bids, _millis(market)) == [], "it is said once"


def test_once_it_is_due_others_are_paused_for_it(market: Market) -> None:
    market.wait(hours=2)
    rest_of(market, "rest", of="another", deadline=market.now + 9 * HOUR)
    assert market.grant("rest") is None

    bid_id = BidId(named("bid rest"))
    market.put(f"bid-{bid_id}", ReturnDue(bid_id=bid_id, market=MARKET, at=market.now))
    market.run()

    granted = market.grant("rest")
    assert granted is not None
    assert paused_at(granted, market) == {market.lease_id("long"): NOTICE}


def test_work_is_not_paused_that_would_not_be_done_in_time() -> None:
    market = Market()
    market.offer("a", at=1, notice=NOTICE)
    pausable(market, hours=8, deadline=market.now + 10 * HOUR)
    market.wait(hours=2)

    assert fresh(market) is None, "two hours of others leave less than an hour to spare"
    assert fresh(market, "shorter", hours=0.5, deadline=market.now + 40 * MINUTE) is not None


def test_work_is_paused_only_where_its_rest_has_a_place(market: Market) -> None:
    market.wait(hours=2)
    offered = [each.event for each in market.events() if isinstance(each.event, OfferPublished)]
    assert len(offered) == 1
    market.bid("reserves", hours=37, start=NOON + 8 * HOUR, deadline=NOON + 45 * HOUR)
    market.run()
    assert market.grant("reserves") is not None

    assert fresh(market) is None, "it could only go on once that is over, after its deadline"


def test_who_pays_less_than_the_paused_gets_nothing_of_theirs(market: Market) -> None:
    dear = Market()
    dear.bid("long", hours=8, at=3, pausable=True, resume=True, work=SAVES,
             deadline=NOON + 48 * HOUR)  # fmt: skip
    dear.run()
    dear.offer("a", at=1, notice=NOTICE)
    dear.run()
    granted = dear.grant("long")
    assert granted is not None
    assert granted.price.nanos_per_gpu_hour == 3_000_000_000, "it waited: it pays its limit"
    dear.wait(hours=2)

    assert fresh(dear, at=2) is None
    paid = fresh(dear, "dearer", at="3.5")
    assert paid is not None
    assert paid.price == granted.price


def test_as_few_gpus_stop_as_will_do() -> None:
    market = Market()
    market.offer("a", gpus=4, at=1, notice=NOTICE)
    pausable(market, "pair", gpus=2)
    pausable(market, "one", gpus=1)
    pausable(market, "another", gpus=1)
    market.wait(hours=2)

    granted = fresh(market, gpus=2)

    assert granted is not None
    stopped = {cut.lease_id for cut in granted.cuts}
    pairs = [{market.lease_id("pair")}, {market.lease_id("one"), market.lease_id("another")}]
    assert stopped in pairs


def test_of_many_hosts_the_bid_goes_where_all_of_it_finds_room() -> None:
    market = Market()
    for host in "abc":
        market.offer(host, gpus=2, at=1, notice=NOTICE)
    market.bid("firm", gpus=1, hours=12)
    market.bid("firm too", gpus=1, hours=12)
    market.run()
    for index in range(4):
        pausable(market, f"long{index}")
    market.wait(hours=2)

    granted = fresh(market, gpus=2)

    assert granted is not None
    assert len(granted.cuts) == 2
    audit(market.events())


def test_a_gang_over_hosts_has_work_paused_on_several() -> None:
    market = Market()
    for host in "ab":
        market.offer(host, gpus=1, at=1, notice=NOTICE)
    pausable(market, "one")
    pausable(market, "two")
    market.wait(hours=2)

    granted = fresh(market, gpus=2, gang=True)

    assert granted is not None
    assert set(paused_at(granted, market).values()) == {NOTICE}
    assert len(granted.cuts) == 2


def test_a_round_has_work_paused_before_it_interrupts_at_a_price() -> None:
    market = Market()
    market.offer("a", gpus=2, at=1, notice=NOTICE)
    pausable(market)
    market.bid("cheap", hours=8, at=1, service_class="interruptible")
    market.run()
    market.wait(hours=2)
    patient(market, hours=2, at=4, deadline=market.now + 3 * HOUR)
    rounded(market)

    granted = market.grant("firm")

    assert granted is not None
    assert [(cut.lease_id, cut.because) for cut in granted.cuts] == [
        (market.lease_id("long"), "paused")
    ]
    audit(market.events())


def test_a_book_from_a_snapshot_pauses_as_one_from_the_log(market: Market) -> None:
    market.wait(hours=2)
    rest_of(market, "rest", of="another")
    market.put(
        f"bid-{named('bid rest')}",
        ReturnDue(bid_id=BidId(named("bid rest")), market=MARKET, at=market.now),
    )
    book = book_of(market)
    again = restored(state_of(book))

    assert state_of(again) == state_of(book)
    assert [bid.due for bid in again.bids.values()] == [bid.due for bid in book.bids.values()]
    assert list(again.leases.pausable) == list(book.leases.pausable)
    again.returns.due(again.bids, _millis(market))


def _millis(market: Market) -> int:
    return from_above(market.now)
