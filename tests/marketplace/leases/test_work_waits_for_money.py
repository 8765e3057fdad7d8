"""A lease whose next step is not covered: warned, paused, topped up, and going on; or over."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from ledger.commands.money import add_funds, capture_usage, set_budget
from ledger.domain.accounts import FundsInsufficient
from ledger.domain.ids import EntryId
from ledger.domain.money import NANOS_PER_UNIT, Money
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.span import Window
from marketplace.commands import chains
from marketplace.commands.extending import extend_when_due
from marketplace.domain.bids.bid import BidTerms
from marketplace.domain.bids.money_waits import WAIT_MAX
from marketplace.domain.facts.close_reasons import AWAITS_MONEY, MONEY_SPENT
from marketplace.domain.facts.events import ExtensionRefused, Workload
from tests.conftest import NOON
from tests.marketplace.support.going import Going as Chain
from tests.marketplace.support.market import OWNER, named, somebody
from tests.marketplace.support.site import ACCOUNT, BID, HOUR, TERMS

SAVES = Workload(kind="training", checkpoint_seconds=60)
UNTIL = NOON + 12 * HOUR
GOING_ON: BidTerms = replace(
    TERMS, duration_seconds=2 * 3_600, auto_extend_until=UNTIL, resume=True, workload=SAVES
)


class Going(Chain):
    """A chain that is extended step by step, with its account."""

    def add_money(self, reference: str, units: int) -> None:
        add_funds(
            self.store,
            account_id=ACCOUNT,
            entry_id=EntryId(named(reference)),
            money=Money(units * NANOS_PER_UNIT),
            reference=reference,
            platform_id=PLATFORM_ID,
            by=somebody(),
            now=self.now,
        )

    def pass_time(self, hours: float, number: int = 1) -> None:
        """Let the loops look every five minutes; the work saves itself whenever they do."""
        until = self.now + timedelta(hours=hours)
        while self.now < until:
            self.wait(minutes=5)
            lease = self.lease_at(number)
            with suppress(FundsInsufficient):
                lease_id = lease.terms.lease_id
                extend_when_due(self.store, lease_id=lease_id, by=somebody(), now=self.now)
            self.go()
            self.clock(self.lease_at(number))

    def settle(self, number: int = 1) -> None:
        """Charge all the granted time of a lease, then give back what is left of its hold."""
        lease = self.lease_at(number)
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
        super().settle(number)

    def look(self, number: int = 1) -> bool:
        """Look whether what waits behind a bid may go on."""
        done = chains.go_on_with_money(
            self.store, bid_id=self.bid_at(number).terms.bid_id, by=somebody(), now=self.now
        )
        self.go()
        return done


def running_dry(*, resume: bool = True, workload: Workload = SAVES) -> Going:
    """Return work at 6 an hour whose account has 13: two hours of it, and not a third."""
    site = Going(funds=13)
    site.offer("a", gpus=2, at=3, windows=[(NOON, NOON + 60 * 24 * HOUR)])
    asked = replace(GOING_ON, resume=resume, workload=workload)
    site.want(
        **{name: getattr(asked, name) for name in ("duration_seconds", "auto_extend_until")},
        resume=resume,
        workload=workload,
    )
    site.begin()
    return site


def paused() -> Going:
    """Return the same once its lease is over and paid."""
    site = running_dry()
    site.pass_time(2)
    site.stop()
    return site


def test_the_work_is_warned_before_its_time_is_over() -> None:
    site = running_dry()

    site.pass_time(1 + 50 / 60)

    [refused] = [e.event for e in site.events() if isinstance(e.event, ExtensionRefused)]
    assert (refused.reason, refused.pausing) == ("funds-insufficient", True)
    assert site.lease_at(1).state == "active", "it has its granted time"


def test_its_lease_ends_with_its_granted_time_and_no_sooner() -> None:
    site = running_dry()

    site.pass_time(2)

    lease = site.lease_at(1)
    assert (lease.ending_reason, lease.ends_at) == (AWAITS_MONEY, NOON + 2 * HOUR)


def test_money_in_time_lets_it_go_on_in_place() -> None:
    site = running_dry()
    site.pass_time(1 + 50 / 60)

    site.add_money("more", 6)
    site.pass_time(20 / 60)

    assert site.lease_at(1).ends_at == NOON + 3 * HOUR
    assert site.lease_at(1).extension_refused is None


def test_it_waits_and_says_for_how_much_and_until_when() -> None:
    site = paused()

    awaits = site.bid_at(1).awaits
    assert awaits is not None
    # Not the ten hours that it would like to run: the hour that was not covered.
    assert awaits.needs == Money(6 * NANOS_PER_UNIT)
    assert awaits.until == UNTIL - HOUR
    assert site.at(2) is None
    assert site.held() == Money(0)


def test_it_goes_on_by_itself_after_a_top_up_once() -> None:
    site = paused()
    site.wait(minutes=30)
    assert not site.look(), "there is no more money than before"

    site.add_money("top-up", 20)
    assert site.look()
    assert not site.look()

    second = site.bid_at(2)
    assert second.terms.continues is not None
    assert second.terms.continues.resumes
    assert second.terms.auto_extend_until == UNTIL
    assert site.lease_at(2).starts_at == NOON + 2.5 * HOUR
    assert site.at(3) is None


def test_a_higher_limit_of_the_account_is_money_too() -> None:
    site = paused()

    set_budget(
        site.store,
        account_id=ACCOUNT,
        overdraft_nanos=100 * NANOS_PER_UNIT,
        may_raise=True,
        by=somebody(),
        now=site.now,
    )

    assert site.look()
    assert site.lease_at(2).state == "scheduled"


def test_it_ends_when_no_money_came_in_time() -> None:
    site = paused()
    awaits = site.bid_at(1).awaits
    assert awaits is not None

    site.now = awaits.until + timedelta(seconds=1)
    site.add_money("too-late", 100)

    assert site.look()
    assert site.bid_at(1).chain_ended == "no-money"
    assert site.bid_at(1).awaits is None
    assert site.at(2) is None


def test_who_does_not_want_it_any_more_ends_the_wait() -> None:
    site = paused()

    chains.end_chain(site.store, bid_id=BID, by=somebody(), now=site.now)
    site.add_money("top-up", 20)

    assert not site.look()
    assert site.bid_at(1).chain_ended == "consumer"
    assert site.at(2) is None


def test_it_runs_dry_again_and_again_and_does_all_its_time() -> None:
    site = paused()
    for number, units in ((2, 9), (3, 5)):
        site.add_money(f"top-up {number}", units)
        assert site.look(number - 1)
        site.begin(number)
        lease = site.lease_at(number)
        site.pass_time((lease.ends_at - site.now) / HOUR, number)
        assert site.lease_at(number).ending_reason == AWAITS_MONEY
        site.stop(number)

    assert site.bid_at(3).awaits is not None


def test_work_that_saves_nothing_ends_with_its_granted_time() -> None:
    site = running_dry(workload=Workload(kind="other"))

    site.pass_time(2)
    site.stop()

    assert site.lease_at(1).ending_reason == MONEY_SPENT
    assert site.bid_at(1).chain_ended == "money"


def test_work_that_nobody_wants_resumed_ends_with_its_granted_time() -> None:
    site = running_dry(resume=False)

    site.pass_time(2)
    site.stop()

    assert site.lease_at(1).ending_reason == MONEY_SPENT
    assert site.bid_at(1).awaits is None


def test_a_wait_is_never_longer_than_a_week() -> None:
    site = Going(funds=13)
    site.offer("a", gpus=2, at=1, windows=[(NOON, NOON + 60 * 24 * HOUR)])
    site.want(duration_seconds=7_200, repeat_until=NOON + 40 * 24 * HOUR)
    site.begin()
    site.now = site.lease_at(1).ends_at
    site.stop()

    awaits = site.bid_at(1).awaits
    assert awaits is not None
    assert awaits.until == site.now + WAIT_MAX
