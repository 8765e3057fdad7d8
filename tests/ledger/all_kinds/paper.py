"""What a careful person would keep on paper of all money: balances, holds, payments, charges.

It shares nothing with the product but ids, and the amounts of what is asked. Each movement is
written down by the rule that asked for it; whatever the product does beyond that shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from math import ceil, floor
from uuid import UUID

from ledger.domain.ids import AccountId, EntryId, HoldId, TenantId
from ledger.domain.periods import Period

CENT = 10_000_000
MOST = 9 * 10**18
"""Nine thousand million units: no account may come to more, nor to less below zero."""


def nearest(amount: Fraction | int, unit: int) -> int:
    """Return the multiple of `unit` that is nearest; a half goes up."""
    return floor(Fraction(amount, unit) + Fraction(1, 2)) * unit


def shared(nanos: int, weights: Sequence[int]) -> list[int]:
    """Divide an amount as a person would: each its part rounded down, the rest to who lost most."""
    exact = [Fraction(nanos * weight, sum(weights)) for weight in weights]
    parts = [floor(each) for each in exact]
    order = sorted(range(len(exact)), key=lambda index: (parts[index] - exact[index], index))
    for index in order[: nanos - sum(parts)]:
        parts[index] += 1
    return parts


@dataclass
class PaperHold:
    """Money set aside for a lease, and what was used of it. prices: from when on each holds."""

    account_id: AccountId
    money: int
    prices: list[tuple[datetime, int]]
    fee_ppm: int
    millis: Counter[int] = field(default_factory=Counter)
    """By price."""
    hours: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """By hour and number of the correction: what both owners' GPUs gave."""
    released: bool = False
    disputed: int = 0
    """What disputes gave back."""
    missed: dict[TenantId, tuple[int, int]] = field(default_factory=dict)
    """By owner, what it credited for its promise, and of how much that is a share."""

    @property
    def left(self) -> int:
        """Return what of the use may still go back."""
        return self.captured - self.disputed - sum(nanos for nanos, _ in self.missed.values())

    def price_at(self, moment: datetime) -> int:
        """Return at what use that begins then is charged."""
        return [price for since, price in self.prices if since <= moment][-1]

    def cost(self, price: int, more: int) -> int:
        """Return what so much more use at a price adds."""
        after, before = (
            floor(Fraction(price * millis, 3_600_000))
            for millis in (self.millis[price] + more, self.millis[price])
        )
        return after - before

    @property
    def captured(self) -> int:
        """Return what the use so far costs: of each price all of it together."""
        return sum(
            floor(Fraction(price * millis, 3_600_000)) for price, millis in self.millis.items()
        )

    def fee(self, charged: int) -> int:
        """Return the platform's part of so much."""
        return floor(Fraction(charged * self.fee_ppm, 1_000_000))


@dataclass
class PaperCharge:
    """An amount that belongs on an invoice; below zero where it is given back."""

    account_id: AccountId
    period: Period
    nanos: int
    invoice: UUID | None = None


@dataclass
class PaperUse:
    """A charged hour, which may be contested. parts: by account that got something."""

    entry_id: EntryId
    account_id: AccountId
    millis: int
    nanos: int
    parts: list[tuple[AccountId, TenantId | None, int]]
    at: datetime
    hold: PaperHold

    def left(self, contested: list[tuple[AccountId, TenantId | None, int]]) -> list[int]:
        """Return what of each contested part may still go back. Fees come last."""
        gone = {
            owner: ceil(Fraction(nanos * self.nanos, of)) if of else nanos
            for owner, (nanos, of) in self.hold.missed.items()
        }
        room = max(min(self.hold.left, self.nanos - sum(gone.values())), 0)
        got = {account_id: nanos for account_id, _, nanos in self.parts}
        left: dict[AccountId, int] = {}
        for account_id, owner, nanos in sorted(contested, key=lambda each: each[1] is None):
            most = got[account_id] - (gone.get(owner, 0) if owner else 0)
            left[account_id] = max(min(nanos, most, room), 0)
            room -= left[account_id]
        return [left[account_id] for account_id, _, _ in contested]


