"""Rows of statements, and of invoices that the platform issued for owners."""

from __future__ import annotations

from dataclasses import asdict

from ledger.domain.paper_events import PaperArchived, PaperSent, StatementIssued
from ledger.domain.self_billing_events import (
    SelfBilledInvoiceIssued,
    SelfBillingAgreed,
    SelfBillingEnded,
)
from ledger.eventstore.port import Recorded
from ledger.following import names_of
from ledger.models import PaperRow, SelfBillingRow
from ledger.rows import Rows

TABLES = (PaperRow, SelfBillingRow)
ON = names_of(
    StatementIssued,
    PaperArchived,
    PaperSent,
    SelfBilledInvoiceIssued,
    SelfBillingAgreed,
    SelfBillingEnded,
)


def project_paper(recorded: Recorded, rows: Rows) -> None:
    """Keep papers equal to the streams of who issues them."""
    match recorded.event:
        case StatementIssued() as issued:
            _state(issued, recorded, rows)
        case SelfBilledInvoiceIssued() as billed:
            _bill(billed, recorded, rows)
        case SelfBillingAgreed() | SelfBillingEnded() as said:
            _agree(said, rows)
        case PaperArchived() as archived:
            rows.change(PaperRow, archived.paper_id, sha256=archived.sha256, bytes=archived.bytes)
        case PaperSent() as sent:
            rows.change(PaperRow, sent.paper_id, sent_to=sent.email)


def _state(issued: StatementIssued, recorded: Recorded, rows: Rows) -> None:
    rows.make(
        PaperRow,
        paper_id=issued.statement_id,
        kind="statement",
        number=issued.number,
        issuer_id=issued.issuer_id,
        account_id=issued.account_id,
        account_kind=issued.account_kind,
        account_title=issued.account_title,
        tenant_id=issued.tenant_id,
        subscriber_id=issued.subscriber_id,
        issuer=asdict(issued.issuer),
        party=asdict(issued.party),
        party_name=issued.party.name,
        period=issued.period,
        currency=issued.currency,
        opening_nanos=issued.opening_nanos,
        lines=[asdict(line) for line in issued.lines],
        taxes=[],
        tax_nanos=0,
        total_nanos=issued.closing_nanos,
        held_nanos=issued.held_nanos,
        payout_id=None,
        replaces=issued.replaces,
        as_of=issued.as_of,
        position=recorded.position,
        issued_at=issued.at,
        email=issued.party.email,
        sha256="",
        bytes=0,
        sent_to="",
    )


def _bill(issued: SelfBilledInvoiceIssued, recorded: Recorded, rows: Rows) -> None:
    rows.make(
        PaperRow,
        paper_id=issued.invoice_id,
        kind="self-billed",
        number=issued.number,
        issuer_id=issued.tenant_id,
        account_id=issued.account_id,
        account_kind="earnings",
        account_title="",
        tenant_id=issued.tenant_id,
        subscriber_id=None,
        issuer=asdict(issued.issuer),
        party=asdict(issued.payer),
        party_name=issued.payer.name,
        period=issued.settlement,
        currency=issued.currency,
        opening_nanos=0,
        lines=[asdict(line) for line in issued.lines],
        taxes=[asdict(tax) for tax in issued.taxes],
        tax_nanos=issued.tax_nanos,
        total_nanos=issued.total_nanos,
        held_nanos=0,
        payout_id=issued.payout_id,
        replaces="",
        as_of=recorded.position,
        position=recorded.position,
        issued_at=issued.at,
        email=issued.issuer.email,
        sha256="",
        bytes=0,
        sent_to="",
    )


def _agree(said: SelfBillingAgreed | SelfBillingEnded, rows: Rows) -> None:
    known = rows.find(SelfBillingRow, said.tenant_id)
    if isinstance(said, SelfBillingEnded):
        rows.change(SelfBillingRow, said.tenant_id, ended_at=said.at)
        return
    fields = {
        "small_business": said.small_business,
        "wording": said.wording,
        "agreed_by": said.by_user,
        "agreed_at": said.at,
        "ended_at": None,
    }
    if known is not None:
        rows.change(SelfBillingRow, said.tenant_id, **fields)
        return
    rows.make(SelfBillingRow, tenant_id=said.tenant_id, **fields)
