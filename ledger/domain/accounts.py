"""An account: what it has, what is set aside in holds, and what may be taken from it.

total: everything posted to it. held: what open holds still set aside. available = total - held:
what a new hold may use, down to the overdraft limit. One stream decides one account.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, TypeVar
from uuid import UUID

from ledger.domain import journal, reopening
from ledger.domain.account_ids import earnings_account, fee_account
from ledger.domain.agreed_rates import HoldRepriced
from ledger.domain.carried import AccountCarried
from ledger.domain.events import (
    AccountEvent,
    AccountKind,
    AccountOpened,
    BudgetSet,
    CompensationPaid,
    FundsAdded,
    HoldPlaced,
    HoldReleased,
    HoldResized,
    StorageCharged,
    UsageCaptured,
)
from ledger.domain.given_back import for_use_after
from ledger.domain.holds import (
    TEXT_LENGTH_MAX,
    Hold,
    HoldBelowCaptured,
    HoldClosed,
    HoldEvent,
    HoldPlacedOtherwise,
    HoldUnknown,
    Rated,
    Usage,
    hold_after,
    need_text,
    note_given_back,
)
from ledger.domain.ids import AccountId, EntryId, HoldId, LeaseId, TenantId
from ledger.domain.money import NANOS_MAX, AmountTooLarge, CurrencyUnknown, Money
from ledger.domain.receivable_events import CreditEvent, CreditResumed, CreditStopped
from ledger.domain.refusal import Forbidden, Invalid, Refusal, Unknown
from ledger.domain.return_events import ReturnEntry
from ledger.domain.storage import Stored, stored_after

EntryT = TypeVar("EntryT", FundsAdded, CompensationPaid)
CURRENCY = re.compile(r"[A-Z]{3}")

PAYING_KINDS: frozenset[AccountKind] = frozenset({"prepaid", "chargeback"})
"""The kinds that pay for use: only these take holds."""


class AccountUnknown(Unknown):
    """There is no such account."""


class AccountOpenedOtherwise(Refusal):
    """This account is open already, on other terms."""


class PrepaidUnlimited(Invalid):
    """A prepaid account needs an overdraft limit; zero means that it must cover every hold."""


class OverdraftNegative(Invalid):
    """An overdraft limit cannot be below zero."""


class BudgetRaisedByPlatformOnly(Forbidden):
    """Only finance people and operators of the platform may let an account go further below zero.

    Lowering it is the organisation's own affair.
    """


class BudgetBelowUse(Refusal):
    """The account is further below zero already, with what is set aside.

    Wait until holds are released, add funds, or set at least what is in use.
    """


class AccountCannotPay(Refusal):
    """Only prepaid and chargeback accounts can be charged for use.

    Name the account of a business unit, not one that counts earnings, fees or costs.
    """


class CurrencyMismatch(Invalid):
    """The amount is in another currency than the account.

    Nothing is converted: use an account in that currency.
    """


class AmountNotPositive(Invalid):
    """The amount must be more than zero."""


class FundsInsufficient(Refusal):
    """The account does not have that much available.

    Add funds, wait until other holds are released, or ask for less.
    """


class CreditIsStopped(FundsInsufficient):
    """An invoice of this account is overdue: it takes no new bids until that is paid.

    Leases go on. `invoices` names what to pay.
    """


class EntryRecordedOtherwise(Refusal):
    """This id already names a journal entry with other terms.

    If it is meant as a new entry, give it a new id or reference.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One account. `evolve` hands `holds`, `entries` and `credited` on to the state it returns.

    They only gain ids and are not copied at each event; so only the newest state of a fold may be
    asked, and by id: of an account that was carried forward they find what is older (decision 116).
    for_use_nanos: of its total, what came as compensation or credit: never paid out. stored: by
    volume, what was charged. credited: by a reference's name, what first added funds for it.
    """

    STREAM: ClassVar[str] = "account"

    opened: AccountOpened
    total: Money
    held: Money
    overdraft_nanos: int | None
    for_use_nanos: int = 0
    holds: MutableMapping[HoldId, Hold] = field(default_factory=dict)
    entries: MutableMapping[EntryId, journal.EntryEvent] = field(default_factory=dict)
    stored: Mapping[UUID, Stored] = field(default_factory=dict)
    credited: MutableMapping[str, EntryId] = field(default_factory=dict)
    stopped: frozenset[str] = frozenset()
    """The invoices that are overdue for so long that nothing new is set aside."""

    def branch(self) -> Account:
        """Return this account so that it may go on without changing this one's holds."""
        return replace(self, **reopening.beside(self))

    @classmethod
    def reopened(cls, carried: AccountCarried, find: reopening.Find) -> Account:
        """Return the account that was carried forward; `find` knows what is older, by its ids."""
        return cls(**reopening.fields_of(carried, find))

    @classmethod
    def evolve(
        cls, state: Account | None, event: AccountEvent | ReturnEntry | CreditEvent, /
    ) -> Account:
        """Return the account after `event`."""
        if isinstance(event, AccountOpened):
            assert state is None
            zero = Money(0, event.currency)
            return cls(opened=event, total=zero, held=zero, overdraft_nanos=event.overdraft_nanos)
        assert state is not None
        match event:
            case BudgetSet():
                return replace(state, overdraft_nanos=event.overdraft_nanos)
            case CreditStopped():
                return replace(state, stopped=state.stopped | {event.number})
            case CreditResumed():
                return replace(state, stopped=state.stopped - {event.number})
            case HoldPlaced() | HoldResized() | HoldRepriced() | HoldReleased():
                return state._with_hold(event)
            case UsageCaptured():
                return state._with_hold(event)._with_entry(event)
            case StorageCharged():
                return replace(state._with_entry(event), stored=stored_after(state.stored, event))
            case _:  # an entry that does nothing else, or this would not type-check
                return state._with_entry(event)

    def _with_hold(self, event: HoldEvent) -> Account:
        # One that is placed is new: not asked for, since it might be looked for far back.
        before = None if isinstance(event, HoldPlaced) else self.holds[event.hold_id]
        hold = hold_after(before, event)
        change = hold.remaining.nanos - (before.remaining.nanos if before else 0)
        self.holds[hold.hold_id] = hold
        return replace(self, held=Money(self.held.nanos + change, self.held.currency))

    def _with_entry(self, event: journal.EntryEvent) -> Account:
        own = self.opened.account_id
        moved = sum(line.nanos for line in event.postings if line.account_id == own)
        self.entries[event.entry_id] = event
        note_given_back(self.holds, event)
        if isinstance(event, FundsAdded):
            self.credited.setdefault(journal.reference_name(event.reference), event.entry_id)
        total = Money(self.total.nanos + moved, self.total.currency)
        for_use = for_use_after(self.for_use_nanos, total.nanos, event)
        return replace(self, total=total, for_use_nanos=for_use)

    @property
    def available(self) -> Money:
        """Return what is not set aside; below zero where an overdraft is in use."""
        return self.total - self.held

    def set_budget(
        self, *, overdraft_nanos: int | None, may_raise: bool, now: datetime
    ) -> list[BudgetSet]:
        """Decide how far available may fall below zero from now on; None: without limit.

        may_raise: the platform does; an organisation itself may only go lower.
        """
        self._need_paying()
        _check_overdraft(self.opened.kind, overdraft_nanos)
        before = self.overdraft_nanos
        if overdraft_nanos == before:
            return []
        raised = before is not None and (overdraft_nanos is None or overdraft_nanos > before)
        if raised and not may_raise:
            raise BudgetRaisedByPlatformOnly()
        if overdraft_nanos is not None and self.available.nanos + overdraft_nanos < 0:
            in_use = Money(-self.available.nanos, self.opened.currency)
            raise BudgetBelowUse(in_use=in_use)
        return [
            BudgetSet(account_id=self.opened.account_id, overdraft_nanos=overdraft_nanos, at=now)
        ]

    def add_funds(
        self, *, entry_id: EntryId, money: Money, reference: str, cash: AccountId, now: datetime
    ) -> list[FundsAdded]:
        """Decide what happens when money comes in: it is there, once per `entry_id`."""
        self._need_paying()
        self._need_amount(money)
        need_text(reference, length_max=TEXT_LENGTH_MAX)
        own = self.opened.account_id
        entry = FundsAdded(
            account_id=own,
            entry_id=entry_id,
            money=money,
            reference=reference,
            postings=journal.transfer(source=cash, target=own, money=money),
            at=now,
        )
        new = self._once(entry)
        if new and self.total.nanos + money.nanos > NANOS_MAX:
            raise AmountTooLarge(most=Money(NANOS_MAX, self.opened.currency))
        return new

    def place_hold(
        self, *, hold_id: HoldId, money: Money, purpose: str, now: datetime
    ) -> list[HoldPlaced]:
        """Decide whether money may be set aside: only what is available, overdraft included.

        Asking again for a hold that is open changes nothing; one that was released sets nothing
        aside any more, so asking for it again is refused.
        """
        self._need_paying()
        self._need_amount(money, zero_allowed=True)
        need_text(purpose, length_max=TEXT_LENGTH_MAX)
        before = self.holds.get(hold_id)
        if before is not None:
            if (before.placed, before.purpose) != (money, purpose):
                raise HoldPlacedOtherwise(hold_id=hold_id)
            if before.released:
                raise HoldClosed(hold_id=hold_id)
            return []
        if self.stopped:
            raise CreditIsStopped(invoices=", ".join(sorted(self.stopped)))
        self.need_available(money)
        return [
            HoldPlaced(
                account_id=self.opened.account_id,
                hold_id=hold_id,
                money=money,
                purpose=purpose,
                at=now,
            )
        ]

    def need_open_hold(self, hold_id: HoldId) -> None:
        """Refuse unless this hold sets money aside.

        Raises: HoldUnknown, HoldClosed.
        """
        if self._hold(hold_id).released:
            raise HoldClosed(hold_id=hold_id)

    def resize_hold(self, *, hold_id: HoldId, money: Money, now: datetime) -> list[HoldResized]:
        """Decide whether a hold may set aside `money` in all: growth must be available."""
        hold = self._hold(hold_id)
        self._need_amount(money, zero_allowed=True)
        if money == hold.money:
            return []
        if hold.released:
            raise HoldClosed(hold_id=hold_id)
        if money < hold.captured:
            raise HoldBelowCaptured(captured=hold.captured)
        if money > hold.money:
            self.need_available(money - hold.money)
        return [
            HoldResized(account_id=self.opened.account_id, hold_id=hold_id, money=money, at=now)
        ]

    def capture(self, usage: Usage, *, platform_id: TenantId, now: datetime) -> list[UsageCaptured]:
        """Decide what a usage window costs, and take it from the hold.

        A window is charged once: again on the same terms is nothing, on others a refusal. All
        captures of a hold together never exceed it. After its release the money is no longer
        set aside, so late use is taken from what is available, still within the hold's amount;
        where that does not cover it the capture is refused and may be tried again.
        """
        hold = self._hold(usage.hold_id)
        usage.check()
        if usage.price.currency != self.opened.currency:
            raise CurrencyMismatch(currency=self.opened.currency)
        entry_id = journal.usage_entry(usage.lease_id, usage.window, usage.correction)
        before = self.entries.get(entry_id)
        if before is not None:
            if not isinstance(before, UsageCaptured) or not usage.was(before):
                raise EntryRecordedOtherwise(entry_id=entry_id)
            return []
        if usage.gpu_millis == 0:
            return []
        rated = hold.rate(usage)
        if hold.released:
            self.need_available(rated[0])
        return [self._captured(entry_id, usage, rated, platform_id, now)]

    def _captured(
        self, entry_id: EntryId, usage: Usage, rated: Rated, platform_id: TenantId, now: datetime
    ) -> UsageCaptured:
        (charged, fee), own, currency = rated, self.opened.account_id, self.opened.currency
        return UsageCaptured(
            account_id=own,
            hold_id=usage.hold_id,
            entry_id=entry_id,
            correction=usage.correction,
            energy_mj=usage.energy_mj,
            lease_id=usage.lease_id,
            window=usage.window,
            gpu_millis=usage.gpu_millis,
            price=usage.price,
            fee_ppm=usage.fee_ppm,
            owners=usage.owners,
            item=usage.item,
            charged=charged,
            fee=fee,
            cost_centre=usage.cost_centre,
            postings=journal.usage_postings(
                payer=own,
                fees=fee_account(platform_id, currency),
                charged=charged,
                fee=fee,
                earnings=[(earnings_account(use.owner_id, currency), use) for use in usage.owners],
            ),
            at=now,
        )

    def release_hold(self, *, hold_id: HoldId, now: datetime) -> list[HoldReleased]:
        """Decide what a release gives back: what is left of the hold, once."""
        hold = self._hold(hold_id)
        if hold.released:
            return []
        return [
            HoldReleased(
                account_id=self.opened.account_id,
                hold_id=hold_id,
                money=hold.remaining,
                at=now,
            )
        ]

    def receive_compensation(
        self, *, lease_id: LeaseId, owner_id: TenantId, money: Money, now: datetime
    ) -> list[CompensationPaid]:
        """Decide what a reclaiming owner pays this account: the fee agreed, once per lease."""
        self._need_paying()
        self._need_amount(money)
        own, earnings = self.opened.account_id, earnings_account(owner_id, money.currency)
        entry = CompensationPaid(
            account_id=own,
            entry_id=journal.compensation_entry(lease_id, owner_id),
            lease_id=lease_id,
            owner_id=owner_id,
            money=money,
            postings=journal.transfer(source=earnings, target=own, money=money),
            at=now,
        )
        return self._once(entry)

    def _once(self, entry: EntryT) -> list[EntryT]:
        """Return the entry if its id is new, nothing if it is recorded just so already."""
        before = self.entries.get(entry.entry_id)
        if before is None:
            return [entry]
        if replace(before, at=entry.at) != entry:
            raise EntryRecordedOtherwise(entry_id=entry.entry_id)
        return []

    def _hold(self, hold_id: HoldId) -> Hold:
        if hold_id not in self.holds:
            raise HoldUnknown(hold_id=hold_id)
        return self.holds[hold_id]

    def _need_paying(self) -> None:
        if self.opened.kind not in PAYING_KINDS:
            raise AccountCannotPay(kind=self.opened.kind)

    def _need_amount(self, money: Money, *, zero_allowed: bool = False) -> None:
        if money.currency != self.opened.currency:
            raise CurrencyMismatch(currency=self.opened.currency)
        if money.nanos < 0 or (money.nanos == 0 and not zero_allowed):
            raise AmountNotPositive()
        if money.nanos > NANOS_MAX:
            raise AmountTooLarge(most=Money(NANOS_MAX, self.opened.currency))

    def need_available(self, money: Money) -> None:
        """Refuse more than may be spent, or than a table could hold. Raises: FundsInsufficient."""
        overdraft = NANOS_MAX if self.overdraft_nanos is None else self.overdraft_nanos
        spendable = min(self.available.nanos + overdraft, NANOS_MAX - self.held.nanos)
        if money.nanos > spendable:
            raise FundsInsufficient(needed=money, spendable=Money(spendable, money.currency))


def open_account(account: Account | None, terms: AccountOpened) -> list[AccountOpened]:
    """Decide whether an account may be opened on these terms: once."""
    need_text(terms.title, length_max=TEXT_LENGTH_MAX)
    if not CURRENCY.fullmatch(terms.currency):
        raise CurrencyUnknown(given=terms.currency[:40])
    _check_overdraft(terms.kind, terms.overdraft_nanos)
    if account is None:
        return [terms]
    if replace(account.opened, at=terms.at) != terms:
        raise AccountOpenedOtherwise(account_id=terms.account_id)
    return []


def _check_overdraft(kind: AccountKind, overdraft_nanos: int | None) -> None:
    if overdraft_nanos is None and kind == "prepaid":
        raise PrepaidUnlimited()
    if overdraft_nanos is not None and not 0 <= overdraft_nanos <= NANOS_MAX:
        raise OverdraftNegative() if overdraft_nanos < 0 else AmountTooLarge()
