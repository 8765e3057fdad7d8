"""A bid that no cloud serves is told why, and asked for less and less often."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from bursting.domain.events import BurstDeferred
from bursting.domain.waits import PAUSE_MAX, Wait, defer
from bursting.loops import BATCH, Overflowing
from bursting.models import BurstWaitRow
from ledger.domain.ids import BidId, TenantId
from ledger.domain.money import Money, Rate
from ledger.eventstore.port import START, record
from ledger.rows import Rows
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts.events import BidAmended
from marketplace.projections.bids import PROJECTIONS as BIDS
from tests.access.conftest import Caller, admit
from tests.bursting.bids_and_offers import NOON, RULES
from tests.bursting.market import BID, TESTER, Market, bid_like
from tests.bursting.reading import read

pytestmark = pytest.mark.django_db


def pass_for(market: Market, loop: Overflowing, span: timedelta) -> None:
    until = market.now + span
    while market.now < until:
        loop.run_once(market.store, now=market.now)
        market.later(seconds=20)


def dear() -> Market:
    return Market(bid=bid_like(limit=Rate(804_799_999)))


def test_clouds_are_asked_after_pauses_that_double_up_to_an_hour() -> None:
    market = Market(bid=bid_like(deadline=NOON + timedelta(days=3)))
    market.cloud.catalogue = []
    loop = Overflowing(market.overflow)
    read(market)

    pass_for(market, loop, timedelta(hours=4))

    asked = [event.at for event in market.events(BurstDeferred)]
    assert market.cloud.faults.calls["offers"] == len(asked) <= 10
    pauses = [event.next_at - event.at for event in market.events(BurstDeferred)]
    assert pauses[:6] == [timedelta(minutes=2**n) for n in range(6)]
    assert pauses[6:] == [PAUSE_MAX] * len(pauses[6:])


def test_pauses_outlive_the_process() -> None:
    market = Market()
    market.cloud.catalogue = []
    read(market)
    for _ in range(30):
        Overflowing(market.overflow).run_once(market.store, now=market.now)
        market.later(seconds=20)

    assert market.cloud.faults.calls["offers"] == 4


def test_an_amended_bid_is_asked_for_at_once_and_its_pauses_begin_anew() -> None:
    market = dear()
    loop = Overflowing(market.overflow)
    read(market)
    pass_for(market, loop, timedelta(minutes=40))
    before = market.cloud.faults.calls["offers"]
    amended = BidAmended(
        bid_id=BID.bid_id, limit=Rate(804_799_998), deadline=BID.deadline, at=market.now
    )
    record(market.store, Bid, BID.bid_id, lambda _: [amended], by=TESTER)

    pass_for(market, loop, timedelta(seconds=40))

    assert market.cloud.faults.calls["offers"] == before + 1
    assert market.events(BurstDeferred)[-1].tries == 1


def told(market: Market) -> BurstWaitRow:
    BurstWaitRow.objects.all().delete()
    read(market)
    Overflowing(market.overflow).run_once(market.store, now=market.now)
    read(market)
    return BurstWaitRow.objects.get(pk=BID.bid_id)


def test_each_reason_is_told_in_words() -> None:
    market = dear()
    assert "limit of at least 0.8048 USD per GPU-hour would do" in told(market).words

    market = Market()
    market.cloud.catalogue = []
    assert told(market).reason == "no-cloud-offer"

    market = Market(budget=Money(1))
    assert "budget" in told(market).words

    market = Market()
    market.cloud.faults.fail("offers")
    assert told(market).words == "No cloud answers at present."


def test_attempts_that_are_used_up_are_told_with_their_reasons() -> None:
    market = Market()
    market.cloud.faults.fail("launch", times=1_000)
    for _ in range(RULES.attempts_max):
        market.spill()
        market.later(seconds=RULES.boot_seconds)
        market.tick()
        market.later(hours=1)
    read(market)

    row = told(market)

    assert row.reason == "attempts-exhausted"
    assert row.words.count("unavailable") == RULES.attempts_max


def test_a_bid_that_is_served_or_gone_has_no_reason_any_more() -> None:
    market = Market()
    catalogue, market.cloud.catalogue = market.cloud.catalogue, []
    told(market)
    market.cloud.catalogue = catalogue
    market.later(minutes=2)
    market.spill()
    read(market)
    assert not BurstWaitRow.objects.exists()

    market = dear()
    told(market)
    market.cancel_bid()
    read(market)
    assert not BurstWaitRow.objects.exists()


def test_bids_that_rest_do_not_keep_others_from_their_turn() -> None:
    market = Market()
    for number in range(BATCH + 5):
        market.place(bid_like(bid_id=BidId(UUID(int=100 + number)), limit=Rate(1), at=NOON))
    last = bid_like(bid_id=BidId(UUID(int=999)), at=NOON + timedelta(seconds=5))
    market.place(last)
    market.later(seconds=10)
    loop = Overflowing(market.overflow)
    read(market)

    for _ in range(4):
        loop.run_once(market.store, now=market.now)
        market.later(seconds=1)

    rented_for = {market.instance(each).intent.bid_id for each in market.intended()}
    assert rented_for == {BID.bid_id, last.bid_id}


@given(steps=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 2)), max_size=40))
def test_a_pause_never_shrinks_while_the_bid_stays_as_it_is(steps: list[tuple[int, int]]) -> None:
    wait, now, version = None, NOON, 1
    last: timedelta | None = None
    for seconds, grown in steps:
        now += timedelta(seconds=seconds)
        if grown == 2 and seconds % 7 == 0:
            version, last = version + 1, None
        events = deferred(wait, version, now)
        if wait is not None and wait.rests(version, now):
            assert events == []
            continue
        (event,) = events
        pause = event.next_at - event.at
        assert timedelta(minutes=1) <= pause <= PAUSE_MAX
        assert last is None or pause >= min(last * 2, PAUSE_MAX)
        wait, last = Wait(event), pause


def deferred(wait: Wait | None, version: int, now: datetime) -> list[BurstDeferred]:
    return defer(
        wait,
        bid_id=BID.bid_id,
        tenant_id=TenantId(uuid4()),
        bid_version=version,
        reason="x",
        words="y",
        now=now,
    )


def show_bids(market: Market) -> None:
    """Write the rows of bids, by which somebody may see one or may not."""
    rows = Rows()
    (bids,) = (each for each in BIDS if each.name == "marketplace.bids")
    for recorded in market.store.read_all(after=START, limit=10_000).events:
        if recorded.type in bids.on:
            bids.project(recorded, rows)
    rows.flush()


def ask(caller: Caller, bid_id: UUID) -> Any:
    return Client(raise_request_exception=False).get(
        f"/api/v1/burst/bids/{bid_id}", headers={"Authorization": f"Bearer {caller.token}"}
    )


@pytest.mark.urls("tests.bursting.routes")
def test_whoever_placed_the_bid_reads_the_reason_and_nobody_else_does() -> None:
    mine, other = admit("ada-labs", "consumer"), admit("eve-works", "consumer")
    market = Market(bid=bid_like(tenant_id=mine.tenant_id))
    market.cloud.faults.room["zone-a"] = 0
    market.advance(market.spill())
    market.cloud.catalogue = []
    market.later(hours=1)
    told(market)
    show_bids(market)

    said = ask(mine, BID.bid_id).json()

    assert said["waiting"]["reason"] == "no-cloud-offer"
    assert said["waiting"]["message"].startswith("No cloud offers what the bid asks for")
    assert [(each["attempt"], each["reason"]) for each in said["attempts"]] == [(1, "capacity")]
    hidden = ask(other, BID.bid_id)
    assert (hidden.status_code, hidden.json()["code"]) == (404, "bid-unknown")
