"""A bank takes a payment back under running work: told, saved, paused, and gone on with."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import uuid4

import pytest

from ledger.commands import place_hold
from ledger.commands.refunds import note_dispute, note_dispute_closed
from ledger.commands.wallet import post_top_up, request_top_up
from ledger.domain.ids import HoldId, PaymentId
from ledger.domain.money import Money
from ledger.domain.parties import PLATFORM_ID
from ledger.models import InboxRow
from marketplace.domain.facts.close_reasons import MONEY_TAKEN
from marketplace.domain.leases.unfunded import NOTICE
from marketplace.loops import go_on_where_there_is_money, see_to_money_that_is_gone
from marketplace.models import BidRow, LeaseShareRow, MoneyWaitRow
from tests.pages.running_dry import UNIT, Dry
from tests.pages.world import BY, CONSUMER

pytestmark = pytest.mark.django_db
HUNDRED = Money(100 * UNIT)


@pytest.fixture
def dry() -> Dry:
    """A market in which 100 came in by card before work on them began."""
    dry = Dry()
    dry.found()
    payment_id = PaymentId(dry.account_id)
    request_top_up(
        dry.store,
        account_id=dry.account_id,
        payment_id=payment_id,
        money=HUNDRED,
        asked_by=None,
        by=BY,
        now=dry.now,
    )
    post_top_up(
        dry.store,
        account_id=dry.account_id,
        payment_id=payment_id,
        intent="pi_1",
        money=HUNDRED,
        platform_id=PLATFORM_ID,
        by=BY,
        now=dry.now,
    )
    dry.begin()
    place_hold(
        dry.store,
        account_id=dry.account_id,
        hold_id=HoldId(uuid4()),
        money=Money(95 * UNIT),
        purpose="more work",
        by=BY,
        now=dry.now,
    )
    dry.settle()
    return dry


def taken(dry: Dry, money: Money) -> None:
    note_dispute(
        dry.store,
        account_id=dry.account_id,
        dispute="du_1",
        intent="pi_1",
        money=money,
        reason="fraudulent",
        platform_id=PLATFORM_ID,
        by=BY,
        now=dry.now,
    )
    dry.settle()


def won(dry: Dry) -> None:
    note_dispute_closed(
        dry.store, account_id=dry.account_id, dispute="du_1", won=True, by=BY, now=dry.now
    )
    dry.settle()


def look(dry: Dry, now: datetime) -> None:
    see_to_money_that_is_gone(dry.store, now=now)
    dry.settle()
    go_on_where_there_is_money(dry.store, now=now)
    dry.settle()


def phase(dry: Dry) -> str:
    return LeaseShareRow.objects.get(lease_id=dry.lease.lease_id).phase


def test_work_whose_money_is_gone_is_told_and_paused_after_its_notice(dry: Dry) -> None:
    dry.member(CONSUMER, "consumer", "finance")
    starts_at = dry.lease.starts_at
    taken(dry, HUNDRED)
    look(dry, starts_at)
    look(dry, starts_at)
    assert (dry.lease.state, phase(dry)) == ("active", "warn")
    titles = list(InboxRow.objects.values_list("title", flat=True))
    assert sum("no money to go on" in each for each in titles) >= 1

    grace = timedelta(seconds=dry.lease.grace_seconds)
    look(dry, starts_at + NOTICE + grace - timedelta(seconds=1))
    assert dry.lease.state == "active"
    look(dry, starts_at + NOTICE + grace)

    assert dry.lease.state == "ending" and phase(dry) == "stop"


def test_where_the_bank_decides_for_us_in_time_it_goes_on(dry: Dry) -> None:
    taken(dry, HUNDRED)
    look(dry, dry.lease.starts_at)
    won(dry)
    look(dry, dry.lease.starts_at + timedelta(minutes=5))

    assert (dry.lease.state, phase(dry)) == ("active", "run")
    look(dry, dry.lease.starts_at + NOTICE * 2)
    assert dry.lease.state == "active"


def test_what_was_paused_waits_and_goes_on_once_the_bank_decided_for_us(dry: Dry) -> None:
    starts_at = dry.lease.starts_at
    taken(dry, HUNDRED)
    look(dry, starts_at)
    stopped = starts_at + NOTICE + timedelta(seconds=dry.lease.grace_seconds)
    look(dry, stopped)
    dry.stop(stopped)
    assert dry.lease.close_reason == MONEY_TAKEN
    assert MoneyWaitRow.objects.count() == 1

    won(dry)
    look(dry, stopped + timedelta(minutes=5))

    assert BidRow.objects.count() == 2 and not MoneyWaitRow.objects.exists()


def test_a_chargeback_that_the_account_covers_stops_nothing(dry: Dry) -> None:
    taken(dry, Money(5 * UNIT))
    look(dry, dry.lease.starts_at)

    assert (dry.lease.state, phase(dry)) == ("active", "run")
