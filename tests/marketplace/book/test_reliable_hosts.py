"""How reliable a host has proved, from what became of its leases, and bids that ask for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.ids import HostId
from marketplace.domain.book.book import Book
from marketplace.domain.book.snapshot import restored, state_of
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import GpuRequest, Patience, RoundCleared
from marketplace.domain.orderbook.host_reliability import (
    BROKEN_OFF,
    HALF_LIFE,
    LEASES_MIN,
    PPM,
    WENT_WELL,
    Record,
    meets,
    together,
)
from marketplace.queries.books import preview
from marketplace.queries.market import market_now
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, OWNER, Market, named, rate
from tests.marketplace.support.site import TERMS

RELIABLE = GpuRequest(reliability_min_ppm=900_000)
REASONS = st.sampled_from(sorted(close_reasons.REASONS))


def record(*reasons: int, every: int = 0) -> Record:
    found = Record()
    for number, reason in enumerate(reasons):
        found.note(reason, at=number * every)
    return found


def test_nothing_is_said_before_enough_leases_have_ended() -> None:
    few = record(*[close_reasons.WINDOW_OVER] * (LEASES_MIN - 1))
    enough = record(*[close_reasons.WINDOW_OVER] * LEASES_MIN)

    assert (few.ppm, enough.ppm) == (None, PPM)
    assert not meets(1, few)
    assert meets(None, few)
    assert meets(PPM, enough)


def test_the_share_counts_what_was_broken_off() -> None:
    found = record(*[close_reasons.WORK_DONE] * 8, close_reasons.RECLAIMED, close_reasons.WORK_LOST)

    assert found.ppm == 800_000


def test_what_the_market_does_says_nothing_of_a_host() -> None:
    before = record(*[close_reasons.WORK_DONE] * 5)
    before.note(close_reasons.INTERRUPTED, at=0)
    before.note(close_reasons.BID_WITHDRAWN, at=0)

    assert (before.ppm, before.leases) == (PPM, 5)


def test_an_older_lease_weighs_half_after_a_half_life() -> None:
    found = record(*[close_reasons.WORK_LOST] * 5)
    for _ in range(5):
        found.note(close_reasons.WORK_DONE, at=HALF_LIFE)

    assert found.ppm == PPM * 2 // 3


@given(st.lists(st.tuples(REASONS, st.integers(0, 10 * HALF_LIFE)), max_size=40))
def test_any_record_is_a_share_and_time_alone_changes_nothing(
    ends: list[tuple[int, int]],
) -> None:
    found, at = Record(), 0
    for reason, later in ends:
        at += later
        before = found.ppm
        found.note(reason, at=at)
        said = found.ppm
        assert said is None or 0 <= said <= PPM
        if before is not None and said is not None and reason in WENT_WELL:
            assert said >= before - 1
        if before is not None and said is not None and reason in BROKEN_OFF:
            assert said <= before + 1


def test_hosts_together_are_weighed_by_their_leases() -> None:
    good, bad = record(*[101] * 15), record(*[201] * 5)

    assert together([good, bad, Record()]) == 750_000
    assert together([Record()]) is None


def proved(market: Market, word: str, *reasons: int) -> None:
    """Let leases on a host end for these reasons, one after the other."""
    for number, reason in enumerate(reasons):
        name = f"{word} proof {number}"
        host = HostId(named(f"host {word}"))
        market.bid(name, at=3, hours=0.5, request=GpuRequest(hosts=(host,)))
        market.run()
        market.close(name, reason=reason)
        market.run()


@pytest.mark.parametrize("patience", ["immediate", "patient"])
def test_a_bid_goes_only_to_hosts_that_proved_reliable(patience: Patience) -> None:
    market = Market()
    market.offer("new", at=1)
    market.offer("bad", at=1)
    market.offer("good", at=2)
    proved(market, "bad", 101, 101, 101, 201, 502)
    proved(market, "good", 101, 101, 101, 301, 102)

    market.bid("b", at=3, request=RELIABLE, patience=patience)
    market.wait(minutes=2)
    market.run()

    granted = market.grant("b")
    assert granted is not None
    assert granted.shares[0].host_id == named("host good")


def test_a_bid_that_no_host_is_reliable_enough_for_is_told_so() -> None:
    market = Market()
    market.offer("new", at=1)
    market.bid("b", at=3, request=RELIABLE)

    market.run()

    cleared = market.decisions()[-1].event
    assert isinstance(cleared, RoundCleared)
    assert [each.reason for each in cleared.unmatched] == ["reliability"]


def test_a_waiting_bid_is_served_once_a_host_has_proved() -> None:
    market = Market()
    market.offer("a", gpus=2, at=1)
    market.bid("b", at=3, request=RELIABLE)
    market.run()

    proved(market, "a", *[101] * (LEASES_MIN - 1))
    before = market.grant("b")
    proved(market, "a", 101, *[101] * LEASES_MIN)

    assert before is None
    assert market.grant("b") is not None


def test_own_use_proves_nothing_and_a_snapshot_keeps_what_is_proved() -> None:
    market = Market()
    market.offer("a", at=1)
    proved(market, "a", 101, 201, 101)
    market.bid("own", tenant=OWNER, at=3, deadline=NOON + timedelta(days=5))
    market.run()
    market.close("own", reason=101)
    book = Book(MARKET)
    for recorded in market.events():
        book.apply(recorded.event, recorded.position)

    known = book.leases.records[HostId(named("host a"))]
    again = restored(state_of(book))

    assert known.leases == 3
    assert again.leases.records == book.leases.records
    assert next(iter(again.offers.values())).record == known


@pytest.mark.django_db
def test_quotes_and_the_market_tell_how_reliable_hosts_are() -> None:
    market = Market()
    market.offer("good", at=1)
    market.offer("bad", at=2)
    proved(market, "bad", 101, 101, 101, 201, 502)
    proved(market, "good", 101, 101, 101, 301, 102)
    terms = replace(TERMS, gpus=1)

    quote = preview(market.store, terms=terms, now=market.now)
    wanted = replace(terms, request=RELIABLE, tenant_id=OWNER)
    own = preview(market.store, terms=wanted, now=market.now)
    [goods] = market_now(market.store, market=MARKET, now=market.now)

    assert (quote.reliability_ppm, quote.own) == (PPM, False)
    assert (own.reliability_ppm, own.own, own.price) == (PPM, True, rate(0))
    assert goods.reliability_ppm == 800_000
