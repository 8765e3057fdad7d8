"""What may be asked about invoices that others pay: payments, write-offs, credit of the account."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from ledger.commands.bills import bill_among
from ledger.commands.money import opening_account
from ledger.domain import payments, receivables, returns, stopped_credit
from ledger.domain.account_ids import bad_debts_account, cash_account
from ledger.domain.accounts import Account, AccountUnknown
from ledger.domain.event import Event
from ledger.domain.ids import AccountId, TenantId, UserId
from ledger.domain.invoices import Invoices
from ledger.domain.journal import payment_entry, reference_name
from ledger.domain.money import Money
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.receivable_events import Left, WriteOffApproved
from ledger.domain.receivables import Bill, Receivable
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from ledger.eventstore.together import Part, record_together

Deciding = Callable[[Receivable | None], Sequence[Event]]


class Step(Protocol):
    """What the clock brings about for an invoice."""

    def __call__(
        self, store: EventStore, invoice_id: UUID, *, by: Meta, now: datetime
    ) -> Position: ...


def bill_of(store: EventStore, invoice_id: UUID, *, issuer_id: TenantId = PLATFORM_ID) -> Bill:
    """Return an invoice, and what was credited of it.

    Raises: InvoiceUnknown.
    """
    return bill_among(load(store, Invoices, issuer_id), invoice_id)


def enter_payment(
    store: EventStore,
    invoice_id: UUID,
    *,
    money: Money | None,
    reference: str,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Enter a transfer that pays an invoice: the amount is on its account, once for its reference.

    money: None: all that is owed.
    Raises: InvoiceUnknown, NotReceivable, NothingOwed, PaysTooMuch, PaymentUnnamed,
        PaymentRecorded, CurrencyMismatch, AmountNotPositive, TextUnreadable.
    """
    bill = bill_of(store, invoice_id)
    account_id, issued = bill.issued.account_id, bill.issued
    state = load(store, Receivable, invoice_id) or Receivable()
    paid = money or state.left(bill)
    before = state.paid.get(reference_name(reference))
    if money is None and before is not None:
        paid = before.money
    if not reference_name(reference):
        raise payments.PaymentUnnamed()
    entry_id = payment_entry(account_id, reference)
    cash = cash_account(issued.issuer_id, issued.currency)
    made: list[Event] = []

    def decide(known: Receivable | None) -> Sequence[Event]:
        made[:] = receivables.pay(
            known,
            bill,
            entry_id=entry_id,
            money=paid,
            reference=reference,
            by_user=user_id,
            now=now,
        )
        return made

    def add(account: Account | None) -> Sequence[Event]:
        if not made:
            return []
        return payments.credit(
            _need(account, account_id), money=paid, reference=reference, cash=cash, now=now
        )

    by = by.step(f"invoice-paid:{invoice_id}:{reference}:{money}")
    parts = [Part(Receivable, invoice_id, decide, by), Part(Account, account_id, add, by)]
    return record_together(store, parts, whole=True)[0]


def post_payment(
    store: EventStore,
    invoice_id: UUID,
    *,
    intent: str,
    money: Money,
    by: Meta,
    now: datetime,
) -> Position:
    """Post a payment of an invoice that the payment service confirmed, once for its `intent`.

    Raises: InvoiceUnknown, NotReceivable, CurrencyMismatch.
    """
    bill = bill_of(store, invoice_id)
    account_id, issued = bill.issued.account_id, bill.issued
    entry_id = returns.intent_entry(account_id, intent)
    cash = cash_account(issued.issuer_id, issued.currency)

    def decide(known: Receivable | None) -> Sequence[Event]:
        return receivables.pay(
            known, bill, entry_id=entry_id, money=money, reference=intent, by_user=None, now=now
        )

    def add(account: Account | None) -> Sequence[Event]:
        return _need(account, account_id).add_funds(
            entry_id=entry_id, money=money, reference=intent, cash=cash, now=now
        )

    parts = [Part(Receivable, invoice_id, decide, by), Part(Account, account_id, add, by)]
    return record_together(store, parts, whole=True)[0]


