"""An invoice from issue to its end: handed over, paid, overdue, given up.

What is owed of it is its total, less what was credited, paid and written off. Each payment counts
once for its reference; nothing is ever undone, since a payment too many is the account's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import ClassVar, assert_never
from uuid import UUID, uuid5

from ledger.domain import journal
from ledger.domain.accounts import Account, AmountNotPositive, CurrencyMismatch
from ledger.domain.closing import SecondPersonNeeded
from ledger.domain.holds import TEXT_LENGTH_MAX, need_text
from ledger.domain.ids import AccountId, EntryId, UserId
from ledger.domain.invoice_events import InvoiceIssued
from ledger.domain.journal import reference_name
from ledger.domain.money import Money
from ledger.domain.receivable_events import (
    CollectionEnded,
    CollectionLowered,
    InvoiceHandedOver,
    InvoiceNotHandedOver,
    InvoiceOverdue,
    InvoicePaid,
    InvoicePaymentDecided,
    InvoicePaymentFailed,
    InvoicePaymentTakenBack,
    InvoiceWrittenOff,
    Left,
    ReceivableEvent,
    WriteOffApproved,
    WriteOffAsked,
    WriteOffDeclined,
)
from ledger.domain.refusal import Invalid, Refusal, Unknown

BLOCKED_AFTER = timedelta(days=7)
"""So long after it was due an invoice that is not paid keeps new bids from its account."""
REASON_MAX = TEXT_LENGTH_MAX


class NotReceivable(Refusal):
    """Only an invoice to another organisation is paid.

    A receipt's account has paid as it used; an internal invoice is settled inside its organisation.
    """


class NothingOwed(Refusal):
    """Nothing is owed of this invoice any more."""


class PaysTooMuch(Refusal):
    """That is more than is owed of the invoice: `left`.

    Enter what is left of it; the rest belongs to another invoice, or to the account as funds.
    """


class WriteOffUnknown(Unknown):
    """Nobody asked to write this invoice off, or it was decided already."""


class WriteOffWaits(Refusal):
    """Somebody asked to write this invoice off already; it waits for a decision."""


class WriteOffReasonMissing(Invalid):
    """What is owed is given up for a reason, in words for whoever approves it."""


@dataclass(frozen=True, slots=True)
class TakenBack:
    """What a payer's bank took back. won: True: decided for us; False: against; None: open."""

    money: Money
    won: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receivable:
    """What became of one invoice. paid: by the name of the payment's reference.

    taken_back: payments that a payer's bank took back, by the dispute's id.

    asked: a write-off that waits for a second person. ended: why it is collected no longer.
    collected: what the payment service collects of it since that was lowered; None: all of it.
    """

    STREAM: ClassVar[str] = "receivable"

    reference: str = ""
    refused: str = ""
    paid: Mapping[str, InvoicePaid] = field(default_factory=dict)
    taken_back: Mapping[str, TakenBack] = field(default_factory=dict)
    failed: str = ""
    ended: Left | None = None
    collected: Money | None = None
    overdue: InvoiceOverdue | None = None
    asked: WriteOffAsked | None = None
    written_off_nanos: int = 0

    @classmethod
    def evolve(cls, state: Receivable | None, event: ReceivableEvent, /) -> Receivable:
        """Return the receivable after `event`."""
        state = state or cls()
        match event:
            case InvoiceHandedOver():
                return replace(state, reference=event.reference)
            case InvoiceNotHandedOver():
                return replace(state, refused=event.reason)
            case InvoicePaid():
                paid = {**state.paid, reference_name(event.reference): event}
                return replace(state, paid=paid, failed="")
            case InvoicePaymentFailed():
                return replace(state, failed=event.reason)
            case InvoicePaymentTakenBack():
                taken = {**state.taken_back, event.dispute: TakenBack(event.money)}
                return replace(state, taken_back=taken)
            case InvoicePaymentDecided():
                decided = TakenBack(event.money, won=event.won)
                return replace(state, taken_back={**state.taken_back, event.dispute: decided})
            case CollectionEnded():
                return replace(state, ended=event.why)
            case CollectionLowered():
                return replace(state, collected=event.left)
            case InvoiceOverdue():
                return replace(state, overdue=event)
            case WriteOffAsked():
                return replace(state, asked=event)
            case WriteOffDeclined():
                return replace(state, asked=None)
            case WriteOffApproved():
                gone = state.written_off_nanos + event.money.nanos
                return replace(state, asked=None, written_off_nanos=gone)
            case _:
                assert_never(event)

    def left(self, bill: Bill) -> Money:
        """Return what is still owed; never below zero."""
        gone = sum(each.money.nanos for each in self.paid.values()) + self.written_off_nanos
        gone -= sum(each.money.nanos for each in self.taken_back.values() if not each.won)
        return Money(max(0, bill.owed_nanos - gone), bill.issued.currency)


