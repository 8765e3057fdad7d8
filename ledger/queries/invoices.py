"""Invoices and credit notes as one actor may see them, and which invoice an entry is on."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet

from ledger.access import Actor, visible
from ledger.domain.credit_notes import CreditNoteUnknown
from ledger.domain.invoices import InvoiceUnknown
from ledger.models import (
    BillingDetailsRow,
    CreditNoteRow,
    DocumentFile,
    InvoiceRow,
    JournalEntryRow,
)

NEWEST_INVOICES = ("-period", "-issued_at", "-number", "invoice_id")
NEWEST_CREDIT_NOTES = ("-asked_at", "credit_id")


def invoices(actor: Actor) -> QuerySet[InvoiceRow]:
    """Return the invoices that the actor's organisation got or issued; see `visible`."""
    return visible(actor, InvoiceRow)


def credit_notes(actor: Actor) -> QuerySet[CreditNoteRow]:
    """Return credit notes of invoices that the actor may see.

    Those that are asked for or were declined are the issuer's affair.
    """
    rows = visible(actor, CreditNoteRow)
    return rows if actor.is_platform else rows.filter(state="issued")


def invoice(actor: Actor, number: str) -> InvoiceRow:
    """Return an invoice by its number.

    Raises: InvoiceUnknown, also for one that the actor may not see.
    """
    found = visible(actor, InvoiceRow).filter(number=number).first()
    if found is None:
        raise InvoiceUnknown(number=number[:40])
    return found


def credit_note(actor: Actor, credit_id: UUID) -> CreditNoteRow:
    """Return a credit note.

    Raises: CreditNoteUnknown, also for one that the actor may not see.
    """
    found = credit_notes(actor).filter(pk=credit_id).first()
    if found is None:
        raise CreditNoteUnknown(credit_id=credit_id)
    return found


def credit_note_numbered(actor: Actor, number: str) -> CreditNoteRow:
    """Return a credit note by its number.

    Raises: InvoiceUnknown, also for one that the actor may not see.
    """
    found = credit_notes(actor).filter(number=number).exclude(number="").first()
    if found is None:
        raise InvoiceUnknown(number=number[:40])
    return found


def billing_details(actor: Actor) -> QuerySet[BillingDetailsRow]:
    """Return how the actor's organisation and its units are named on invoices."""
    return visible(actor, BillingDetailsRow)


def file_of(document_id: UUID) -> bytes | None:
    """Return the file that was put away for a document; None: there is none yet.

    Whoever asks has been shown the document's row before.
    """
    found = DocumentFile.objects.filter(pk=document_id).first()
    return None if found is None else bytes(found.data)


@dataclass(frozen=True, slots=True)
class _Cover:
    """What the invoices of an account have in them, in the order of their months."""

    periods: list[str]
    as_of: list[int]
    numbers: list[str]


class InvoiceNumbers:
    """Which invoice an entry is on, as it stood at a position: for exports.

    A receipt is no invoice: what a prepaid account used bills nothing. Loads the numbers of all
    invoices once, so that a million entries are looked up without asking the database again.
    """

    def __init__(self, actor: Actor, *, position: int) -> None:
        rows = invoices(actor).filter(position__lte=position)
        covers: dict[UUID, list[tuple[str, int, str]]] = defaultdict(list)
        self._kinds: dict[str, str] = {}
        wanted = ("account_id", "period", "as_of", "number", "kind")
        for account_id, period, as_of, number, kind in rows.values_list(*wanted).iterator():
            covers[account_id].append((period, as_of, number))
            self._kinds[number] = kind
        self._covers = {
            account_id: _Cover(*map(list, zip(*sorted(found), strict=True)))
            for account_id, found in covers.items()
        }

    @property
    def are_there(self) -> bool:
        """Tell if there is any invoice at all."""
        return bool(self._covers)

    def of(self, account_id: UUID, *, period: str, position: int) -> str:
        """Return the number of the invoice that an entry is on; empty: none, or a receipt.

        period: the month in which the entry counts. position: where it stands in the store.
        """
        number = self.document_of(account_id, period=period, position=position)
        return "" if self._kinds.get(number) == "receipt" else number

    def document_of(self, account_id: UUID, *, period: str, position: int) -> str:
        """Return the number of the invoice or receipt that an entry is on; empty: none."""
        cover = self._covers.get(account_id)
        if cover is None or period < cover.periods[0]:
            return ""
        for index in range(bisect_left(cover.periods, period), len(cover.periods)):
            if position <= cover.as_of[index]:
                return cover.numbers[index]
        return ""


def invoice_of(actor: Actor, entry_id: UUID, *, position: int) -> str:
    """Return the number of the invoice, or of the credit note, that an entry is on; empty: none.

    Entries for rounding, tax and credit carry the number of their document as their reference.
    """
    entry = JournalEntryRow.objects.filter(pk=entry_id).first()
    if entry is None:
        return ""
    if entry.kind in ("rounding", "tax", "credit"):
        return entry.reference
    numbers = InvoiceNumbers(actor, position=position)
    return numbers.of(entry.account_id, period=entry.period, position=entry.position)