def ask_write_off(
    store: EventStore,
    invoice_id: UUID,
    *,
    write_off_id: UUID,
    reason: str,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Ask to give up what is owed of an invoice; somebody else approves.

    Raises: InvoiceUnknown, and what `receivables.ask_write_off` raises.
    """
    bill = bill_of(store, invoice_id)
    return _record(
        store,
        invoice_id,
        lambda known: receivables.ask_write_off(
            known, bill, write_off_id=write_off_id, reason=reason, by=user_id, now=now
        ),
        by=by.step(f"write-off:{invoice_id}:{reason}"),
    )


def approve_write_off(
    store: EventStore, invoice_id: UUID, *, user_id: UserId, by: Meta, now: datetime
) -> Position:
    """Give up what somebody else asked to, with the entry that says so.

    Raises: InvoiceUnknown, WriteOffUnknown, SecondPersonNeeded, NothingOwed.
    """
    bill = bill_of(store, invoice_id)
    issued = bill.issued
    state = load(store, Receivable, invoice_id)
    reason = state.asked.reason if state is not None and state.asked is not None else ""
    bad_debts = bad_debts_account(issued.issuer_id, issued.currency)
    made: list[WriteOffApproved] = []
    as_it_is: list[Bill] = []

    def read(known: Invoices | None) -> Sequence[Event]:
        as_it_is[:] = [bill_among(known, invoice_id)]
        return []

    def decide(known: Receivable | None) -> Sequence[Event]:
        made[:] = receivables.approve_write_off(known, as_it_is[0], by=user_id, now=now)
        return made

    def post(account: Account | None) -> Sequence[Event]:
        return [
            entry
            for each in made
            for entry in receivables.entries_of_write_off(
                _need(account, issued.account_id),
                each,
                number=issued.number,
                reason=reason,
                bad_debts=bad_debts,
                now=now,
            )
        ]

    by = by.step(f"write-off-approved:{invoice_id}")
    parts = [
        opening_account(
            account_id=bad_debts,
            tenant_id=issued.issuer_id,
            kind="bad-debts",
            title="Invoices that were written off",
            currency=issued.currency,
            by=by,
            now=now,
        ),
        # A credit note that comes in between lowers what is owed: then this is asked anew.
        Part(Invoices, issued.issuer_id, read, by, holds=True),
        Part(Receivable, invoice_id, decide, by),
        Part(Account, issued.account_id, post, by),
    ]
    return record_together(store, parts, whole=True)[2]


def decline_write_off(
    store: EventStore, invoice_id: UUID, *, user_id: UserId, by: Meta, now: datetime
) -> Position:
    """Give nothing up; who asked may take it back like this.

    Raises: InvoiceUnknown, WriteOffUnknown.
    """
    bill = bill_of(store, invoice_id)
    return _record(
        store,
        invoice_id,
        lambda known: receivables.decline_write_off(known, bill, by=user_id, now=now),
        by=by.step(f"write-off-declined:{invoice_id}"),
    )


# --- what the payment service and the clock say -----------------------------------------------


def note_handed_over(
    store: EventStore, invoice_id: UUID, *, reference: str, url: str, by: Meta, now: datetime
) -> Position:
    """Note that the payment service has an invoice."""
    bill = bill_of(store, invoice_id)
    return _record(
        store,
        invoice_id,
        lambda known: receivables.hand_over(known, bill, reference=reference, url=url, now=now),
        by=by,
    )


def note_not_handed_over(
    store: EventStore, invoice_id: UUID, *, reason: str, by: Meta, now: datetime
) -> Position:
    """Note that the payment service does not take an invoice."""
    bill = bill_of(store, invoice_id)
    return _record(
        store,
        invoice_id,
        lambda known: receivables.not_handed_over(known, bill, reason=reason, now=now),
        by=by,
    )


def note_payment_failed(
    store: EventStore, invoice_id: UUID, *, reason: str, by: Meta, now: datetime
) -> Position:
    """Note that a try to pay an invoice came to nothing."""
    bill = bill_of(store, invoice_id)
    return _record(
        store,
        invoice_id,
        lambda known: receivables.fail(known, bill, reason=reason, now=now),
        by=by,
    )


def note_collection_ended(
    store: EventStore, invoice_id: UUID, *, why: Left, by: Meta, now: datetime
) -> Position:
    """Note that the payment service collects an invoice no longer."""
    bill = bill_of(store, invoice_id)
    return _record(
        store,
        invoice_id,
        lambda known: receivables.end_collection(known, bill, why=why, now=now),
        by=by,
    )


def left_of(store: EventStore, invoice_id: UUID) -> Money:
    """Return what is owed of an invoice, by its streams. Raises: InvoiceUnknown."""
    return (load(store, Receivable, invoice_id) or Receivable()).left(bill_of(store, invoice_id))


def note_collection_lowered(
    store: EventStore, invoice_id: UUID, *, left: Money, by: Meta, now: datetime
) -> Position:
    """Note that the payment service collects no more of an invoice than this."""
    bill = bill_of(store, invoice_id)
    return _record(
        store,
        invoice_id,
        lambda known: receivables.lower_collection(known, bill, left=left, now=now),
        by=by,
    )


def note_overdue(store: EventStore, invoice_id: UUID, *, by: Meta, now: datetime) -> Position:
    """Note that an invoice was not paid by its day, if so; once."""
    bill = bill_of(store, invoice_id)
    return _record(
        store, invoice_id, lambda known: receivables.fall_due(known, bill, now=now), by=by
    )


def stop_credit(store: EventStore, invoice_id: UUID, *, by: Meta, now: datetime) -> Position:
    """Keep new bids from the account of an invoice that is overdue for long; once."""
    return _of_account(store, invoice_id, stopped_credit.stop_credit, by=by, now=now)


def resume_credit(store: EventStore, invoice_id: UUID, *, by: Meta, now: datetime) -> Position:
    """Let an invoice that is settled stand in the way of bids no longer."""
    return _of_account(store, invoice_id, stopped_credit.resume_credit, by=by, now=now)


def _of_account(
    store: EventStore,
    invoice_id: UUID,
    rule: Callable[..., Sequence[Event]],
    *,
    by: Meta,
    now: datetime,
) -> Position:
    bill = bill_of(store, invoice_id)
    state = load(store, Receivable, invoice_id)
    account_id = bill.issued.account_id

    def decide(account: Account | None) -> Sequence[Event]:
        return rule(_need(account, account_id), state, bill, now=now)

    return record(store, Account, account_id, decide, by=by)


def _record(store: EventStore, invoice_id: UUID, decide: Deciding, *, by: Meta) -> Position:
    return record(store, Receivable, invoice_id, decide, by=by)


def _need(account: Account | None, account_id: AccountId) -> Account:
    if account is None:
        raise AccountUnknown(account_id=account_id)
    return account