@dataclass(frozen=True, slots=True)
class Bill:
    """An invoice as it stands among its issuer's: what it said, and what was credited of it."""

    issued: InvoiceIssued
    credited_nanos: int

    @property
    def owed_nanos(self) -> int:
        """Return its total without what was credited."""
        return self.issued.total_nanos - self.credited_nanos

    @property
    def due_at(self) -> datetime:
        """Return when it has to be paid."""
        return self.issued.at + timedelta(days=self.issued.due_days)


def need_receivable(bill: Bill) -> None:
    """Refuse what nobody pays. Raises: NotReceivable."""
    if bill.issued.kind != "invoice":
        raise NotReceivable(number=bill.issued.number)


def hand_over(
    state: Receivable | None, bill: Bill, *, reference: str, url: str, now: datetime
) -> list[InvoiceHandedOver]:
    """Note that the payment service has it, once."""
    if state is not None and state.reference:
        return []
    return [
        InvoiceHandedOver(
            invoice_id=bill.issued.invoice_id,
            account_id=bill.issued.account_id,
            reference=reference,
            url=url,
            at=now,
        )
    ]


def not_handed_over(
    state: Receivable | None, bill: Bill, *, reason: str, now: datetime
) -> list[InvoiceNotHandedOver]:
    """Note that the payment service does not take it, once."""
    if state is not None and (state.reference or state.refused):
        return []
    return [
        InvoiceNotHandedOver(
            invoice_id=bill.issued.invoice_id,
            account_id=bill.issued.account_id,
            reason=reason[:REASON_MAX],
            at=now,
        )
    ]


def pay(
    state: Receivable | None,
    bill: Bill,
    *,
    entry_id: EntryId,
    money: Money,
    reference: str,
    by_user: UserId | None,
    now: datetime,
) -> list[InvoicePaid]:
    """Decide that a payment settles it, in full or in part; once for its reference.

    What the payment service took counts whatever is owed: it is there. Somebody who enters a
    transfer may have mistaken the invoice.

    Raises: NotReceivable, CurrencyMismatch, AmountNotPositive, NothingOwed, PaysTooMuch.
    """
    state = state or Receivable()
    need_receivable(bill)
    if reference_name(reference) in state.paid:
        return []
    if money.currency != bill.issued.currency:
        raise CurrencyMismatch(currency=bill.issued.currency)
    left = state.left(bill)
    if by_user is not None and left.nanos == 0:
        raise NothingOwed(number=bill.issued.number)
    if money.nanos <= 0:
        raise AmountNotPositive()
    if by_user is not None and money > left:
        raise PaysTooMuch(left=left)
    return [
        InvoicePaid(
            invoice_id=bill.issued.invoice_id,
            account_id=bill.issued.account_id,
            number=bill.issued.number,
            entry_id=entry_id,
            money=money,
            reference=reference,
            by_user=by_user,
            at=now,
        )
    ]


def fail(
    state: Receivable | None, bill: Bill, *, reason: str, now: datetime
) -> list[InvoicePaymentFailed]:
    """Note that a try to pay it came to nothing; each reason once until it is paid."""
    state = state or Receivable()
    reason = reason[:REASON_MAX]
    if state.failed == reason or state.left(bill).nanos == 0:
        return []
    return [
        InvoicePaymentFailed(
            invoice_id=bill.issued.invoice_id,
            account_id=bill.issued.account_id,
            number=bill.issued.number,
            reason=reason,
            at=now,
        )
    ]


def end_collection(
    state: Receivable | None, bill: Bill, *, why: Left, now: datetime
) -> list[CollectionEnded]:
    """Note that the payment service collects it no longer, once."""
    if state is not None and state.ended is not None:
        return []
    return [
        CollectionEnded(
            invoice_id=bill.issued.invoice_id,
            account_id=bill.issued.account_id,
            number=bill.issued.number,
            why=why,
            at=now,
        )
    ]


def lower_collection(
    state: Receivable | None, bill: Bill, *, left: Money, now: datetime
) -> list[CollectionLowered]:
    """Note that the payment service collects no more than `left`; once for each amount."""
    if state is not None and state.collected == left:
        return []
    return [
        CollectionLowered(
            invoice_id=bill.issued.invoice_id,
            account_id=bill.issued.account_id,
            number=bill.issued.number,
            left=left,
            at=now,
        )
    ]


