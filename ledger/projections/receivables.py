"""Rows of invoices that others pay. They are kept with the rows of invoices."""

from __future__ import annotations

from datetime import timedelta
from typing import get_args

from ledger.domain.invoice_events import CreditNoteIssued, InvoiceIssued
from ledger.domain.receivable_events import (
    CollectionEnded,
    CollectionLowered,
    CreditEvent,
    CreditStopped,
    InvoiceHandedOver,
    InvoiceNotHandedOver,
    InvoiceOverdue,
    InvoicePaid,
    InvoicePaymentDecided,
    InvoicePaymentFailed,
    InvoicePaymentTakenBack,
    ReceivableEvent,
    WriteOffApproved,
    WriteOffAsked,
    WriteOffDeclined,
)
from ledger.following import names_of
from ledger.models import ReceivableRow
from ledger.rows import Rows

TABLES = (ReceivableRow,)
ON = names_of(*get_args(ReceivableEvent), *get_args(CreditEvent))


def add_receivable(issued: InvoiceIssued, rows: Rows) -> None:
    """Note what is owed by an invoice to another organisation; of nothing else."""
    if issued.kind != "invoice":
        return
    rows.make(
        ReceivableRow,
        invoice_id=issued.invoice_id,
        number=issued.number,
        account_id=issued.account_id,
        tenant_id=issued.tenant_id,
        issuer_id=issued.issuer_id,
        currency=issued.currency,
        state="open" if issued.total_nanos > 0 else "paid",
        total_nanos=issued.total_nanos,
        credited_nanos=0,
        paid_nanos=0,
        written_off_nanos=0,
        left_nanos=max(0, issued.total_nanos),
        issued_at=issued.at,
        due_at=issued.at + timedelta(days=issued.due_days),
        paid_by="",
        blocked=False,
        reference="",
        url="",
        refused="",
        failed="",
        ended="",
        write_off_nanos=0,
        write_off_reason="",
    )


def credit_receivable(note: CreditNoteIssued, rows: Rows) -> None:
    """Note that less is owed, since part of an invoice was credited."""
    row = rows.find(ReceivableRow, note.invoice_id)
    if row is not None:
        row = rows.change(
            ReceivableRow, row.pk, credited_nanos=row.credited_nanos + note.total_nanos
        )
        _settle(row, rows)


def project_receivable(event: ReceivableEvent | CreditEvent, rows: Rows) -> None:
    """Keep a row equal to its stream, and to what it does to its account."""
    row = rows.get(ReceivableRow, event.invoice_id)
    match event:
        case InvoiceHandedOver():
            rows.change(ReceivableRow, row.pk, reference=event.reference, url=event.url)
        case InvoiceNotHandedOver():
            rows.change(ReceivableRow, row.pk, refused=event.reason)
        case InvoicePaid():
            paid = row.paid_nanos + event.money.nanos
            row = rows.change(
                ReceivableRow,
                row.pk,
                paid_nanos=paid,
                paid_at=event.at,
                paid_by=event.reference,
                failed="",
            )
            _settle(row, rows)
        case InvoicePaymentTakenBack():
            paid = row.paid_nanos - event.money.nanos
            _settle(rows.change(ReceivableRow, row.pk, paid_nanos=paid, url=""), rows)
        case InvoicePaymentDecided():
            if event.won:
                paid = row.paid_nanos + event.money.nanos
                _settle(rows.change(ReceivableRow, row.pk, paid_nanos=paid), rows)
        case InvoicePaymentFailed():
            rows.change(ReceivableRow, row.pk, failed=event.reason)
        case CollectionEnded():
            rows.change(ReceivableRow, row.pk, ended=event.why, url="")
        case CollectionLowered():
            rows.change(ReceivableRow, row.pk, collected_nanos=event.left.nanos)
        case InvoiceOverdue():
            rows.change(ReceivableRow, row.pk, overdue_at=event.due_at, blocks_at=event.blocks_at)
        case WriteOffAsked() | WriteOffDeclined() | WriteOffApproved():
            _write_off(event, row, rows)
        case _:
            rows.change(ReceivableRow, row.pk, blocked=isinstance(event, CreditStopped))


def _write_off(
    event: WriteOffAsked | WriteOffDeclined | WriteOffApproved, row: ReceivableRow, rows: Rows
) -> None:
    if isinstance(event, WriteOffAsked):
        rows.change(
            ReceivableRow,
            row.pk,
            write_off_id=event.write_off_id,
            write_off_nanos=event.money.nanos,
            write_off_reason=event.reason,
            write_off_by=event.asked_by,
        )
        return
    gone = event.money.nanos if isinstance(event, WriteOffApproved) else 0
    row = rows.change(
        ReceivableRow,
        row.pk,
        write_off_id=None,
        write_off_nanos=0,
        write_off_by=None,
        written_off_nanos=row.written_off_nanos + gone,
    )
    _settle(row, rows)


def _settle(row: ReceivableRow, rows: Rows) -> None:
    """Say what is owed now, and how it came to an end where nothing is."""
    gone = row.credited_nanos + row.paid_nanos + row.written_off_nanos
    left = max(0, row.total_nanos - gone)
    state = "open"
    if not left:
        state = "written-off" if row.written_off_nanos else "paid" if row.paid_nanos else "credited"
    rows.change(ReceivableRow, row.pk, left_nanos=left, state=state)
