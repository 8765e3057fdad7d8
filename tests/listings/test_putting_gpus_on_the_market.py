from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, time, timedelta
from typing import Any
from uuid import UUID

import pytest

from ledger.domain.ids import OfferId
from ledger.domain.money import Rate
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import load
from listings import commands
from listings.domain.events import GpusListed, OfferPublished, ReclaimStep, WeeklyRule
from listings.domain.gpus import GpuNamedTwice, IsolationUnfit
from listings.domain.hosts import (
    GpuListedAlready,
    GpuNotOnHost,
    Host,
    HostIsRetired,
    HostUnknown,
)
from listings.domain.offers import Offer, OfferIsWithdrawn, OfferUnknown
from listings.domain.recurrence import WindowTooShort
from listings.domain.terms import (
    FloorOutOfBounds,
    GpusMissing,
    GraceOutOfBounds,
    LabelsUnreadable,
    LeaseMinOutOfBounds,
    NoticeOutOfBounds,
    OfferTermsDiffer,
    ReclaimFeeOutOfBounds,
    ReclaimStepsUnordered,
    WorkloadKindsUnreadable,
)
from listings.domain.windows import (
    TooManyWindows,
    WindowOver,
    WindowsMissing,
    WindowsOverlap,
    WindowTooFarAhead,
)
from tests.conftest import NOON
from tests.listings.conftest import (
    ADA,
    EVE,
    HOST,
    OFFER,
    OTHER_HOST,
    OTHER_OFFER,
    OWNER,
    gpu,
    publish,
    span,
    terms,
)
from tests.listings.crashing import Crashed, CrashingStore

NIGHTS = WeeklyRule(
    zone="Europe/London",
    days=(0, 1, 2, 3, 4),
    since=time(22),
    until=time(6),
    first=date(2026, 1, 5),
)


def test_a_published_offer_carries_what_the_host_and_its_gpus_are(market: MemoryStore) -> None:
    publish(market, wanted=terms("GPU-b", "GPU-a", labels=(("nvme", "yes"),)))

    offer = load(market, Offer, OFFER)
    assert offer is not None
    assert offer.published.tenant_id == OWNER
    assert [each.uuid for each in offer.published.gpus] == ["GPU-a", "GPU-b"]
    assert offer.published.gpus[0].model == "H100-80GB"
    assert offer.published.labels == (("nvme", "yes"), ("rack", "2"))
    assert (offer.published.market, offer.published.region) == ("eu", "eu-west")


def test_publishing_again_with_the_same_terms_changes_nothing(market: MemoryStore) -> None:
    first = publish(market)
    head = market.head()

    again = publish(market, now=NOON + timedelta(days=30))

    assert again == first
    assert market.head() == head


def test_publishing_again_with_other_terms_is_refused(market: MemoryStore) -> None:
    publish(market)

    with pytest.raises(OfferTermsDiffer):
        publish(market, wanted=terms(floor=Rate(1)))


def test_an_id_of_another_hosts_offer_is_refused_and_lists_nothing(market: MemoryStore) -> None:
    commands.report_inventory(market, host_id=OTHER_HOST, gpus=[gpu("GPU-z")], by=EVE, now=NOON)
    publish(market)

    with pytest.raises(OfferTermsDiffer):
        publish(market, wanted=terms("GPU-z"), host_id=OTHER_HOST, by=EVE)

    other = load(market, Host, OTHER_HOST)
    assert other is not None
    assert not other.listed


@pytest.mark.parametrize(
    ("notice_seconds", "said", "grace_seconds"),
    [
        (300, None, 15),
        (14, None, 14),
        (0, None, 0),
        (300, 0, 0),
        (300, 300, 300),
        (3_600, 900, 900),
    ],
)
def test_the_grace_is_what_the_owner_says_within_the_notice(
    market: MemoryStore, notice_seconds: int, said: int | None, grace_seconds: int
) -> None:
    wanted = replace(terms(), notice_seconds=notice_seconds, grace_seconds=said)
    publish(market, wanted=wanted)

    offer = load(market, Offer, OFFER)

    assert offer is not None and offer.published.grace_seconds == grace_seconds
    head = market.head()
    publish(market, wanted=wanted)
    assert market.head() == head, "said once more, it is the same"
    with pytest.raises(OfferTermsDiffer):
        publish(market, wanted=replace(wanted, notice_seconds=901, grace_seconds=899))


