"""An owner changes the terms of an offer that stands: leases to come are on the new ones."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from listings.domain.changes import on_terms
from listings.domain.events import OfferPublished, OfferTermsChanged, ReclaimStep
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.book.book import Book
from marketplace.domain.book.snapshot import restored, state_of
from marketplace.domain.facts.events import LeaseGranted, Patience
from marketplace.domain.leases.reclaim_schedule import fee_ppm, least_notice
from marketplace.queries.books import explain_bid
from marketplace.replay.round import replay_round
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import MARKET, Market, named, rate
from tests.marketplace.support.random_market import Crowd, Lane

MINUTE = timedelta(minutes=1)
BETTER: dict[str, Any] = {
    "notice_seconds": 1_800,
    "grace_seconds": 60,
    "reclaim_fee_ppm": 200_000,
    "reclaim_steps": (ReclaimStep(7_200, 0),),
}


def granted(market: Market, word: str) -> LeaseGranted:
    found = market.grant(word)
    assert found is not None
    return found


def test_a_lease_keeps_what_it_was_granted_on_and_the_next_has_the_new_terms() -> None:
    market = Market()
    market.offer("a", gpus=2)
    market.bid("before")
    market.run()
    market.change_terms("a", **BETTER)
    market.bid("after")
    market.run()

    old, new = granted(market, "before").shares, granted(market, "after").shares

    assert (least_notice(old), fee_ppm(old[0], timedelta(hours=2))) == (5 * MINUTE, 100_000)
    assert (least_notice(new), fee_ppm(new[0], 30 * MINUTE)) == (30 * MINUTE, 200_000)
    assert fee_ppm(new[0], timedelta(hours=2)) == 0
    assert (old[0].grace_seconds, new[0].grace_seconds) == (15, 60)
    audit(market.events())


@pytest.mark.parametrize("patience", ["immediate", "patient"])
@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("notice>=30m", {"notice_seconds": 1_800}),
        ("reclaim>=20%", {"reclaim_fee_ppm": 200_000}),
        ("grace>=60s", {"grace_seconds": 60}),
        ("notice>=30m reclaim>=20% grace>=60s", BETTER),
        ("", {"lease_min_seconds": 3_600}),
        ("", {"workload_kinds": ("rendering",)}),
        ("", {"workload_kinds": ()}),
    ],
)
def test_a_bid_that_asked_in_vain_is_offered_it_at_once(
    query: str, said: dict[str, Any], patience: Patience
) -> None:
    market = Market()
    market.offer("a", lease_min=90 * MINUTE if "lease_min_seconds" in said else MINUTE)
    if "workload_kinds" in said:
        market.change_terms("a", workload_kinds=("inference",))
    market.bid("x", at=5, request=read_query(query), patience=patience, kind="rendering")
    market.run()
    assert market.grant("x") is None

    market.change_terms("a", **said)
    market.run()
    if patience == "patient":
        market.wait(minutes=2)
        market.run()

    assert granted(market, "x").shares[0].offer_id == named("offer a")
    audit(market.events())


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("notice>=5m", {"notice_seconds": 299}),
        ("reclaim>=10%", {"reclaim_fee_ppm": 99_999}),
        ("grace>=15s", {"grace_seconds": 14}),
        ("", {"lease_min_seconds": 3_601}),
        ("", {"workload_kinds": ("inference",)}),
    ],
)
def test_what_is_promised_no_longer_is_not_leased(query: str, said: dict[str, Any]) -> None:
    market = Market()
    market.offer("a")
    market.change_terms("a", **said)
    market.bid("x", at=5, request=read_query(query))
    market.run()

    assert market.grant("x") is None


def test_a_change_puts_an_offer_behind_others_at_its_floor_and_behind_bids_that_wait() -> None:
    market = Market()
    market.offer("a", at=1)
    market.offer("b", at=1)
    market.change_terms("a", notice_seconds=600)
    market.bid("first", at=2)
    market.bid("waits", at=2, request=read_query("notice>=1h"))
    market.run()
    market.change_terms("a", notice_seconds=3_600)
    market.run()

    assert granted(market, "first").shares[0].offer_id == named("offer b")
    # The bid was there first, so it pays what it said: as after a lower floor.
    assert granted(market, "waits").price == rate(2)


def test_what_its_owner_keeps_stays_kept_under_other_terms() -> None:
    market = Market()
    market.offer("a")
    market.bid("x", hours=5)
    market.run()
    market.reclaim("x")
    market.run()
    market.wait(minutes=6)
    market.close("x")
    market.change_terms("a", **BETTER)
    market.bid("y", hours=1, deadline=market.now + timedelta(hours=2))
    market.run()

    assert market.grant("y") is None


def test_an_explanation_and_a_preview_know_the_new_terms() -> None:
    market = Market()
    market.offer("a")
    market.bid("x", at=5, request=read_query("notice>=30m"))
    market.run()
    asked: dict[str, Any] = {"market": MARKET, "bid_id": named("bid x"), "now": market.now}
    before = explain_bid(market.store, **asked)

    market.change_terms("a", notice_seconds=1_800)
    after = explain_bid(market.store, **asked)

    assert before is not None and after is not None
    assert (before.placement, after.reason) == (None, None)
    assert after.placement is not None


def test_a_replay_decides_on_the_terms_as_they_stood() -> None:
    market = Market()
    market.offer("a", gpus=2)
    market.bid("x", at=5, request=read_query("notice>=5m"))
    market.run()
    market.bid("y", at=5, request=read_query("notice>=5m"), patience="patient")
    market.wait(minutes=2)
    market.run()
    market.change_terms("a", notice_seconds=0)
    market.run()

    rounds = {granted(market, word).round_id for word in "xy"}

    again = [replay_round(market.store, market=MARKET, round_id=each) for each in rounds]
    assert [each.outcome for each in again] == ["identical"] * 2


@given(st.randoms(use_true_random=True))
@settings(max_examples=40, deadline=None)
def test_a_book_with_a_change_decides_as_one_that_only_ever_knew_the_new_terms(
    random: Random,
) -> None:
    """What it had worked out of the old terms, because it was asked, is not kept."""
    crowd, changed, plain = Crowd(random), Lane(Book(MARKET)), Lane(Book(MARKET))

    for _ in range(60):
        for event, position in crowd.acts(changed.book):
            first = second = event
            if isinstance(event, OfferPublished):
                first = _other_terms(random, event)
                second = on_terms(event, first)
                trigger = changed.book.apply(event, position)
                _look(changed.book, crowd.now)
                changed.book.apply(first, position)
            else:
                trigger = changed.book.apply(first, position)
            expected = plain.take_in(second, position, now=crowd.now)
            assert changed.answer(trigger, position, now=crowd.now) == expected
            _look(changed.book, crowd.now)

    assert state_of(plain.book) == state_of(changed.book)
    assert state_of(restored(state_of(changed.book))) == state_of(changed.book)


def _look(book: Book, now: int) -> None:
    """Ask what is worked out once and kept."""
    for bid in list(book.bids.values())[:5]:
        book.explain(bid, now=now)
        book.reason(bid, now=now, calendar=book.calendar)
        list(book.within_reach(bid, now=now))


def _other_terms(random: Random, event: OfferPublished) -> OfferTermsChanged:
    return OfferTermsChanged(
        offer_id=event.offer_id,
        lease_min_seconds=random.choice((60, 5_400)),
        notice_seconds=random.choice((60, 1_800)),
        grace_seconds=random.choice((15, 60)),
        reclaim_fee_ppm=random.choice((0, 200_000)),
        reclaim_steps=(),
        workload_kinds=random.choice(((), ("rendering",))),
        at=event.at,
    )