@dataclass
class PaperDispute:
    """What is contested, from whom. outcome: empty while it is open. back: what was given back."""

    use: PaperUse
    account_id: AccountId
    parts: list[tuple[AccountId, TenantId | None, int]]
    outcome: str = ""
    back: int = 0


@dataclass
class PaperPayment:
    """A payment by card. back: what was sent back or is on its way back. taken: by banks."""

    account_id: AccountId
    money: int
    intent: str
    arrived: bool = False
    back: int = 0
    taken: int = 0


@dataclass
class PaperRefund:
    """A refund; parts: by number, of which payment, how much, and how it stands."""

    account_id: AccountId
    money: int
    asked_by: UUID
    state: str = "asked"
    parts: dict[int, tuple[str, int, str]] = field(default_factory=dict)

    @property
    def held(self) -> int:
        """Return what is kept for it."""
        if self.state == "asked":
            return self.money
        return sum(nanos for _, nanos, state in self.parts.values() if state == "approved")


@dataclass
class PaperInvoice:
    """An invoice and what was credited of it."""

    account_id: AccountId
    net: int
    tax: int
    is_taxed: bool
    credited: int = 0
    tax_back: int = 0


@dataclass
class Paper:
    """All of it."""

    balances: Counter[AccountId] = field(default_factory=Counter)
    overdrafts: dict[AccountId, int | None] = field(default_factory=dict)
    holds: dict[HoldId, PaperHold] = field(default_factory=dict)
    charges: list[PaperCharge] = field(default_factory=list)
    uses: list[PaperUse] = field(default_factory=list)
    disputes: dict[EntryId, PaperDispute] = field(default_factory=dict)
    payments: list[PaperPayment] = field(default_factory=list)
    refunds: dict[UUID, PaperRefund] = field(default_factory=dict)
    chargebacks: dict[str, tuple[PaperPayment, int, str]] = field(default_factory=dict)
    invoices: dict[UUID, PaperInvoice] = field(default_factory=dict)
    closed_through: Period | None = None
    opened_again: set[Period] = field(default_factory=set)

    def move(self, source: AccountId, target: AccountId, nanos: int) -> None:
        """Write a movement down."""
        self.balances[source] -= nanos
        self.balances[target] += nanos

    def held(self, account_id: AccountId) -> int:
        """Return what is set aside on an account that pays."""
        return sum(
            hold.money - hold.captured
            for hold in self.holds.values()
            if hold.account_id == account_id and not hold.released
        ) + sum(each.held for each in self.refunds.values() if each.account_id == account_id)

    def aside(self, earnings: AccountId) -> int:
        """Return what open disputes set aside of earnings."""
        return sum(
            nanos
            for each in self.disputes.values()
            if not each.outcome
            for account_id, owner, nanos in each.parts
            if account_id == earnings and owner is not None
        )

    def available(self, account_id: AccountId) -> int:
        """Return what is not set aside."""
        return self.balances[account_id] - self.held(account_id)

    def affords(self, account_id: AccountId, nanos: int) -> bool:
        """Tell if so much more may be set aside or taken."""
        overdraft = self.overdrafts[account_id]
        spendable = self.available(account_id) + (MOST if overdraft is None else overdraft)
        return nanos <= min(spendable, MOST - self.held(account_id))

    def taken(self, account_id: AccountId) -> int:
        """Return what banks took from an account and did not give back."""
        return sum(
            nanos
            for payment, nanos, state in self.chargebacks.values()
            if payment.account_id == account_id and state != "won"
        )

    def is_closed(self, period: Period) -> bool:
        """Tell if a month is closed just now."""
        through = self.closed_through
        return through is not None and period <= through and period not in self.opened_again

    def counts_in(self, moment: datetime) -> Period:
        """Return the month in which what belongs to a moment counts."""
        period = Period.of(moment)
        while self.is_closed(period):
            period = period.next
        return period

    def charge(self, account_id: AccountId, nanos: int, moment: datetime) -> None:
        """Note what belongs on an invoice."""
        self.charges.append(PaperCharge(account_id, self.counts_in(moment), nanos))
