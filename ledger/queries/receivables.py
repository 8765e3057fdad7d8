"""Invoices that others pay, as one actor may see them."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet

from ledger.access import Actor, visible
from ledger.domain.invoices import InvoiceUnknown
from ledger.domain.receivables import NotReceivable
from ledger.models import ReceivableRow
from ledger.queries.invoices import invoice

FIRST_DUE = ("due_at", "number", "invoice_id")


def receivables(actor: Actor, *, state: str = "") -> QuerySet[ReceivableRow]:
    """Return invoices that the actor's organisation pays or issued. state: as `state_of` says."""
    rows = visible(actor, ReceivableRow)
    if state == "overdue":
        return rows.filter(state="open", overdue_at__isnull=False)
    return rows.filter(state=state) if state else rows


def state_of(row: ReceivableRow) -> str:
    """Return how an invoice stands: open, overdue, paid, credited or written-off."""
    return "overdue" if row.state == "open" and row.overdue_at is not None else row.state


def receivable(actor: Actor, number: str) -> ReceivableRow:
    """Return what is owed of an invoice.

    Raises: InvoiceUnknown, also for one that the actor may not see; NotReceivable.
    """
    row = invoice(actor, number)
    found = ReceivableRow.objects.filter(pk=row.pk).first()
    if found is None:
        if row.kind == "invoice":
            raise InvoiceUnknown(number=number[:40])
        raise NotReceivable(number=row.number)
    return found


def receivable_of(actor: Actor, invoice_id: UUID) -> ReceivableRow | None:
    """Return what is owed of an invoice; None: nobody pays it, or it is not the actor's to see."""
    return visible(actor, ReceivableRow).filter(pk=invoice_id).first()


def states_of(actor: Actor, invoice_ids: list[UUID]) -> dict[UUID, ReceivableRow]:
    """Return those of these invoices that are to be paid, or were."""
    return visible(actor, ReceivableRow).in_bulk(invoice_ids)
