"""Leases that go on step by step, until their moment, their budget or an owner says stop."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from ledger.commands.money import add_funds
from ledger.domain.accounts import FundsInsufficient
from ledger.domain.ids import EntryId
from ledger.domain.money import NANOS_PER_UNIT, Money
from ledger.domain.parties import PLATFORM_ID
from ledger.eventstore.port import load
from marketplace.commands import bids, leases
from marketplace.commands.extending import extend_when_due
from marketplace.domain.bids.bid import Bid
from marketplace.domain.bids.bounds import ExtensionOutOfBounds
from marketplace.domain.facts.close_reasons import MONEY_SPENT, WINDOW_OVER
from marketplace.domain.facts.events import ExtensionRefused
from tests.conftest import NOON
from tests.marketplace.support.market import OWNER, named, somebody
from tests.marketplace.support.site import ACCOUNT, BID, HOUR, TERMS, Site


class Going(Site):
    """A site whose bid wants to go on; time moves in steps of five minutes."""

    def want(self, until: datetime, *, budget: int | None = None, hours: int = 2) -> None:
        money = None if budget is None else Money(budget * NANOS_PER_UNIT)
        terms = replace(
            TERMS, duration_seconds=hours * 3_600, auto_extend_until=until, budget=money
        )
        bids.place_bid(self.store, terms=terms, by=somebody(), now=self.now)
        self.go()
        self.start()

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

    def pass_time(self, until: datetime) -> None:
        while self.now < until:
            self.wait(minutes=5)
            with suppress(FundsInsufficient):
                extend_when_due(
                    self.store, lease_id=self.lease_of_bid(), by=somebody(), now=self.now
                )
            self.go()
            self.tick()


@pytest.fixture
def site() -> Going:
    site = Going()
    site.offer("a", gpus=2, at=1)
    return site


def test_a_lease_goes_on_until_its_moment_and_no_longer(site: Going) -> None:
    site.want(NOON + 5 * HOUR + timedelta(minutes=30))

    site.pass_time(NOON + 5 * HOUR)

    assert site.lease.ends_at == NOON + 5 * HOUR + timedelta(minutes=30)
    site.pass_time(NOON + 6 * HOUR)
    assert site.lease.ending_reason == WINDOW_OVER


def test_a_step_is_an_hour_and_is_asked_for_shortly_before_the_end(site: Going) -> None:
    site.want(NOON + 12 * HOUR)

    site.pass_time(NOON + 2 * HOUR - timedelta(minutes=25))
    before = site.lease.ends_at
    site.pass_time(NOON + 2 * HOUR - timedelta(minutes=20))

    assert before == NOON + 2 * HOUR
    assert site.lease.ends_at == NOON + 3 * HOUR
    assert site.account.held == Money(2 * 3 * NANOS_PER_UNIT)


@pytest.mark.parametrize("hours", [1, 2])
@pytest.mark.parametrize("since", range(-25, -10, 5))
def test_a_quarter_of_an_hour_without_a_market_ends_no_lease_that_goes_on(
    site: Going, hours: int, since: int
) -> None:
    site.want(NOON + 12 * HOUR, hours=hours)
    site.pass_time(NOON + hours * HOUR + timedelta(minutes=since))
    site.now += timedelta(minutes=15)  # nobody asks, nobody decides, nobody looks

    site.pass_time(NOON + hours * HOUR + timedelta(minutes=5))

    assert site.lease.ends_at == NOON + (hours + 1) * HOUR


def test_asking_again_and_again_changes_nothing(site: Going) -> None:
    site.want(NOON + 12 * HOUR)
    site.wait(minutes=110)

    for _ in range(3):
        extend_when_due(site.store, lease_id=site.lease_of_bid(), by=somebody(), now=site.now)
    asked = [each for each in site.events() if each.event.name.endswith("extension-requested")]

    assert len(asked) == 1


def test_a_lease_ends_when_its_floor_has_risen_and_is_not_asked_for_twice(site: Going) -> None:
    site.want(NOON + 12 * HOUR)
    site.change_offer("a", "reprice", at=2)

    site.pass_time(NOON + 3 * HOUR)

    assert site.lease.ends_at == NOON + 2 * HOUR
    assert site.lease.ending_reason == WINDOW_OVER
    asked = [each for each in site.events() if each.event.name.endswith("extension-requested")]
    assert len(asked) == 1


def test_the_budget_is_never_exceeded(site: Going) -> None:
    # 2 GPUs at 1 an hour: 7 pay for three and a half hours.
    site.want(NOON + 12 * HOUR, budget=7)

    site.pass_time(NOON + 6 * HOUR)

    assert site.lease.ends_at == NOON + 3 * HOUR


def test_nothing_is_asked_for_once_the_owner_wants_the_gpus_back(site: Going) -> None:
    site.want(NOON + 12 * HOUR)
    site.pass_time(NOON + timedelta(minutes=95))
    leases.reclaim_lease(
        site.store, lease_id=site.lease_of_bid(), owner_id=OWNER, by=somebody(), now=site.now
    )

    site.pass_time(NOON + 3 * HOUR)

    assert site.lease.ends_at == NOON + 2 * HOUR


def test_without_money_for_a_step_the_lease_ends_at_its_time_with_its_hold_intact() -> None:
    site = Going(funds=13)
    site.offer("a", gpus=2, at=3)
    site.want(NOON + 12 * HOUR)
    site.wait(minutes=110)

    with pytest.raises(Exception, match="available"):
        extend_when_due(site.store, lease_id=site.lease_of_bid(), by=somebody(), now=site.now)

    assert site.lease.ends_at == NOON + 2 * HOUR
    assert site.account.held == Money(12 * NANOS_PER_UNIT)


def refusals(site: Going) -> list[str]:
    """Return why extensions were refused, as the lease's own stream tells it."""
    return [each.event.reason for each in site.events() if isinstance(each.event, ExtensionRefused)]


