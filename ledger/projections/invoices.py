"""Rows of invoices, credit notes and billing details."""

from __future__ import annotations

from dataclasses import asdict

from ledger.domain.invoice_events import (
    BillingDetailsSet,
    CreditNoteAsked,
    CreditNoteDeclined,
    CreditNoteIssued,
    DocumentArchived,
    InvoiceIssued,
    InvoiceSent,
)
from ledger.domain.receivable_events import CreditEvent, ReceivableEvent
from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.models import BillingDetailsRow, CreditNoteRow, InvoiceRow
from ledger.projections import papers, receivables
from ledger.rows import Rows


def project_invoices(recorded: Recorded, rows: Rows) -> None:
    """Keep documents equal to the streams of their issuers, and details to those of parties."""
    match recorded.event:
        case BillingDetailsSet() as said:
            _set_details(said, rows)
        case InvoiceIssued() as issued:
            _issue(issued, recorded, rows)
            receivables.add_receivable(issued, rows)
        case CreditNoteAsked() as asked:
            _ask(asked, recorded, rows)
        case CreditNoteDeclined() as declined:
            rows.change(
                CreditNoteRow,
                declined.credit_id,
                state="declined",
                decided_by=declined.declined_by,
                decided_at=declined.at,
            )
        case CreditNoteIssued() as note:
            _credit(note, recorded, rows)
            receivables.credit_receivable(note, rows)
        case DocumentArchived() as archived:
            kind = _kind_of(archived, rows)
            rows.change(kind, archived.document_id, sha256=archived.sha256, bytes=archived.bytes)
        case InvoiceSent() as sent:
            rows.change(_kind_of(sent, rows), sent.document_id, sent_to=sent.email)
        case event if isinstance(event, ReceivableEvent | CreditEvent):
            receivables.project_receivable(event, rows)
        case _:
            papers.project_paper(recorded, rows)


def _set_details(said: BillingDetailsSet, rows: Rows) -> None:
    fields = {
        "details": asdict(said.details),
        "scheme": said.scheme,
        "due_days": said.due_days,
        "issues_by_itself": said.issues_by_itself,
        "set_at": said.at,
    }
    if rows.find(BillingDetailsRow, said.party_id) is not None:
        rows.change(BillingDetailsRow, said.party_id, **fields)
        return
    rows.add(BillingDetailsRow(party_id=said.party_id, tenant_id=said.tenant_id, **fields))


def _issue(issued: InvoiceIssued, recorded: Recorded, rows: Rows) -> None:
    rows.make(
        InvoiceRow,
        invoice_id=issued.invoice_id,
        number=issued.number,
        kind=issued.kind,
        issuer_id=issued.issuer_id,
        account_id=issued.account_id,
        tenant_id=issued.tenant_id,
        subscriber_id=issued.subscriber_id,
        issuer=asdict(issued.issuer),
        payer=asdict(issued.payer),
        payer_name=issued.payer.name,
        period=issued.period,
        currency=issued.currency,
        lines=[asdict(line) for line in issued.lines],
        taxes=[asdict(tax) for tax in issued.taxes],
        exact_nanos=issued.exact_nanos,
        net_nanos=issued.net_nanos,
        tax_nanos=issued.tax_nanos,
        total_nanos=issued.total_nanos,
        credited_nanos=0,
        due_days=issued.due_days,
        as_of=issued.as_of,
        position=recorded.position,
        issued_at=issued.at,
        sha256="",
        bytes=0,
        sent_to="",
    )


def _ask(asked: CreditNoteAsked, recorded: Recorded, rows: Rows) -> None:
    invoice = rows.get(InvoiceRow, asked.invoice_id)
    net = sum(line.nanos for line in asked.lines)
    rows.make(
        CreditNoteRow,
        credit_id=asked.credit_id,
        number="",
        state="asked",
        invoice_id=asked.invoice_id,
        invoice_number=invoice.number,
        issuer_id=asked.issuer_id,
        tenant_id=invoice.tenant_id,
        account_id=invoice.account_id,
        currency=invoice.currency,
        lines=[asdict(line) for line in asked.lines],
        taxes=[],
        net_nanos=net,
        tax_nanos=0,
        total_nanos=net,
        reason=asked.reason,
        asked_by=asked.asked_by,
        asked_at=asked.at,
        decided_by=None,
        decided_at=None,
        position=recorded.position,
        sha256="",
        bytes=0,
        sent_to="",
    )


def _credit(note: CreditNoteIssued, recorded: Recorded, rows: Rows) -> None:
    rows.change(
        CreditNoteRow,
        note.credit_id,
        number=note.number,
        state="issued",
        taxes=[asdict(tax) for tax in note.taxes],
        net_nanos=note.net_nanos,
        tax_nanos=note.tax_nanos,
        total_nanos=note.total_nanos,
        decided_by=note.approved_by,
        decided_at=note.at,
        position=recorded.position,
    )
    invoice = rows.get(InvoiceRow, note.invoice_id)
    credited = invoice.credited_nanos + note.total_nanos
    rows.change(InvoiceRow, note.invoice_id, credited_nanos=credited)


def _kind_of(
    event: DocumentArchived | InvoiceSent, rows: Rows
) -> type[InvoiceRow] | type[CreditNoteRow]:
    return InvoiceRow if rows.find(InvoiceRow, event.document_id) is not None else CreditNoteRow


INVOICES = Projection(
    name="ledger.invoices",
    project=project_invoices,
    tables=(BillingDetailsRow, InvoiceRow, CreditNoteRow, *receivables.TABLES, *papers.TABLES),
    on=papers.ON
    | names_of(
        BillingDetailsSet,
        InvoiceIssued,
        CreditNoteAsked,
        CreditNoteDeclined,
        CreditNoteIssued,
        DocumentArchived,
        InvoiceSent,
    )
    | receivables.ON,
)
