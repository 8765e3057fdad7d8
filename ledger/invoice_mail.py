"""Invoices, credit notes and statements by e-mail: with the file, to the address in the details.

At least once: killed between the mail server's yes and the record of it, a document is mailed
again with the same Message-ID.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from smtplib import SMTPException
from typing import cast
from uuid import UUID

import structlog
from django.conf import settings
from django.core.mail import EmailMessage, get_connection

from ledger.commands.invoices import note_sent
from ledger.commands.papers import note_paper_sent
from ledger.domain.paper_events import PaperKind
from ledger.eventstore.port import EventStore, Meta
from ledger.inviting import can_mail
from ledger.models import CreditNoteRow, InvoiceRow, PaperRow
from ledger.queries.invoices import file_of
from ledger.senders.port import TIMEOUT_SECONDS

MAILED_MAX = 20
TRIED_FOR = timedelta(days=3)
"""How long a document is mailed again that the mail server did not take."""
LOOP = Meta(actor="loop:invoice-mail")

log = structlog.get_logger()


def mail_documents(store: EventStore, *, now: datetime) -> int:
    """Mail the documents whose files were put away and that were not mailed yet.

    One that the mail server refuses is in nobody else's way. Returns: how many were taken.
    """
    if not can_mail():
        return 0
    taken = 0
    for document_id, number, email in _waiting(now - TRIED_FOR):
        data = file_of(document_id)
        if data is None or not _mailed(document_id, number, email, data):
            continue
        note_sent(store, document_id, email=email, by=LOOP, now=now)
        taken += 1
    rows = PaperRow.objects.filter(sent_to="", issued_at__gte=now - TRIED_FOR).exclude(sha256="")
    for row in rows.exclude(email="").order_by("position")[:MAILED_MAX]:
        data = file_of(row.pk)
        path = f"/documents/{row.pk}"
        if data is None or not _mailed(row.pk, row.number, row.email, data, path=path):
            continue
        kind = cast("PaperKind", row.kind)
        note_paper_sent(store, kind, row.issuer_id, row.pk, email=row.email, by=LOOP, now=now)
        taken += 1
    return taken


def _waiting(since: datetime) -> Iterator[tuple[UUID, str, str]]:
    """Yield id, number and address of what is to be mailed, the oldest first."""
    rows = InvoiceRow.objects.filter(sent_to="", issued_at__gte=since).exclude(sha256="")
    for row in rows.exclude(payer__email="").order_by("position")[:MAILED_MAX]:
        yield row.pk, row.number, row.payer["email"]
    notes = CreditNoteRow.objects.filter(sent_to="", state="issued", decided_at__gte=since)
    for note in notes.exclude(sha256="").order_by("position")[:MAILED_MAX]:
        email = InvoiceRow.objects.get(pk=note.invoice_id).payer["email"]
        if email:
            yield note.pk, note.number, email


def _mailed(document_id: UUID, number: str, email: str, data: bytes, *, path: str = "") -> bool:
    sender = str(settings.DEFAULT_FROM_EMAIL)
    where = path or f"/invoices/{number}"
    mail = EmailMessage(
        subject=number,
        body=f"{number} is attached, and on the page {where} of the market.",
        from_email=sender,
        to=[email],
        headers={
            "Message-ID": f"<{document_id}@{sender.rpartition('@')[2]}>",
            "Auto-Submitted": "auto-generated",
        },
        connection=get_connection(timeout=TIMEOUT_SECONDS),
    )
    mail.attach(f"{number}.pdf", data, "application/pdf")
    try:
        mail.send()
    except (OSError, SMTPException, ValueError) as failure:
        log.warning("invoice.not-mailed", number=number, why=type(failure).__name__)
        return False
    return True
