"""What invoices and credit notes do to the account that pays: entries that name their document.

An account is charged to the nano-unit as it is used. Its invoice is in whole cents, so the entry
`rounding` moves the account by the difference, and what was used, rounding and tax together are the
invoice's total to the nano-unit. A receipt's account has paid exactly what it used: it gets no
rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID, uuid5

from ledger.domain import journal
from ledger.domain.account_ids import fee_account, rounding_account, tax_account
from ledger.domain.accounts import Account, EntryRecordedOtherwise
from ledger.domain.events import InvoiceCredited, InvoiceRounded, Posting, TaxCharged
from ledger.domain.ids import AccountId, EntryId, TenantId
from ledger.domain.invoice_events import CreditNoteIssued, InvoiceIssued
from ledger.domain.money import Money

InvoiceEntry = InvoiceRounded | TaxCharged | InvoiceCredited


def rounding_entry(invoice_id: UUID) -> EntryId:
    """Return the id of the entry that rounds an account to its invoice."""
    return EntryId(uuid5(invoice_id, "rounding"))


def tax_entry(invoice_id: UUID) -> EntryId:
    """Return the id of the entry for the tax of an invoice."""
    return EntryId(uuid5(invoice_id, "tax"))


def credit_entry(credit_id: UUID) -> EntryId:
    """Return the id of the entry of a credit note."""
    return EntryId(uuid5(credit_id, "credit"))


def entries_of_invoice(
    account: Account, invoice: InvoiceIssued, *, platform_id: TenantId
) -> list[InvoiceEntry]:
    """Decide the entries of an invoice: rounding and tax, each once and where it is not zero.

    Raises: FundsInsufficient where the account does not cover them, EntryRecordedOtherwise.
    """
    own, currency = account.opened.account_id, invoice.currency
    entries: list[InvoiceEntry] = []
    residue = invoice.net_nanos - invoice.exact_nanos
    if residue and invoice.kind != "receipt":
        entry_id, money = rounding_entry(invoice.invoice_id), Money(residue, currency)
        entries.append(
            InvoiceRounded(
                account_id=own,
                entry_id=entry_id,
                invoice_id=invoice.invoice_id,
                number=invoice.number,
                period=invoice.period,
                money=money,
                postings=_charge(own, rounding_account(platform_id, currency), money),
                at=invoice.at,
            )
        )
    if invoice.tax_nanos:
        entry_id, money = tax_entry(invoice.invoice_id), Money(invoice.tax_nanos, currency)
        entries.append(
            TaxCharged(
                account_id=own,
                entry_id=entry_id,
                invoice_id=invoice.invoice_id,
                number=invoice.number,
                period=invoice.period,
                money=money,
                postings=_charge(own, tax_account(platform_id, currency), money),
                at=invoice.at,
            )
        )
    new = _not_recorded(account, entries)
    down = sum(line.nanos for each in new for line in each.postings if line.account_id == own)
    if down < 0:
        account.need_available(Money(-down, currency))
    return new


def entries_of_credit(
    account: Account, note: CreditNoteIssued, *, number: str, platform_id: TenantId
) -> list[InvoiceEntry]:
    """Decide the entry of a credit note: the account up, what the platform and the tax got down.

    number: of the invoice that it corrects.
    """
    own, currency = account.opened.account_id, note.currency
    entry = InvoiceCredited(
        account_id=own,
        entry_id=credit_entry(note.credit_id),
        invoice_id=note.invoice_id,
        credit_id=note.credit_id,
        number=note.number,
        corrects=number,
        money=Money(note.total_nanos, currency),
        tax=Money(note.tax_nanos, currency),
        postings=journal.balanced(
            [
                Posting(own, note.total_nanos),
                Posting(fee_account(platform_id, currency), -note.net_nanos),
                Posting(tax_account(platform_id, currency), -note.tax_nanos),
            ]
        ),
        at=note.at,
    )
    return _not_recorded(account, [entry])


def _charge(payer: AccountId, other: AccountId, money: Money) -> tuple[Posting, ...]:
    return journal.balanced([Posting(payer, -money.nanos), Posting(other, money.nanos)])


def _not_recorded(account: Account, entries: Sequence[InvoiceEntry]) -> list[InvoiceEntry]:
    """Return the entries that are new. Raises: EntryRecordedOtherwise."""
    new = []
    for entry in entries:
        before = account.entries.get(entry.entry_id)
        if before is None:
            new.append(entry)
        elif replace(before, at=entry.at) != entry:
            raise EntryRecordedOtherwise(entry_id=entry.entry_id)
    return new
