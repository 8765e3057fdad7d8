"""Spending budgets to write tests about, in a market of facts."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID, uuid5

from ledger.domain.ids import SubscriberId, TenantId, UserId
from ledger.domain.money import Money
from marketplace.domain.spending.budget import Spender
from marketplace.domain.spending.events import (
    BudgetScope,
    RollOver,
    SpendingBudgetSet,
    SpendingPeriod,
    Threshold,
)
from tests.conftest import NOON

NAMES = UUID(int=0xB0D6E7)
TENANT = TenantId(uuid5(NAMES, "tenant"))
UNIT = SubscriberId(uuid5(NAMES, "unit"))
PERSON = UserId(uuid5(NAMES, "person"))
SECOND = UserId(uuid5(NAMES, "second"))
WHO = Spender(subscriber_id=UNIT, user_id=PERSON, project="llm", kind="training")
USUAL = (Threshold(500_000, "notify"), Threshold(800_000, "notify"), Threshold(1_000_000, "block"))


def usd(amount: float) -> Money:
    """Return an amount of dollars."""
    return Money(round(amount * 1_000_000_000))


def budget(
    name: str = "budget",
    amount: float = 100.0,
    *,
    scope: BudgetScope = "tenant",
    subject: str = "",
    period: SpendingPeriod = "month",
    roll_over: RollOver = "none",
    unused_ppm: int = 0,
    thresholds: tuple[Threshold, ...] = USUAL,
    tenant_id: TenantId = TENANT,
    at: datetime = NOON,
) -> SpendingBudgetSet:
    """Return what sets a budget."""
    return SpendingBudgetSet(
        tenant_id=tenant_id,
        budget_id=uuid5(NAMES, name),
        title=name,
        scope=scope,
        subject=subject,
        amount=usd(amount),
        period=period,
        roll_over=roll_over,
        unused_ppm=unused_ppm,
        thresholds=thresholds,
        zone="Europe/Berlin",
        by=PERSON,
        at=at,
    )
