"""Waiting counts in rounds, within bounds, and is never paid; small bids starve no gang."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.domain.facts.events import BidPlaced, RoundCleared
from marketplace.domain.facts.instants import from_above
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.rounds.ageing import FULL_AGE, PPM, weight_of
from marketplace.domain.verification.verify_round import faults
from tests.conftest import NOON
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import Market, named, rate
from tests.marketplace.support.rounds import book_of, cleared

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def crowded(late: float | str, *, waits: timedelta = 2 * HOUR) -> Market:
    """Return a market of one GPU in which `old` has waited at 2.00 and `late` just came.

    Only one of them can have it: the GPU is offered for one hour.
    """
    market = Market()
    market.bid("old", at=2, patience="patient", deadline=NOON + 30 * HOUR)
    market.run()
    market.now = NOON + waits
    market.offer("a", gpus=1, at=1, windows=[(market.now, market.now + HOUR)])
    market.bid("late", at=late, patience="patient", deadline=market.now + 28 * HOUR)
    market.run()
    return market


def test_who_waited_goes_before_one_who_came_late_and_pays_slightly_more() -> None:
    market = crowded("2.10")

    assert market.grant("old") is not None
    assert market.grant("late") is None


def test_who_pays_much_more_goes_first_all_the_same() -> None:
    market = crowded("2.50")

    assert market.grant("old") is None
    assert market.grant("late") is not None


def test_without_waiting_the_higher_limit_decides() -> None:
    market = crowded("2.10", waits=timedelta(seconds=61))

    assert market.grant("late") is not None


def test_the_weight_is_never_paid() -> None:
    market = crowded("2.10")

    granted = market.grant("old")

    assert granted is not None
    assert granted.price == rate(2), "its own limit, though late would have paid more"
    audit(market.events())


def test_the_certificate_tells_weight_and_welfare_apart() -> None:
    market = crowded("2.10")
    [told] = [
        each.event
        for each in market.decisions()
        if isinstance(each.event, RoundCleared) and each.event.grants
    ]

    assert told.certificate is not None
    assert told.certificate.welfare_nanos == 10**9
    # A tenth after two hours, and a tenth of that again for 2 of the 29 hours it may start in.
    assert told.certificate.weight_nanos == 2 * 10**9 * 106_896 // PPM
    assert told.certificate.bound_nanos >= 10**9 + told.certificate.weight_nanos


def test_a_weight_beyond_the_rule_is_a_fault() -> None:
    market = Market()
    market.offer("a", at=1)
    market.bid("x", patience="patient")
    book = book_of(market)
    told, grants = cleared(book)
    assert told.certificate is not None

    heavy = replace(told.certificate, weight_nanos=4 * 10**8 + 1, bound_nanos=10**12)
    minus = replace(told.certificate, weight_nanos=-1)

    for certificate in (heavy, minus):
        found = faults(book, replace(told, certificate=certificate), grants)
        assert any("waiting weighs too much" in str(fault) for fault in found)


def open_bid(*, start: timedelta, room: timedelta) -> OpenBid:
    market = Market()
    ends = NOON + start + HOUR + room
    market.bid("x", at=3, start=NOON + start, deadline=ends, patience="patient")
    [placed] = [each.event for each in market.events()]
    assert isinstance(placed, BidPlaced)
    return OpenBid.of(placed, since=1)


@given(st.integers(0, 2_000), st.integers(0, 2_000), st.integers(0, 5_000), st.integers(0, 5_000))
def test_the_weight_grows_with_time_and_stays_within_a_fifth_of_the_limit(
    start: int, room: int, sooner: int, later: int
) -> None:
    bid = open_bid(start=start * MINUTE, room=room * MINUTE)
    sooner, later = sorted((sooner, later))

    first, then = (
        weight_of(bid, now=from_above(NOON + minutes * MINUTE)) for minutes in (sooner, later)
    )

    assert 0 <= first <= then <= bid.limit // 5
    if sooner <= start:
        assert first == 0, "asking long ahead is not waiting"


def test_a_narrow_window_gains_nothing_before_it_has_waited() -> None:
    narrow = open_bid(start=timedelta(0), room=timedelta(0))
    wide = open_bid(start=timedelta(0), room=24 * HOUR)
    soon = from_above(NOON + MINUTE)

    assert weight_of(narrow, now=soon) <= weight_of(wide, now=soon) * 2
    assert weight_of(narrow, now=soon) < narrow.limit // 250
    assert weight_of(wide, now=from_above(NOON) + FULL_AGE) > wide.limit // 10


# --- big gangs and small bids ------------------------------------------------------------------


@pytest.mark.parametrize("patience", ["patient", "immediate"])
def test_a_stream_of_small_bids_neither_delays_nor_starves_a_gang(patience: str) -> None:
    """Backfill goes around a start that was granted, and never puts it off."""
    market = Market()
    for host in ("a", "b"):
        market.offer(host, gpus=4, at=1)
    for number in range(8):
        market.bid(f"busy {number}", hours=1 + number / 2, at=2)
    market.run()
    free_at = NOON + timedelta(hours=4.5)
    market.bid("gang", gpus=8, hours=3, at=2, gang=True, patience=patience)  # type: ignore[arg-type]
    market.wait(seconds=61)
    market.run()
    granted = market.grant("gang")
    assert granted is not None
    assert granted.window.starts_at == free_at, "the first moment at which all eight are free"

    random, small = Random(3), 0
    while market.now < free_at + 3 * HOUR:
        market.wait(minutes=10)
        for _ in range(3):
            small += 1
            hours = random.choice((0.25, 0.5, 1, 2, 4))
            at = random.choice((3, 5, 9))
            how = random.choice(("patient", "immediate"))
            market.bid(f"small {small}", hours=hours, at=at, patience=how)  # type: ignore[arg-type]
        market.run()

    audit(market.events())
    assert market.grant("gang") == granted
    before = [
        grant
        for bid_id, grant in market.grants().items()
        if bid_id != named("bid gang") and grant.at > NOON and grant.window.starts_at < free_at
    ]
    assert len(before) > 10, "what ends before the gang starts fills the holes"
    assert all(grant.window.ends_at <= free_at for grant in before)


def test_a_gang_that_must_wait_for_a_round_is_put_off_by_one_round_at_most() -> None:
    market = Market()
    market.offer("a", gpus=8, at=1)
    market.run()
    market.bid("gang", gpus=8, hours=3, at=2, patience="patient")
    for number in range(30):
        market.wait(seconds=5)
        market.bid(f"small {number}", hours=1, at=9)
        market.run()

    granted = market.grant("gang")

    assert granted is not None
    assert granted.at <= NOON + timedelta(seconds=65)
    audit(market.events())
