"""An owner says other terms for leases to come while an offer stands."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ledger.domain.money import Rate
from ledger.domain.refusal import Invalid
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import load
from listings import commands
from listings.domain.changes import CHANGING, TermsChange
from listings.domain.events import OfferRepriced, OfferTermsChanged, ReclaimStep
from listings.domain.offers import Offer, OfferIsExpired, OfferIsWithdrawn, OfferUnknown
from listings.domain.terms import (
    FloorOutOfBounds,
    GraceOutOfBounds,
    LeaseMinOutOfBounds,
    NoticeOutOfBounds,
    ReclaimFeeOutOfBounds,
    ReclaimStepsUnordered,
    WorkloadKindsUnreadable,
)
from tests.conftest import NOON
from tests.listings.conftest import ADA, EVE, OFFER, publish, terms

STEPS = (ReclaimStep(3_600, 50_000), ReclaimStep(86_400, 0))


def change(store: MemoryStore, floor: Rate | None = None, **said: Any) -> int:
    return commands.change_offer(
        store, offer_id=OFFER, floor=floor, terms=TermsChange(**said), by=ADA, now=NOON
    )


def standing(store: MemoryStore) -> Offer:
    offer = load(store, Offer, OFFER)
    assert offer is not None
    return offer


def test_what_is_said_anew_holds_and_the_rest_stays(market: MemoryStore) -> None:
    publish(market, wanted=terms(reclaim_fee_ppm=100_000, reclaim_steps=STEPS))

    change(market, notice_seconds=1_800, grace_seconds=60)

    recorded = list(market.read_stream(f"offer-{OFFER}"))[-1]
    assert recorded.event == OfferTermsChanged(
        offer_id=OFFER,
        lease_min_seconds=900,
        notice_seconds=1_800,
        grace_seconds=60,
        reclaim_fee_ppm=100_000,
        reclaim_steps=STEPS,
        workload_kinds=(),
        at=NOON,
    )
    offer = standing(market)
    assert (offer.terms.notice_seconds, offer.published.notice_seconds) == (1_800, 300)


def test_floor_and_terms_change_in_one_append(market: MemoryStore) -> None:
    publish(market)

    change(market, floor=Rate(2_000_000_000), notice_seconds=600)

    told = [type(each.event) for each in market.read_stream(f"offer-{OFFER}")][1:]
    assert told == [OfferRepriced, OfferTermsChanged]
    with pytest.raises(FloorOutOfBounds):
        change(market, floor=Rate(-1), notice_seconds=1_200)
    assert standing(market).terms.notice_seconds == 600


def test_what_changes_nothing_is_no_fact(market: MemoryStore) -> None:
    publish(market, wanted=terms(workload_kinds=("render", "inference")))
    head = market.head()

    change(market, notice_seconds=300, workload_kinds=("inference", "render", "render"))

    assert market.head() == head


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        ({"lease_min_seconds": 0}, LeaseMinOutOfBounds),
        ({"lease_min_seconds": 9 * 3_600}, LeaseMinOutOfBounds),
        ({"notice_seconds": 8 * 86_400}, NoticeOutOfBounds),
        ({"notice_seconds": 59, "grace_seconds": 60}, GraceOutOfBounds),
        ({"grace_seconds": 301}, GraceOutOfBounds),
        ({"reclaim_fee_ppm": 1_000_001}, ReclaimFeeOutOfBounds),
        ({"reclaim_fee_ppm": 50_000}, ReclaimStepsUnordered),
        ({"notice_seconds": 3_600}, ReclaimStepsUnordered),
        ({"reclaim_steps": (ReclaimStep(300, 5),)}, ReclaimStepsUnordered),
        ({"workload_kinds": ("Fine Tune",)}, WorkloadKindsUnreadable),
    ],
)
def test_terms_are_bounded_as_when_they_were_published(
    market: MemoryStore, said: dict[str, Any], refusal: type[Invalid]
) -> None:
    publish(market, wanted=terms(reclaim_fee_ppm=100_000, reclaim_steps=STEPS))
    head = market.head()

    with pytest.raises(refusal):
        change(market, **said)

    assert market.head() == head


def test_grace_that_is_not_said_follows_a_shorter_notice(market: MemoryStore) -> None:
    publish(market, wanted=terms(grace_seconds=120))

    change(market, notice_seconds=60)
    assert standing(market).terms.grace_seconds == 60
    change(market, notice_seconds=3_600)
    assert standing(market).terms.grace_seconds == 60


def test_steps_and_kinds_can_be_taken_away(market: MemoryStore) -> None:
    wanted = terms(reclaim_fee_ppm=100_000, reclaim_steps=STEPS, workload_kinds=("render",))
    publish(market, wanted=wanted)

    change(market, reclaim_steps=(), workload_kinds=())

    offer = standing(market).terms
    assert (offer.reclaim_steps, offer.workload_kinds) == ((), ())


def test_what_is_over_does_not_change(market: MemoryStore) -> None:
    publish(market)
    later = NOON + timedelta(hours=14)
    asked = TermsChange(notice_seconds=600)

    with pytest.raises(OfferIsExpired):
        commands.change_offer(market, offer_id=OFFER, terms=asked, by=ADA, now=later)
    commands.withdraw_offer(market, offer_id=OFFER, by=ADA, now=NOON)
    with pytest.raises(OfferIsWithdrawn):
        change(market, notice_seconds=600)


def test_a_paused_offer_changes_and_stays_paused(market: MemoryStore) -> None:
    publish(market)
    commands.pause_offer(market, offer_id=OFFER, by=ADA, now=NOON)

    change(market, notice_seconds=600)

    offer = standing(market)
    assert (offer.state, offer.terms.notice_seconds) == ("paused", 600)


def test_nobody_changes_the_terms_of_others(market: MemoryStore) -> None:
    publish(market)

    with pytest.raises(OfferUnknown):
        commands.change_offer(
            market, offer_id=OFFER, terms=TermsChange(notice_seconds=0), by=EVE, now=NOON
        )


def test_publishing_once_more_is_judged_by_what_was_published(market: MemoryStore) -> None:
    publish(market)
    position = change(market, notice_seconds=600)

    publish(market)

    assert market.head() == position
    assert standing(market).terms.notice_seconds == 600


def test_each_term_that_may_change_is_in_the_event_and_in_the_offer() -> None:
    said = set(OfferTermsChanged.__dataclass_fields__)

    assert said == {"offer_id", "at", *CHANGING}
