"""What owners give for a reclaim or a missed promise is used, and never leaves as money."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from typing import Any
from uuid import UUID

import pytest

from ledger import commands, payments
from ledger.commands.payouts import settle_earnings
from ledger.commands.sla import credit_missed_sla
from ledger.domain.account_ids import earnings_account
from ledger.domain.accounts import Account
from ledger.domain.carrying import carry
from ledger.domain.events import CompensationPaid
from ledger.domain.given_back import for_use_after
from ledger.domain.ids import EntryId
from ledger.domain.money import Money
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.payee_settling import NothingPayable
from ledger.domain.payees import PayeeOf
from ledger.domain.refunds import NothingToRefundTo
from ledger.domain.returns import NotUnused
from ledger.domain.settling import Due, Earned, PayoutTerms
from ledger.domain.sla_credits import SlaMiss
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import stream_name
from ledger.funding.settling import refundable_now
from ledger.models import AccountRow
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book
from tests.ledger.funding_desk import JOAN, Desk, install
from tests.ledger.ledgerbook import usd
from tests.stripe_double.double import StripeDouble

pytestmark = pytest.mark.django_db
HOUR_MS = 3_600_000


@pytest.fixture
def desk(store: MemoryStore) -> Iterator[Desk]:
    double = StripeDouble().start()
    install(double)
    book.open_everybody(store)
    book.open_funds(store)
    yield Desk(store, double)
    payments.install(lambda: None)
    double.stop()
    assert double.faults == []


def compensate(desk: Desk, units: float, *, lease: object = "reclaimed") -> None:
    """Let an owner, whatever it earned, pay for taking a lease's GPUs back."""
    commands.pay_compensation(
        desk.store,
        account_id=desk.account_id,
        lease_id=book.lease_named(lease),
        owner_id=book.OWNER,
        money=usd(units),
        by=SOMEBODY,
        now=NOON,
    )
    desk.follow()


def use(desk: Desk, units: float, *, name: str = "used", owner: Any = book.OWNER) -> None:
    """Use so much of an owner's GPUs."""
    hold_id = book.hold_named(name)
    book.hold(desk.store, usd(units), hold_id=hold_id, purpose=f"bid:{name}")
    book.capture(
        desk.store,
        book.hours(0),
        HOUR_MS,
        hold_id=hold_id,
        lease_id=book.lease_named(name),
        price=replace(book.PRICE, nanos_per_gpu_hour=usd(units).nanos),
        fee_ppm=0,
        owners=((owner, HOUR_MS),),
    )
    book.release(desk.store, hold_id=hold_id)
    desk.follow()


def can_go_back(desk: Desk) -> Money:
    return refundable_now(desk.store, AccountRow.objects.get(pk=desk.account_id))


def test_of_a_wallet_that_compensation_filled_nothing_is_paid_out(desk: Desk) -> None:
    compensate(desk, 50)

    assert can_go_back(desk) == usd(0)
    with pytest.raises(NotUnused):
        desk.refund(1)
    assert desk.available == usd(50)
    use(desk, 50)  # but it pays for GPU time
    assert desk.available == usd(0)


def test_what_was_paid_in_and_used_does_not_go_back_as_compensation(desk: Desk) -> None:
    desk.paid(50)
    use(desk, 50)
    compensate(desk, 50)

    assert can_go_back(desk) == usd(0)
    with pytest.raises(NotUnused):
        desk.refund(1)


def test_what_was_paid_in_and_not_used_goes_back_beside_compensation(desk: Desk) -> None:
    desk.paid(50)
    compensate(desk, 30)
    use(desk, 20)

    assert can_go_back(desk) == usd(30)
    with pytest.raises(NotUnused):
        desk.refund(31)
    desk.refund(30)


def test_credit_that_was_used_up_keeps_nothing_back_of_what_is_paid_in_later(desk: Desk) -> None:
    compensate(desk, 30)
    use(desk, 30)
    desk.paid(50)

    assert can_go_back(desk) == usd(50)
    desk.refund(50)


def test_a_credit_for_a_missed_promise_is_for_use_too(desk: Desk) -> None:
    desk.paid(50)
    use(desk, 50)
    missed = SlaMiss(
        hold_id=book.hold_named("used"),
        lease_id=book.lease_named("used"),
        owner_id=book.OWNER,
        gpus=1,
        of_gpus=1,
        credit_ppm=1_000_000,
        reason="started 300 s in",
    )
    credit_missed_sla(desk.store, account_id=desk.account_id, miss=missed, by=SOMEBODY, now=NOON)

    assert desk.total == usd(50)
    with pytest.raises(NotUnused):
        desk.refund(1)


def test_an_owner_below_zero_is_paid_nothing_who_also_consumes(desk: Desk) -> None:
    """One organisation in both roles: what it gave itself is neither refunded nor paid out."""
    compensate(desk, 80)
    owed = book.totals(desk.store)[earnings_account(book.OWNER, "USD")]
    use(desk, 50)  # of its own GPUs
    after = book.totals(desk.store)[earnings_account(book.OWNER, "USD")]

    assert (owed, after) == (-usd(80).nanos, -usd(30).nanos)
    with pytest.raises(NothingPayable):
        settle_earnings(
            desk.store,
            PayeeOf(
                account_id=earnings_account(book.OWNER, "USD"),
                tenant_id=book.OWNER,
                currency="USD",
            ),
            Due("2026-01-05", date(2026, 1, 5)),
            Earned(total=after, later=0, recent=0, set_aside=0),
            terms=PayoutTerms(),
            unit=10**7,
            platform_id=PLATFORM_ID,
            user_id=JOAN,
            by=SOMEBODY,
            now=NOON,
        )
    with pytest.raises(NotUnused):
        desk.refund(1)


def test_no_more_than_was_paid_by_card_goes_back_whatever_else_came(desk: Desk) -> None:
    desk.paid(50)
    book.fund(desk.store, usd(100))
    compensate(desk, 100)

    with pytest.raises(NothingToRefundTo):
        desk.refund(51)


def test_an_account_that_was_carried_forward_knows_what_is_for_use(desk: Desk) -> None:
    desk.paid(50)
    compensate(desk, 30)
    account = book.account(desk.store)
    events = list(desk.store.read_stream(stream_name(Account, desk.account_id)))
    carried = carry(account, up_to_version=len(events), event_id=events[-1].id, now=NOON)

    assert Account.reopened(carried, lambda _: []).for_use_nanos == usd(30).nanos


def test_paid_in_is_used_first_and_what_is_for_use_last() -> None:
    came = CompensationPaid(
        account_id=book.FUNDS,
        entry_id=EntryId(UUID(int=1)),
        lease_id=book.LEASE,
        owner_id=book.OWNER,
        money=Money(30),
        postings=(),
        at=NOON,
    )
    assert for_use_after(0, 80, came) == 30
    assert for_use_after(0, -20, came) == 0
    assert for_use_after(0, 10, came) == 10
    assert for_use_after(30, 60, None) == 30
    assert for_use_after(30, 20, None) == 20
    assert for_use_after(30, -5, None) == 0