def fall_due(state: Receivable | None, bill: Bill, *, now: datetime) -> list[InvoiceOverdue]:
    """Note that it was not paid by its day, once."""
    state = state or Receivable()
    left = state.left(bill)
    if bill.issued.kind != "invoice" or state.overdue is not None:
        return []
    if now < bill.due_at or left.nanos == 0:
        return []
    return [
        InvoiceOverdue(
            invoice_id=bill.issued.invoice_id,
            account_id=bill.issued.account_id,
            number=bill.issued.number,
            due_at=bill.due_at,
            left=left,
            blocks_at=max(bill.due_at, now) + BLOCKED_AFTER,
            at=now,
        )
    ]


# --- giving up what is owed, by two people ------------------------------------------------------


def ask_write_off(
    state: Receivable | None,
    bill: Bill,
    *,
    write_off_id: UUID,
    reason: str,
    by: UserId,
    now: datetime,
) -> list[WriteOffAsked]:
    """Ask to give up all that is still owed of it.

    Raises: NotReceivable, WriteOffReasonMissing, TextUnreadable, NothingOwed, WriteOffWaits.
    """
    state = state or Receivable()
    need_receivable(bill)
    reason = reason.strip()
    if not reason:
        raise WriteOffReasonMissing()
    need_text(reason, length_max=REASON_MAX)
    if state.asked is not None:
        if (state.asked.write_off_id, state.asked.asked_by) == (write_off_id, by):
            return []
        raise WriteOffWaits(number=bill.issued.number)
    left = state.left(bill)
    if left.nanos == 0:
        raise NothingOwed(number=bill.issued.number)
    return [
        WriteOffAsked(
            invoice_id=bill.issued.invoice_id,
            account_id=bill.issued.account_id,
            write_off_id=write_off_id,
            number=bill.issued.number,
            money=left,
            reason=reason,
            asked_by=by,
            at=now,
        )
    ]


def approve_write_off(
    state: Receivable | None, bill: Bill, *, by: UserId, now: datetime
) -> list[WriteOffApproved]:
    """Give up what somebody else asked to: what is owed of it now, at most what was asked.

    Raises: WriteOffUnknown, SecondPersonNeeded, NothingOwed.
    """
    asked = _asked(state, bill)
    if asked.asked_by == by:
        raise SecondPersonNeeded(number=bill.issued.number)
    assert state is not None
    money = min(asked.money, state.left(bill))
    if money.nanos == 0:
        raise NothingOwed(number=bill.issued.number)
    return [
        WriteOffApproved(
            invoice_id=bill.issued.invoice_id,
            account_id=bill.issued.account_id,
            write_off_id=asked.write_off_id,
            money=money,
            approved_by=by,
            at=now,
        )
    ]


def decline_write_off(
    state: Receivable | None, bill: Bill, *, by: UserId, now: datetime
) -> list[WriteOffDeclined]:
    """Give nothing up; who asked may take it back like this. Raises: WriteOffUnknown."""
    asked = _asked(state, bill)
    return [
        WriteOffDeclined(
            invoice_id=bill.issued.invoice_id,
            account_id=bill.issued.account_id,
            write_off_id=asked.write_off_id,
            declined_by=by,
            at=now,
        )
    ]


def write_off_entry(write_off_id: UUID) -> EntryId:
    """Return the entry by which what is owed is given up."""
    return EntryId(uuid5(write_off_id, "write-off"))


def entries_of_write_off(
    account: Account,
    approved: WriteOffApproved,
    *,
    number: str,
    reason: str,
    bad_debts: AccountId,
    now: datetime,
) -> list[InvoiceWrittenOff]:
    """Decide the entry of a write-off, once: the account up, the platform's bad debts down."""
    entry_id = write_off_entry(approved.write_off_id)
    if entry_id in account.entries:
        return []
    own = account.opened.account_id
    return [
        InvoiceWrittenOff(
            account_id=own,
            entry_id=entry_id,
            invoice_id=approved.invoice_id,
            number=number,
            reason=reason,
            money=approved.money,
            postings=journal.transfer(source=bad_debts, target=own, money=approved.money),
            at=now,
        )
    ]


def _asked(state: Receivable | None, bill: Bill) -> WriteOffAsked:
    if state is None or state.asked is None:
        raise WriteOffUnknown(number=bill.issued.number)
    return state.asked