def test_an_offer_from_before_the_grace_was_a_term_is_said_once_more(market: MemoryStore) -> None:
    """It has fifteen seconds at any notice, and its owner, who does not know, says nothing."""
    wanted = replace(terms(), notice_seconds=0)
    publish(market, wanted=wanted)
    host, offer = load(market, Host, HOST), load(market, Offer, OFFER)
    assert host is not None and offer is not None
    before = replace(offer.published, grace_seconds=15)
    listed = replace(host, listed={OFFER: before})

    assert listed.list_gpus(OFFER, wanted, now=NOON) == []
    assert replace(offer, published=before).repeat(wanted, host=host.registered) == []
    with pytest.raises(OfferTermsDiffer):
        listed.list_gpus(OFFER, replace(wanted, grace_seconds=0), now=NOON)


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"windows": ()}, WindowsMissing),
        ({"windows": (span(1, 0.2),)}, WindowTooShort),
        ({"windows": (span(-9, 8),)}, WindowOver),
        ({"windows": (span(1, 4), span(3, 4))}, WindowsOverlap),
        ({"windows": (span(9, 4),), "weekly": NIGHTS}, WindowsOverlap),
        ({"windows": tuple(span(n, 0.5) for n in range(1, 202))}, TooManyWindows),
        ({"windows": (span(24 * 731, 4),)}, WindowTooFarAhead),
        ({"floor": Rate(-1)}, FloorOutOfBounds),
        ({"floor": Rate(10_001 * 10**9)}, FloorOutOfBounds),
        ({"lease_min_seconds": 0}, LeaseMinOutOfBounds),
        ({"lease_min_seconds": 9 * 3600}, LeaseMinOutOfBounds),
        ({"notice_seconds": -1}, NoticeOutOfBounds),
        ({"notice_seconds": 8 * 86_400}, NoticeOutOfBounds),
        ({"grace_seconds": -1}, GraceOutOfBounds),
        ({"notice_seconds": 59, "grace_seconds": 60}, GraceOutOfBounds),
        ({"notice_seconds": 3_600, "grace_seconds": 901}, GraceOutOfBounds),
        ({"reclaim_fee_ppm": 1_000_001}, ReclaimFeeOutOfBounds),
        ({"reclaim_fee_ppm": 9, "reclaim_steps": (ReclaimStep(300, 5),)}, ReclaimStepsUnordered),
        ({"reclaim_fee_ppm": 9, "reclaim_steps": (ReclaimStep(301, 9),)}, ReclaimStepsUnordered),
        ({"reclaim_fee_ppm": 9, "reclaim_steps": (ReclaimStep(301, -1),)}, ReclaimStepsUnordered),
        (
            {"reclaim_fee_ppm": 9, "reclaim_steps": (ReclaimStep(31 * 86_400, 0),)},
            ReclaimStepsUnordered,
        ),
        (
            {
                "reclaim_fee_ppm": 99,
                "reclaim_steps": tuple(ReclaimStep(400 + n, 50 - n) for n in range(9)),
            },
            ReclaimStepsUnordered,
        ),
        ({"workload_kinds": ("Fine Tune",)}, WorkloadKindsUnreadable),
        ({"labels": (("Rack", "1"),)}, LabelsUnreadable),
        ({"labels": (("rack", "1"), ("rack", "2"))}, LabelsUnreadable),
        ({"labels": (("rack", "1\n"),)}, LabelsUnreadable),
        ({"labels": tuple((f"l{n}", "x") for n in range(33))}, LabelsUnreadable),
        ({"isolation": "mig"}, IsolationUnfit),
        ({"gpu_uuids": ()}, GpusMissing),
        ({"gpu_uuids": ("GPU-a", "GPU-a")}, GpuNamedTwice),
        ({"gpu_uuids": ("GPU-a", "GPU-nowhere")}, GpuNotOnHost),
    ],
)
def test_terms_out_of_bounds_are_refused_and_change_nothing(
    market: MemoryStore, fields: dict[str, Any], refusal: type[Exception]
) -> None:
    head = market.head()

    with pytest.raises(refusal):
        publish(market, wanted=replace(terms(), **fields))

    assert market.head() == head


@pytest.mark.parametrize(
    "second",
    [
        terms(windows=(span(13, 4),)),
        terms("GPU-b", "GPU-a", windows=(span(1, 30),)),
        terms(windows=(), weekly=replace(NIGHTS, days=(0,), since=time(19), until=time(20))),
        terms(windows=(), weekly=replace(NIGHTS, zone="Asia/Tokyo", days=(3,), since=time(9))),
    ],
)
def test_two_offers_of_one_gpu_at_one_time_are_refused(market: MemoryStore, second: Any) -> None:
    publish(market, wanted=terms(windows=(span(6, 8),), weekly=replace(NIGHTS, days=(2,))))
    head = market.head()

    with pytest.raises(GpuListedAlready):
        publish(market, OTHER_OFFER, second)

    assert market.head() == head