def test_a_lease_that_ends_for_want_of_money_says_so() -> None:
    site = Going(funds=13)
    site.offer("a", gpus=2, at=3)
    site.want(NOON + 12 * HOUR)

    site.pass_time(NOON + 3 * HOUR)

    assert refusals(site) == ["funds-insufficient"]
    assert site.lease.ending_reason == MONEY_SPENT


def test_money_that_comes_in_time_lets_it_go_on() -> None:
    site = Going(funds=13)
    site.offer("a", gpus=2, at=3)
    site.want(NOON + 12 * HOUR)
    site.pass_time(NOON + timedelta(minutes=110))
    site.add_money("more", 6)

    site.pass_time(NOON + timedelta(hours=2))
    assert site.lease.ends_at == NOON + 3 * HOUR
    assert site.lease.extension_refused is None

    site.pass_time(NOON + 4 * HOUR)
    assert refusals(site) == ["funds-insufficient", "funds-insufficient"]
    assert site.lease.ending_reason == MONEY_SPENT


def test_a_lease_that_used_its_budget_says_so(site: Going) -> None:
    site.want(NOON + 12 * HOUR, budget=7)

    site.pass_time(NOON + 6 * HOUR)

    assert refusals(site) == ["budget-spent"]
    assert site.lease.ending_reason == MONEY_SPENT


def test_what_the_market_declines_is_no_want_of_money(site: Going) -> None:
    site.want(NOON + 12 * HOUR)
    site.change_offer("a", "reprice", at=2)
    site.pass_time(NOON + 3 * HOUR)
    assert refusals(site) == []


def test_a_moment_before_the_earliest_end_is_refused(site: Going) -> None:
    with pytest.raises(ExtensionOutOfBounds):
        site.want(NOON + HOUR)

    assert load(site.store, Bid, BID) is None
    assert site.account.held == Money(0)
