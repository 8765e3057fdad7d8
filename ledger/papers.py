"""The files of documents: as they were put away, else as they will be."""

from __future__ import annotations

from ledger.documents import pdf_of
from ledger.documents.papers import credit_paper, invoice_paper
from ledger.domain.credit_notes import CreditNoteUnknown
from ledger.models import CreditNoteRow, InvoiceRow
from ledger.queries.invoices import file_of


def file_of_invoice(row: InvoiceRow) -> bytes:
    """Return the PDF of an invoice that whoever asks may see."""
    return file_of(row.pk) or pdf_of(invoice_paper(row))


def file_of_credit_note(row: CreditNoteRow, invoice: InvoiceRow) -> bytes:
    """Return the PDF of a credit note that whoever asks may see. invoice: what it corrects.

    Raises: CreditNoteUnknown for one that is not issued.
    """
    if row.state != "issued":
        raise CreditNoteUnknown(credit_id=row.pk)
    return file_of(row.pk) or pdf_of(credit_paper(row, invoice))
