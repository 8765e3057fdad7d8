"""Whatever happens in a market, in both lanes: what was promised to a lease is kept.

Starts of firm leases are never put off by what is matched later; who is interrupted has had notice
and time to work, and in favour of firm bids alone; gangs get the first start there is; bids
of a round are served by their deadlines where they can all be.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import permutations
from random import Random

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from ledger.domain.ids import BidId, LeaseId
from ledger.eventstore.port import Recorded
from marketplace.domain.clearing.own_supply_first import fit
from marketplace.domain.facts.events import (
    BidPlaced,
    LeaseGranted,
)
from marketplace.domain.facts.instants import from_above
from marketplace.domain.quotas.minimum_runtime import LEAST_RUN_SECONDS
from tests.conftest import NOON
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.life import HOUR, MINUTE, Life
from tests.marketplace.support.market import Market
from tests.marketplace.support.rounds import book_of

RUNTIME_MIN = timedelta(seconds=LEAST_RUN_SECONDS)


def promised(log: Iterable[Recorded]) -> int:
    """Check what a log says of interruptions, by the facts alone; return how many there are."""
    bids: dict[BidId, BidPlaced] = {}
    grants: dict[LeaseId, LeaseGranted] = {}
    cut: dict[LeaseId, datetime] = {}
    for recorded in log:
        match recorded.event:
            case BidPlaced() as bid:
                bids[bid.bid_id] = bid
            case LeaseGranted() as granted:
                grants[granted.lease_id] = granted
                for each in granted.cuts:
                    victim = grants[each.lease_id]
                    assert each.because == "interrupted"
                    known = cut.get(each.lease_id, victim.window.ends_at)
                    assert each.ends_at < known, "a second one takes only what the first left"
                    cut[each.lease_id] = each.ends_at
                    assert bids[victim.bid_id].service_class == "interruptible"
                    assert bids[granted.bid_id].service_class != "interruptible"
                    notice = max(share.notice_seconds for share in victim.shares)
                    assert each.ends_at >= granted.at + notice * timedelta(seconds=1)
                    ran = each.ends_at - max(victim.window.starts_at, victim.at)
                    assert ran >= RUNTIME_MIN or each.ends_at <= victim.window.starts_at
                    assert each.ends_at <= granted.window.starts_at
                    assert each.ends_at < victim.window.ends_at
            case _:
                pass
    return len(cut)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 1 << 32))
def test_who_is_interrupted_had_notice_and_runtime_and_no_firm_lease_is_touched(
    seed: int,
) -> None:
    life = Life(Random(seed))
    life.fill()
    for _ in range(20):
        life.act()

    log = list(life.market.events())
    audit(log)
    event(f"interrupted: {promised(log)}")


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 1 << 32))
@example(seed=4_139)  # a patient bid, for what its round left of a cut lease
@example(seed=20_566)  # an immediate one
@example(seed=40_015)
@example(seed=41_729)
@example(seed=30_508_796)  # after a lease that its owner keeps the rest of, nothing is cleaned
def test_nobody_waits_for_what_is_free(seed: int) -> None:
    """After each pass, and after a round of the patient, nothing that waits could be placed."""
    life = Life(Random(seed))
    for _ in range(20):
        life.act()
    life.market.wait(minutes=2)
    life.market.run()
    life.market.run()
    book, now = book_of(life.market), from_above(life.market.now)

    could = [bid for bid in book.bids.values() if fit(book, bid, book.calendar, now=now)]
    assert could == []


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 1 << 32), patient=st.booleans())
def test_a_gang_gets_the_first_start_there_is_and_nothing_later_delays_it(
    seed: int, patient: bool
) -> None:
    """It asks for every GPU, so it starts when the last lease that was there before it is over."""
    life = Life(Random(seed))
    gpus = sum(len(offer.terms.gpus) for offer in book_of(life.market).offers.values())
    for _ in range(12):
        life.act()
    # The round in which it comes begins with nobody else: who waits for one is served before.
    life.market.wait(minutes=2)
    life.market.run()
    market = life.market
    life.words.append("gang")
    market.bid(
        "gang",
        gpus=gpus,
        hours=2,
        at=9,
        deadline=NOON + 48 * HOUR,
        gang=True,
        service_class="reserved",
        patience="patient" if patient else "immediate",
    )
    before = latest_end(market, [market.now])
    market.wait(minutes=2)
    market.run()
    first = market.grant("gang")
    for _ in range(12):
        life.act()

    if first is None:
        assert before + 2 * HOUR + 10 * MINUTE > NOON + 48 * HOUR, "there is a start in time"
        return
    assert first == market.grant("gang")
    assert first.window.starts_at <= max(before, market_now(first)) + 10 * MINUTE
    promised(market.events())


def market_now(granted: LeaseGranted) -> datetime:
    return granted.at + timedelta(seconds=1)


def latest_end(market: Market, at_least: list[datetime]) -> datetime:
    """Return when the last of all that is held is over."""
    book = book_of(market)
    # Also what an owner took back: that stays the owner's until the lease would have ended.
    ends = [span.ends for uuid in book.calendar.gpus() for span in book.calendar.of(uuid)]
    epoch = datetime.fromtimestamp(0, NOON.tzinfo)
    return max(at_least + [epoch + int(end) * timedelta(milliseconds=1) for end in ends])


@settings(deadline=None, max_examples=40)
@given(
    wishes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6)), min_size=2, max_size=4),
)
def test_a_round_serves_all_by_their_deadlines_where_one_gpu_can(
    wishes: list[tuple[int, int]],
) -> None:
    """Bids of one price on one GPU: if they can all be done in time in some order, they are."""
    market, half = Market(), 30 * MINUTE
    market.offer("a", at=1, windows=[(NOON, NOON + 24 * HOUR)])
    for number, (length, slack) in enumerate(wishes):
        market.bid(
            f"b{number}",
            hours=length / 2,
            at=2,
            deadline=NOON + (length + slack) * half + 5 * MINUTE,
            patience="patient",
        )
    market.run()

    if any(in_time(order) for order in permutations(wishes)):
        assert len(market.grants()) == len(wishes)


def in_time(order: Iterable[tuple[int, int]]) -> bool:
    at = 0
    for length, slack in order:
        at += length
        if at > length + slack:
            return False
    return True
