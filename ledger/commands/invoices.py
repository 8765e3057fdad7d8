"""What may be asked about invoices: to issue one, to credit it, to name who is on them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from ledger.commands.bills import bill_among
from ledger.commands.money import opening_account
from ledger.domain import account_ids, invoice_entries
from ledger.domain.accounts import Account, AccountUnknown
from ledger.domain.billing_details import BillingDetails, set_details
from ledger.domain.closing import Periods
from ledger.domain.event import Event
from ledger.domain.events import AccountKind
from ledger.domain.ids import TenantId, UserId
from ledger.domain.invoice_events import (
    CreditedLine,
    CreditNoteIssued,
    InvoiceIssued,
    PartyDetails,
    TaxScheme,
)
from ledger.domain.invoices import Draft, Invoices, InvoiceUnknown, invoice_id_of
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.receivables import Receivable
from ledger.domain.refusal import Refusal
from ledger.domain.written_off import need_not_written_off
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from ledger.eventstore.together import Part, record_together

ACCOUNTS: tuple[tuple[AccountKind, str], ...] = (
    ("rounding", "Rounding of invoices"),
    ("tax", "Tax on invoices"),
)


class MonthOpenStill(Refusal):
    """That month is open: more may be charged in it.

    Soft-close it first, once it is over.
    """


def set_billing_details(
    store: EventStore,
    *,
    party_id: UUID,
    tenant_id: TenantId,
    details: PartyDetails,
    scheme: TaxScheme,
    due_days: int,
    issues_by_itself: bool,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Say how a tenant or a business unit is named on invoices from now on.

    Raises: what `ledger.domain.billing_details.set_details` raises.
    """

    def decide(state: BillingDetails | None) -> Sequence[Event]:
        return set_details(
            state,
            party_id=party_id,
            tenant_id=tenant_id,
            details=details,
            scheme=scheme,
            due_days=due_days,
            issues_by_itself=issues_by_itself,
            by=user_id,
            now=now,
        )

    return record(store, BillingDetails, party_id, decide, by=by)


def issue_invoice(
    store: EventStore,
    draft: Draft,
    *,
    issuer_id: TenantId = PLATFORM_ID,
    user_id: UserId | None,
    by: Meta,
    now: datetime,
) -> tuple[UUID, Position]:
    """Issue the invoice of a month of an account, with the entries for rounding and tax.

    Invoice and entries are one append where the store can do that; elsewhere the entries follow by
    `post_invoice`.

    Returns: its id, and the position at which it is issued.
    Raises: MonthOpenStill, AccountUnknown, FundsInsufficient, and what `Invoices.issue` raises.
    """
    periods = load(store, Periods, PLATFORM_ID) or Periods()
    if periods.month(draft.period).state == "open":
        raise MonthOpenStill(period=str(draft.period))
    invoice_id = invoice_id_of(draft.account_id, draft.period)
    issued: list[InvoiceIssued] = []

    def issue(known: Invoices | None) -> Sequence[Event]:
        issued[:] = (known or Invoices()).issue(draft, issuer_id=issuer_id, by=user_id, now=now)
        return issued

    def post(account: Account | None) -> Sequence[Event]:
        if account is None:
            raise AccountUnknown(account_id=draft.account_id)
        return [
            entry
            for each in issued
            for entry in invoice_entries.entries_of_invoice(account, each, platform_id=issuer_id)
        ]

    of_this = by.step(f"invoice:{invoice_id}")
    positions = record_together(
        store,
        [
            *_opening_accounts(issuer_id, draft.currency, by=by, now=now),
            Part(Invoices, issuer_id, issue, of_this),
            Part(Account, draft.account_id, post, of_this),
        ],
        whole=True,
    )
    return invoice_id, positions[-2]


def post_invoice(store: EventStore, invoice: InvoiceIssued, *, by: Meta) -> Position:
    """Post the entries of an invoice that has none yet; nothing where they are there."""

    def post(account: Account | None) -> Sequence[Event]:
        assert account is not None, "an account is invoiced after it was opened"
        return invoice_entries.entries_of_invoice(account, invoice, platform_id=invoice.issuer_id)

    return record(store, Account, invoice.account_id, post, by=by)


