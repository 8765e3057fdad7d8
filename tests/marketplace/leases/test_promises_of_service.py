"""What owners promise of their service: agreed at the grant, measured when paid, credited."""

from __future__ import annotations

from dataclasses import replace

import pytest

from config.demo.pump import Pump
from ledger.commands.money import capture_usage, release_hold
from ledger.domain.events import SlaCredited
from ledger.domain.ids import BidId, HostId, OfferId
from ledger.domain.money import NANOS_PER_UNIT, Money
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.span import Window
from ledger.eventstore.port import load
from listings.commands.promising import set_offer_sla
from listings.domain.sla import OfferSla, ServiceLevel, SlaUnreadable, misses, sentences
from listings.domain.sla_events import OfferSlaSet, SlaStep, SlaTerms
from marketplace.commands import bids, leases
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.facts.close_reasons import GPU_LOST
from marketplace.domain.facts.sla_events import SlaResult
from marketplace.domain.leases.losses import lose_hardware
from marketplace.domain.leases.sla import LeaseSla, reason_of
from marketplace.policies import policies
from marketplace.promises_kept import POLICIES
from marketplace.queries.books import preview
from tests.conftest import NOON
from tests.marketplace.support.market import OWNER, named, somebody
from tests.marketplace.support.site import ACCOUNT, HOUR, TERMS, Site

PROMISE = SlaTerms(
    start_by_seconds=120,
    late_credit_ppm=50_000,
    steps=(SlaStep(999_000, 100_000), SlaStep(600_000, 500_000)),
)


class Promised(Site):
    """A lease of two GPUs for four hours at 1 an hour, whose owner promises something."""

    def __init__(self, promise: SlaTerms | None = PROMISE) -> None:
        super().__init__()
        self.pump = Pump(self.store, (*policies(fee_ppm=50_000), *POLICIES))
        self.offer("a", gpus=2, at=1)
        if promise is not None:
            self.promise(promise)
        self.quote = preview(self.store, terms=TERMS, now=self.now)
        self.ask()
        self.go()

    def promise(self, terms: SlaTerms | None) -> None:
        set_offer_sla(
            self.store, offer_id=OfferId(named("offer a")), terms=terms, by=somebody(), now=self.now
        )

    def fail(self) -> None:
        """Let a GPU under the work be lost now."""
        lease = self.lease
        [host_id] = lease.hosts
        leases.decide_on(
            self.store,
            self.lease_of_bid(),
            lambda lease: lose_hardware(
                lease,
                host_id=host_id,
                reason=GPU_LOST,
                detail="Xid 79",
                failed_at=self.now,
                now=self.now,
            ),
            somebody(),
        )
        self.over()

    def over(self) -> None:
        """Let the work be gone and all its time be charged."""
        for host_id in self.lease.hosts:
            leases.lease_stopped(
                self.store,
                lease_id=self.lease_of_bid(),
                host_id=host_id,
                exit_code=None,
                by=somebody(),
                now=self.now,
            )
        self.tick()
        lease = self.lease
        span = Window(lease.starts_at, lease.right_ends_at)
        millis = span.millis * lease.gpus
        capture_usage(
            self.store,
            account_id=ACCOUNT,
            hold_id=lease.terms.hold_id,
            lease_id=lease.terms.lease_id,
            window=span,
            gpu_millis=millis,
            price=lease.terms.price,
            fee_ppm=lease.terms.fee_ppm,
            owner_millis=[(OWNER, millis)],
            platform_id=PLATFORM_ID,
            cost_centre="",
            by=somebody(),
            now=self.now,
        )
        release_hold(
            self.store,
            account_id=ACCOUNT,
            hold_id=lease.terms.hold_id,
            by=somebody(),
            now=self.now,
        )
        self.go()

    @property
    def result(self) -> SlaResult:
        sla = load(self.store, LeaseSla, self.lease_of_bid())
        assert sla is not None
        assert sla.measured is not None
        [result] = sla.measured.results
        return result

    @property
    def credits(self) -> list[SlaCredited]:
        return [e for e in self.account.entries.values() if isinstance(e, SlaCredited)]


def test_a_promise_that_is_kept_credits_nothing() -> None:
    site = Promised()
    site.tick()
    site.wait(minutes=1)
    site.start()
    site.now = site.lease.ends_at
    site.tick()

    site.over()

    assert (site.result.late_seconds, site.result.credit_ppm) == (60, 0)
    assert site.result.available_seconds == site.result.agreed_seconds == 4 * 3_600 - 60
    assert site.credits == []


