"""What a change of limit, deadline or number of GPUs does to a bid's rank, age, money and match."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.accounts import FundsInsufficient
from ledger.domain.money import NANOS_PER_UNIT, Money, Rate
from ledger.eventstore.port import Position, load
from marketplace.commands import bids
from marketplace.domain.bids.bid import Bid, BidNotOpen, CountIsFixed, hold_of, place
from marketplace.domain.bids.bounds import GpuCountOutOfBounds
from marketplace.domain.bids.workload_profiles import complete
from marketplace.domain.facts.events import BidAmended, GpuRequest, RoundCleared, Workload
from marketplace.domain.orderbook.open_bid import OpenBid
from tests.conftest import NOON
from tests.marketplace.support.going import Going
from tests.marketplace.support.market import Market, rate, somebody
from tests.marketplace.support.site import BID, HOUR, TERMS

LATER = NOON + 30 * HOUR
UNIT = NANOS_PER_UNIT


def asked(site: Going, **terms: Any) -> Bid:
    site.want(**terms)
    return site.bid_at(1)


def amend(
    site: Going,
    *,
    limit: Rate | None = None,
    deadline: datetime | None = None,
    gpus: int | None = None,
) -> Position:
    return bids.amend_bid(
        site.store,
        bid_id=BID,
        limit=limit,
        deadline=deadline,
        gpus=gpus,
        by=somebody(),
        now=site.now,
    )


@pytest.fixture
def site() -> Going:
    return Going()


# --- rank and age -------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [2, "2"])
def test_at_once_an_amended_bid_goes_behind_those_that_pay_as_much(at: float | str) -> None:
    market = Market()
    market.bid("first", at=1)
    market.bid("second", at=2)
    market.run()
    market.amend("first", at=at, deadline=LATER)
    market.run()
    market.offer("a", gpus=1, at="0.5", windows=[(NOON, NOON + HOUR)])
    market.run()

    assert market.grant("second") is not None
    assert market.grant("first") is None


def test_at_once_a_raised_limit_goes_before_lower_ones_and_a_fallen_one_behind() -> None:
    market = Market()
    for word, at in (("raised", 1), ("still", 2), ("fallen", 3)):
        market.bid(word, at=at)
    market.run()
    market.amend("raised", at="2.5", deadline=LATER)
    market.amend("fallen", at="1.5", deadline=LATER)
    market.run()
    for number in range(3):
        market.offer(f"o{number}", at="0.5", windows=[(NOON, NOON + HOUR)])
        market.run()

    order = [each.event.bid_id for each in market.decisions() if hasattr(each.event, "bid_id")]
    assert [dict(granted(market))[bid_id] for bid_id in order] == ["raised", "still", "fallen"]


def granted(market: Market) -> list[tuple[Any, str]]:
    leases = {word: market.grant(word) for word in ("raised", "still", "fallen")}
    return [(lease.bid_id, word) for word, lease in leases.items() if lease is not None]


def test_in_rounds_its_waiting_still_counts() -> None:
    """As old as its placing: a bid that came late and pays a little more does not go before it."""
    market = Market()
    market.bid("old", at=2, patience="patient", deadline=LATER)
    market.run()
    market.wait(hours=2)
    market.amend("old", at="2.01", deadline=NOON + 31 * HOUR)
    market.bid("late", at="2.1", patience="patient", deadline=LATER)
    market.offer("a", at=1, windows=[(market.now, market.now + HOUR)])
    market.run()

    assert market.grant("old") is not None
    assert market.grant("late") is None


@settings(deadline=None, max_examples=40)
@given(
    gpus=st.none() | st.integers(1, 9),
    at=st.integers(1, 5),
    hours=st.integers(2, 40),
    budget=st.none() | st.integers(1, 30),
)
def test_an_amended_bid_is_the_one_placed_with_those_terms_but_for_its_place(
    gpus: int | None, at: int, hours: int, budget: int | None
) -> None:
    more: dict[str, Any] = {} if budget is None else {"budget": Money(budget * UNIT)}
    placed = place(replace(TERMS, gpus=4, gpus_min=2, **more), now=NOON)
    bid = Bid.evolve(None, placed)
    (event,) = bid.amend(
        limit=rate(at), deadline=NOON + hours * HOUR + 5 * HOUR, gpus=gpus, now=NOON
    ) or (None,)
    if event is None:
        return

    book = OpenBid.of(placed, since=1).amended(event, since=9)
    anew = OpenBid.of(
        replace(
            placed,
            limit=event.limit,
            deadline=event.deadline,
            gpus=gpus or 4,
            gpus_min=None if gpus is not None and gpus <= 2 else 2,
        ),
        since=9,
    )
    same = ("rate", "limit", "reach", "deadline", "gpus", "gpus_min", "duration", "shape", "since")
    assert [getattr(book, name) for name in same] == [getattr(anew, name) for name in same]
    assert Bid.evolve(bid, event).hold == hold_of(replace(placed, gpus=gpus or 4), rate(at))


# --- money --------------------------------------------------------------------------------------


def test_more_is_set_aside_before_and_less_given_back_after(site: Going) -> None:
    asked(site)
    held = [site.held()]
    for change in ({"limit": rate(4)}, {"gpus": 3}, {"limit": rate(2)}, {"gpus": 1}):
        amend(site, **change)
        held.append(site.held())

    assert held == [Money(amount * UNIT) for amount in (24, 32, 48, 24, 8)]


@pytest.mark.parametrize("change", [{"limit": rate(20)}, {"gpus": 9}])
def test_what_the_account_does_not_cover_changes_nothing(site: Going, change: Any) -> None:
    bid = asked(site)

    with pytest.raises(FundsInsufficient):
        amend(site, **change)

    assert load(site.store, Bid, BID) == bid
    assert site.held() == Money(24 * UNIT)


def test_a_lease_of_fewer_gpus_holds_what_they_cost(site: Going) -> None:
    asked(site)
    amend(site, gpus=1)
    site.offer("a", gpus=2, at=1)
    site.go()

    assert len(site.grants()[BID].shares[0].gpu_uuids) == 1
    assert site.held() == Money(12 * UNIT), "one GPU for four hours at 3: the offer came later"


# --- its match ----------------------------------------------------------------------------------


@pytest.mark.parametrize("patience", ["immediate", "patient"])
def test_fewer_gpus_or_a_higher_limit_or_more_time_find_a_place(patience: Any) -> None:
    changes: tuple[dict[str, Any], ...] = ({"gpus": 2}, {"limit": rate(5)}, {"deadline": LATER})
    for number, change in enumerate(changes):
        site = Going(funds=200)
        site.offer("a", gpus=2, at=1)
        site.offer("b", gpus=3, at=5)
        site.offer("c", gpus=3, at=1, windows=[(NOON + 20 * HOUR, NOON + 40 * HOUR)])
        asked(site, gpus=3, patience=patience, deadline=NOON + 6 * HOUR)
        assert site.bid_at(1).state == "open", number
        amend(site, **change)
        site.wait(minutes=2)
        site.go()

        assert site.bid_at(1).state == "filled", change


def test_its_reason_is_that_of_its_new_terms(site: Going) -> None:
    site.offer("a", gpus=2, at=5)
    asked(site)
    amend(site, gpus=3)
    site.go()

    told = [
        unmatched.reason
        for recorded in site.decisions()
        if isinstance(recorded.event, RoundCleared)
        for unmatched in recorded.event.unmatched
    ]
    assert told[0] == "limit"
    assert told[-1] != "limit"


def test_a_reservation_of_a_gang_is_not_amended(site: Going) -> None:
    for word in "ab":
        site.offer(word, gpus=1, at=1, windows=[(NOON + 5 * HOUR, NOON + 20 * HOUR)])
    asked(site, placement="any-hosts", earliest_start=NOON + 6 * HOUR, service_class="reserved")

    for change in ({"gpus": 1}, {"limit": rate(4)}, {"deadline": LATER}):
        with pytest.raises(BidNotOpen):
            amend(site, **change)
    assert site.lease_at(1).starts_at == NOON + 6 * HOUR
    assert site.lease_at(1).gpus == 2


# --- the number of GPUs -------------------------------------------------------------------------


def test_of_fewer_gpus_each_needs_the_memory_that_the_work_needs(site: Going) -> None:
    kind = "training-7b"
    bid = asked(site, gpus=4, workload=Workload(kind))
    amend(site, gpus=2)

    needed = complete(GpuRequest(), kind, gpus=2)
    assert bid.wanted.request == complete(GpuRequest(), kind, gpus=4)
    assert site.bid_at(1).wanted.request == needed
    assert site.bid_at(1).terms == bid.terms


def test_memory_that_was_asked_for_stays(site: Going) -> None:
    said = GpuRequest(memory_mib_min=10_000)
    asked(site, gpus=4, workload=Workload("training-7b"), request=said)
    amend(site, gpus=2)

    assert site.bid_at(1).wanted.request == said


def test_a_number_that_cannot_be_is_refused(site: Going) -> None:
    bid = asked(site)

    for wrong in (0, 1_025):
        with pytest.raises(GpuCountOutOfBounds):
            amend(site, gpus=wrong)
    assert load(site.store, Bid, BID) == bid


def test_a_bid_that_may_go_to_a_cloud_keeps_its_number(site: Going) -> None:
    asked(site, burst_allowed=True)

    with pytest.raises(CountIsFixed):
        amend(site, gpus=1)
    amend(site, limit=rate(4))
    assert site.held() == Money(32 * UNIT)


def test_what_follows_an_amended_bid_asks_for_as_many(site: Going) -> None:
    asked(site, repeat_until=NOON + 24 * HOUR)
    amend(site, gpus=1)
    site.offer("a", gpus=2, at=1)
    site.go()
    site.begin()
    site.now = site.lease_at(1).ends_at
    site.stop()

    assert site.bid_at(2).terms.gpus == 1


def test_an_old_change_without_a_number_is_read_as_it_was() -> None:
    placed = place(TERMS, now=NOON)
    event = BidAmended(bid_id=BID, limit=rate(2), deadline=LATER, at=NOON)

    assert event.taken_over(placed) is placed
