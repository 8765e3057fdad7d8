"""An invoice as it stands among its issuer's, for what is decided about it."""

from __future__ import annotations

from uuid import UUID

from ledger.domain.invoices import Invoices, InvoiceUnknown
from ledger.domain.receivables import Bill


def bill_among(known: Invoices | None, invoice_id: UUID) -> Bill:
    """Return an invoice, and what was credited of it. Raises: InvoiceUnknown."""
    issued = known.invoices.get(invoice_id) if known is not None else None
    if known is None or issued is None:
        raise InvoiceUnknown(invoice_id=invoice_id)
    credited = sum(note.total_nanos for note in known.credited.get(invoice_id, ()))
    return Bill(issued, credited)