def test_two_offers_of_one_gpu_may_follow_each_other(market: MemoryStore) -> None:
    publish(market, wanted=terms(windows=(span(6, 8),)))

    publish(market, OTHER_OFFER, terms(windows=(span(14, 8),)))

    host = load(market, Host, HOST)
    assert host is not None
    assert set(host.listed) == {OFFER, OTHER_OFFER}


def test_two_weekly_rules_that_meet_only_after_a_clock_change_are_refused(
    market: MemoryStore,
) -> None:
    """23:00 in London is 18:00 in New York, but not for three weeks of March."""
    london = replace(NIGHTS, since=time(22), until=time(23))
    publish(market, wanted=terms(windows=(), weekly=london))
    new_york = replace(NIGHTS, zone="America/New_York", since=time(18), until=time(19))

    with pytest.raises(GpuListedAlready):
        publish(market, OTHER_OFFER, terms(windows=(), weekly=new_york))


def test_a_withdrawn_offer_frees_its_gpus(market: MemoryStore) -> None:
    publish(market)

    commands.withdraw_offer(market, offer_id=OFFER, by=ADA, now=NOON)

    publish(market, OTHER_OFFER)
    with pytest.raises(OfferIsWithdrawn):
        commands.pause_offer(market, offer_id=OFFER, by=ADA, now=NOON)


def test_publishing_a_withdrawn_offer_again_lists_nothing(market: MemoryStore) -> None:
    publish(market)
    commands.withdraw_offer(market, offer_id=OFFER, by=ADA, now=NOON)

    publish(market)

    host = load(market, Host, HOST)
    assert host is not None
    assert not host.listed


def test_another_tenants_host_and_offer_are_unknown(market: MemoryStore) -> None:
    publish(market)
    asked: list[Callable[[], object]] = [
        lambda: publish(market, OTHER_OFFER, by=EVE),
        lambda: commands.retire_host(market, host_id=HOST, by=EVE, now=NOON),
        lambda: commands.report_inventory(market, host_id=HOST, gpus=[], by=EVE, now=NOON),
    ]
    for ask in asked:
        with pytest.raises(HostUnknown):
            ask()
    with pytest.raises(OfferUnknown):
        commands.withdraw_offer(market, offer_id=OFFER, by=EVE, now=NOON)
    with pytest.raises(OfferUnknown):
        commands.reprice_offer(market, offer_id=OFFER, floor=Rate(1), by=EVE, now=NOON)


def test_a_retired_host_has_no_offers_and_takes_none(market: MemoryStore) -> None:
    publish(market)
    publish(market, OTHER_OFFER, terms("GPU-b"))

    commands.retire_host(market, host_id=HOST, by=ADA, now=NOON)

    for offer_id in (OFFER, OTHER_OFFER):
        offer = load(market, Offer, offer_id)
        assert offer is not None
        assert offer.state == "withdrawn"
    with pytest.raises(HostIsRetired):
        publish(market, OfferId(UUID(int=102)))


@pytest.mark.parametrize("crash_after", range(5))
def test_a_crash_between_the_streams_is_made_good_by_asking_again(
    market: MemoryStore, crash_after: int
) -> None:
    """Publish, and retire with its withdrawals, stop dead after each append in turn."""
    crashing = CrashingStore(market, appends=crash_after)
    steps: list[Callable[[MemoryStore], object]] = [
        publish,
        lambda store: commands.retire_host(store, host_id=HOST, by=ADA, now=NOON),
    ]
    for ask in steps:
        try:
            ask(crashing)
        except Crashed:
            ask(market)

    host, offer = load(market, Host, HOST), load(market, Offer, OFFER)
    assert host is not None
    assert offer is not None
    assert (host.is_retired, dict(host.listed), offer.state) == (True, {}, "withdrawn")


def test_what_a_dead_process_left_half_published_is_finished(market: MemoryStore) -> None:
    crashing = CrashingStore(market, appends=1)
    with pytest.raises(Crashed):
        publish(crashing)
    *_, listed = market.read_stream(f"host-{HOST}")
    assert isinstance(listed.event, GpusListed)

    commands.finish_listing(market, host_id=HOST, offer_id=OFFER, by=ADA, now=NOON)

    (published,) = market.read_stream(f"offer-{OFFER}")
    assert isinstance(published.event, OfferPublished)