def ask_credit_note(
    store: EventStore,
    *,
    credit_id: UUID,
    invoice_id: UUID,
    lines: Sequence[CreditedLine],
    reason: str,
    issuer_id: TenantId = PLATFORM_ID,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Ask to credit lines of an invoice, or with no lines all that is left of it.

    Raises: what `Invoices.ask_credit` raises.
    """

    def decide(known: Invoices | None) -> Sequence[Event]:
        return (known or Invoices()).ask_credit(
            credit_id=credit_id,
            invoice_id=invoice_id,
            lines=lines,
            reason=reason,
            by=user_id,
            now=now,
        )

    return record(store, Invoices, issuer_id, decide, by=by)


def approve_credit_note(
    store: EventStore,
    credit_id: UUID,
    *,
    issuer_id: TenantId = PLATFORM_ID,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Issue a credit note that somebody else asked for, with the entry that gives it back.

    Raises: CreditNoteUnknown, SecondPersonNeeded, WrittenOffBefore.
    """
    known = load(store, Invoices, issuer_id) or Invoices()
    of = known.asked.get(credit_id) or known.credits.get(credit_id)
    if of is None:
        known.approve_credit(credit_id, by=user_id, now=now)  # says what is wrong
        raise InvoiceUnknown(invoice_id=credit_id)
    invoice = known.invoices[of.invoice_id]
    issued: list[CreditNoteIssued] = []
    of_payer: list[Receivable | None] = []

    def read(receivable: Receivable | None) -> Sequence[Event]:
        of_payer[:] = [receivable]
        return []

    def issue(state: Invoices | None) -> Sequence[Event]:
        issued[:] = (state or Invoices()).approve_credit(credit_id, by=user_id, now=now)
        for note in issued:
            need_not_written_off(of_payer[0], bill_among(state, invoice.invoice_id), note)
        return issued

    def post(account: Account | None) -> Sequence[Event]:
        assert account is not None, "an account is invoiced after it was opened"
        return [
            entry
            for each in issued
            for entry in invoice_entries.entries_of_credit(
                account, each, number=invoice.number, platform_id=issuer_id
            )
        ]

    of_this = by.step(f"credit:{credit_id}")
    [_, position, _] = record_together(
        store,
        [
            # A write-off that comes in between takes of what is left: then this is asked anew.
            Part(Receivable, invoice.invoice_id, read, of_this, holds=True),
            Part(Invoices, issuer_id, issue, of_this),
            Part(Account, invoice.account_id, post, of_this),
        ],
        whole=True,
    )
    return position


def post_credit_note(store: EventStore, note: CreditNoteIssued, *, by: Meta) -> Position:
    """Post the entry of a credit note that has none yet; nothing where it is there."""
    known = load(store, Invoices, note.issuer_id)
    assert known is not None, "the note is one of them"
    number = known.invoices[note.invoice_id].number

    def post(account: Account | None) -> Sequence[Event]:
        assert account is not None, "an account is invoiced after it was opened"
        return invoice_entries.entries_of_credit(
            account, note, number=number, platform_id=note.issuer_id
        )

    return record(store, Account, note.account_id, post, by=by)


def decline_credit_note(
    store: EventStore,
    credit_id: UUID,
    *,
    issuer_id: TenantId = PLATFORM_ID,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Issue no credit note; who asked may take it back like this. Raises: CreditNoteUnknown."""

    def decide(known: Invoices | None) -> Sequence[Event]:
        return (known or Invoices()).decline_credit(credit_id, by=user_id, now=now)

    return record(store, Invoices, issuer_id, decide, by=by)


def note_archived(
    store: EventStore,
    document_id: UUID,
    *,
    sha256: str,
    size: int,
    renderer: str,
    issuer_id: TenantId = PLATFORM_ID,
    by: Meta,
    now: datetime,
) -> Position:
    """Put on record what the file of a document is, once. Raises: InvoiceUnknown."""

    def decide(known: Invoices | None) -> Sequence[Event]:
        return (known or Invoices()).archive(
            document_id, sha256=sha256, size=size, renderer=renderer, now=now
        )

    return record(store, Invoices, issuer_id, decide, by=by)


def note_sent(
    store: EventStore,
    document_id: UUID,
    *,
    email: str,
    issuer_id: TenantId = PLATFORM_ID,
    by: Meta,
    now: datetime,
) -> Position:
    """Put on record to which address a document was sent, once. Raises: InvoiceUnknown."""

    def decide(known: Invoices | None) -> Sequence[Event]:
        return (known or Invoices()).note_sent(document_id, email=email, now=now)

    return record(store, Invoices, issuer_id, decide, by=by)


def _opening_accounts(issuer_id: TenantId, currency: str, *, by: Meta, now: datetime) -> list[Part]:
    """Return the opening of the accounts for rounding and tax; nothing where they are open."""
    ids = (
        account_ids.rounding_account(issuer_id, currency),
        account_ids.tax_account(issuer_id, currency),
    )
    return [
        opening_account(
            account_id=account_id,
            tenant_id=issuer_id,
            kind=kind,
            title=title,
            currency=currency,
            by=by,
            now=now,
        )
        for account_id, (kind, title) in zip(ids, ACCOUNTS, strict=True)
    ]