def test_a_late_start_credits_its_share_of_the_charge() -> None:
    site = Promised()
    site.tick()
    site.wait(minutes=5)
    site.start()
    site.now = site.lease.ends_at
    site.tick()

    site.over()

    assert (site.result.late_seconds, site.result.credit_ppm) == (300, 50_000)
    [entry] = site.credits
    assert entry.charged == Money(8 * NANOS_PER_UNIT)
    assert entry.money == Money(4 * NANOS_PER_UNIT // 10)
    assert entry.reason == "started 300 s after it was due, available 14100 of 14100 s"


@pytest.mark.parametrize(
    ("minutes", "late_seconds", "credit_ppm"),
    [pytest.param(1, 60, 0, id="soon after"), pytest.param(3, 180, 50_000, id="late all the same")],
)
def test_an_owner_whom_the_market_asked_late_is_late_from_then_on(
    minutes: int, late_seconds: int, credit_ppm: int
) -> None:
    site = Promised()
    site.wait(minutes=30)  # the market was down, and asks the host only now
    site.tick()
    site.wait(minutes=minutes)
    site.start()
    site.now = site.lease.ends_at
    site.tick()

    site.over()

    assert (site.result.late_seconds, site.result.credit_ppm) == (late_seconds, credit_ppm)


@pytest.mark.parametrize(
    ("hours", "credit_ppm"),
    [pytest.param(3, 100_000, id="75 %"), pytest.param(1, 500_000, id="25 %")],
)
def test_a_host_that_fails_credits_by_how_much_was_missed(hours: int, credit_ppm: int) -> None:
    site = Promised()
    site.start()
    site.now += hours * HOUR

    site.fail()

    assert site.result.credit_ppm == credit_ppm
    assert site.result.agreed_seconds == 4 * 3_600
    [entry] = site.credits
    assert entry.money == Money(2 * hours * NANOS_PER_UNIT * credit_ppm // 10**6)


def test_both_together_are_never_more_than_the_charge() -> None:
    site = Promised(SlaTerms(60, 800_000, (SlaStep(999_000, 700_000),)))
    site.tick()
    site.wait(minutes=5)
    site.start()
    site.wait(minutes=55)

    site.fail()

    assert site.result.credit_ppm == 1_000_000
    assert site.credits[0].money == site.credits[0].charged


def test_a_consumer_who_leaves_was_served_to_the_end() -> None:
    site = Promised()
    site.start()
    site.wait(hours=1)
    leases.close_lease(site.store, lease_id=site.lease_of_bid(), by=somebody(), now=site.now)

    site.over()

    assert site.result.credit_ppm == 0


def test_a_reclaim_with_its_notice_is_the_owners_right() -> None:
    site = Promised()
    site.start()
    site.wait(hours=1)
    leases.reclaim_lease(
        site.store, lease_id=site.lease_of_bid(), owner_id=OWNER, by=somebody(), now=site.now
    )
    site.now = site.lease.due_at
    site.tick()

    site.over()

    assert site.result.credit_ppm == 0


def test_a_reclaim_without_notice_is_a_miss() -> None:
    site = Promised()
    site.start()
    site.wait(hours=1)
    [host_id] = site.lease.hosts
    leases.take_lease_at_once(
        site.store, lease_id=site.lease_of_bid(), host_id=host_id, by=somebody(), now=site.now
    )
    site.tick()

    site.over()

    assert site.result.credit_ppm == 500_000


def test_a_start_that_waits_for_the_consumers_files_is_not_late() -> None:
    site = Promised()
    site.tick()
    [host_id] = site.lease.hosts
    leases.files_awaited(
        site.store, lease_id=site.lease_of_bid(), host_id=host_id, by=somebody(), now=site.now
    )
    site.wait(minutes=30)
    site.start()
    site.now = site.lease.ends_at
    site.tick()

    site.over()

    assert (site.result.late_seconds, site.result.credit_ppm) == (None, 0)


@pytest.mark.parametrize(
    ("late", "available", "said"),
    [
        (None, 0, "never started, available 0 of 3600 s"),
        (None, 900, "start not counted, available 900 of 3600 s"),
        (0, 900, "started 0 s after it was due, available 900 of 3600 s"),
    ],
)
def test_a_credit_says_in_words_what_was_missed(
    late: int | None, available: int, said: str
) -> None:
    host_id = HostId(named("host"))

    assert reason_of(SlaResult(OWNER, host_id, 1, late, available, 3_600, 100_000)) == said


def test_a_lease_keeps_what_it_was_granted_on() -> None:
    site = Promised()
    site.tick()
    site.wait(minutes=5)
    site.promise(None)
    site.start()
    site.now = site.lease.ends_at
    site.tick()

    site.over()

    assert site.result.credit_ppm == 50_000


def test_a_bid_that_asked_for_a_promise_keeps_it_though_it_is_lowered_before_the_grant() -> None:
    said = (
        SlaTerms(60, 50_000, (SlaStep(990_000, 100_000),)),
        SlaTerms(60, 40_000),
        SlaTerms(600, 50_000),
    )
    sla = OfferSla(
        tuple(
            OfferSlaSet(offer_id=OfferId(named("o")), owner_id=OWNER, terms=terms, at=NOON + at)
            for terms, at in zip(said, (HOUR, 2 * HOUR, 3 * HOUR), strict=True)
        )
    )

    assert sla.at(NOON + 3 * HOUR) == said[2]
    assert sla.at(NOON + 3 * HOUR, ServiceLevel(start_seconds=60)) == said[1]
    assert sla.at(NOON + 3 * HOUR, ServiceLevel(availability_ppm=990_000)) == said[0]
    assert sla.at(NOON, ServiceLevel(start_seconds=60)) is None


def test_a_lease_is_granted_on_what_its_bid_asked_for() -> None:
    site = Promised()
    site.promise(None)
    with_query = replace(TERMS, bid_id=BidId(named("bid y")), request=read_query("starts<=2m"))
    site.offer("b", gpus=2, at=1)
    set_offer_sla(
        site.store, offer_id=OfferId(named("offer b")), terms=PROMISE, by=somebody(), now=site.now
    )
    bids.place_bid(site.store, terms=with_query, by=somebody(), now=site.now)
    site.run()
    set_offer_sla(
        site.store, offer_id=OfferId(named("offer b")), terms=None, by=somebody(), now=site.now
    )
    site.pump.run()

    sla = load(site.store, LeaseSla, site.lease_id("y"))

    assert sla is not None and [part.terms for part in sla.agreed.parts] == [PROMISE]


def test_without_a_promise_nothing_is_measured() -> None:
    site = Promised(None)
    site.start()
    site.wait(hours=1)
    site.promise(PROMISE)

    site.fail()

    assert load(site.store, LeaseSla, site.lease_of_bid()) is None
    assert site.credits == []


def test_what_is_asked_again_measures_and_credits_once() -> None:
    site = Promised()
    site.start()
    site.now += HOUR
    site.fail()

    Pump(site.store, POLICIES).run()  # as after a crash: every event once more

    assert len(site.credits) == 1
    assert site.result.credit_ppm == 500_000


@pytest.mark.parametrize(
    "terms",
    [
        pytest.param(SlaTerms(), id="nothing"),
        pytest.param(SlaTerms(start_by_seconds=60), id="a start that credits nothing"),
        pytest.param(SlaTerms(late_credit_ppm=1), id="a credit without a start"),
        pytest.param(SlaTerms(0, 1), id="a start at once"),
        pytest.param(SlaTerms(steps=(SlaStep(1_000_001, 1),)), id="above 100 %"),
        pytest.param(SlaTerms(steps=(SlaStep(900_000, 0),)), id="a step that credits nothing"),
        pytest.param(SlaTerms(steps=(SlaStep(9, 1), SlaStep(10, 2))), id="rising availability"),
        pytest.param(SlaTerms(steps=(SlaStep(10, 2), SlaStep(9, 1))), id="falling credit"),
    ],
)
def test_a_promise_that_cannot_be_is_refused(terms: SlaTerms) -> None:
    site = Promised(None)

    with pytest.raises(SlaUnreadable):
        site.promise(terms)


def test_what_is_promised_is_said_in_sentences() -> None:
    assert sentences(PROMISE) == [
        "The work starts within 120 seconds of the lease's begin, or 5 % of its charge are"
        " credited.",
        "Available for less than 99.9 % of its granted time, by the owner's fault: 10 % of its"
        " charge are credited.",
        "Available for less than 60 % of its granted time, by the owner's fault: 50 % of its"
        " charge are credited.",
        "Late, and available for less than 60 %: 55 % of its charge are credited.",
    ]


@pytest.mark.parametrize(
    ("promise", "credits_"),
    [
        (PROMISE, [(120, None, 50_000), (None, 999_000, 100_000), (None, 600_000, 500_000),
                   (120, 600_000, 550_000)]),
        (SlaTerms(60, 800_000, (SlaStep(999_000, 700_000),)),
         [(60, None, 800_000), (None, 999_000, 700_000), (60, 999_000, 1_000_000)]),
        (SlaTerms(60, 1), [(60, None, 1)]),
        (SlaTerms(steps=(SlaStep(1, 9),)), [(None, 1, 9)]),
    ],
)  # fmt: skip
def test_each_way_to_miss_a_promise_is_told_with_what_it_credits(
    promise: SlaTerms, credits_: list[tuple[int | None, int | None, int]]
) -> None:
    assert list(misses(promise)) == credits_


def quoted(site: Promised, index: int) -> Money:
    """Return what the preview of the very bid said that one way to miss the promise credits."""
    [service] = site.quote.service
    assert (service.gpus, service.terms) == (2, PROMISE)
    return service.short[index].credit


def test_a_late_start_credits_what_the_preview_said() -> None:
    site = Promised()
    site.tick()
    site.wait(minutes=5)
    site.start()
    site.now = site.lease.ends_at
    site.tick()

    site.over()

    assert [entry.money for entry in site.credits] == [quoted(site, 0)]
    assert quoted(site, 0) == Money(4 * NANOS_PER_UNIT // 10)
    assert site.quote.service[0].short[0].text == "starts more than 120 s late"


def test_without_a_promise_a_preview_tells_of_none() -> None:
    assert Promised(None).quote.service == ()
