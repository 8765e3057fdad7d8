"""Owners who are paid, for tests: what they earned, and each step of a payout."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from uuid import UUID, uuid4

from ledger.commands import payouts as commands
from ledger.domain.account_ids import earnings_account
from ledger.domain.ids import TenantId, UserId
from ledger.domain.payees import Payee, PayeeOf
from ledger.domain.settling import Due, Earned, PayoutTerms
from ledger.eventstore.port import EventStore, Position, load
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book

JOAN, OSCAR, IRIS = UserId(uuid4()), UserId(uuid4()), UserId(uuid4())
EARNINGS = earnings_account(book.OWNER, "USD")
CENT = 10_000_000
TERMS = PayoutTerms()
LATER = NOON + timedelta(days=30)


def of(owner: TenantId = book.OWNER) -> PayeeOf:
    return PayeeOf(account_id=earnings_account(owner, "USD"), tenant_id=owner, currency="USD")


def earned(total: int, *, later: int = 0, recent: int = 0, set_aside: int = 0) -> Earned:
    return Earned(total=total, later=later, recent=recent, set_aside=set_aside)


def settle(
    store: EventStore,
    found: Earned,
    *,
    period: str = "2026-W01",
    user: UserId | None = None,
    terms: PayoutTerms = TERMS,
    owner: TenantId = book.OWNER,
    now: datetime = NOON,
) -> UUID | None:
    made, _ = commands.settle_earnings(
        store,
        of(owner),
        Due(period, date(2026, 1, 5)),
        found,
        terms=terms,
        unit=CENT,
        platform_id=book.PLATFORM,
        user_id=user,
        by=SOMEBODY,
        now=now,
    )
    return made


def approve(store: EventStore, payout: UUID, user: UserId, *, is_own: bool = False) -> Position:
    return commands.approve_payout(
        store, EARNINGS, payout, user_id=user, is_own=is_own, by=SOMEBODY, now=NOON
    )


def cancel(store: EventStore, payout: UUID) -> Position:
    return commands.cancel_payout(
        store, EARNINGS, payout, reason="asked twice", user_id=JOAN, by=SOMEBODY, now=NOON
    )


def paid(store: EventStore, payout: UUID, reference: str = "TX-1") -> Position:
    return commands.mark_paid(
        store,
        EARNINGS,
        payout,
        reference=reference,
        paid_on=date(2026, 1, 7),
        currency="USD",
        platform_id=book.PLATFORM,
        user_id=JOAN,
        by=SOMEBODY,
        now=NOON,
    )


def returned(store: EventStore, payout: UUID) -> Position:
    return commands.mark_returned(
        store,
        EARNINGS,
        payout,
        reason="account closed",
        currency="USD",
        platform_id=book.PLATFORM,
        user_id=JOAN,
        by=SOMEBODY,
        now=NOON,
    )


def payee(store: EventStore) -> Payee:
    return load(store, Payee, EARNINGS) or Payee()
