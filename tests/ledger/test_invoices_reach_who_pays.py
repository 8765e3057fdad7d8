"""A notice to who looks after the money, and the file to the address in the billing details."""

from __future__ import annotations

from smtplib import SMTPServerDisconnected
from typing import Any

import pytest
from django.core import mail

from ledger import invoice_mail, invoicing
from ledger.domain.notice_events import NoticeGiven
from ledger.eventstore.memory import MemoryStore
from ledger.models import CreditNoteRow, InvoiceRow
from ledger.reacting import follow_policies
from tests.ledger import invoiced
from tests.ledger import ledgerbook as book
from tests.ledger.invoiced import LATER
from tests.ledger.ledgerbook import hours, usd

pytestmark = pytest.mark.django_db
POLICIES = [invoicing.POST_DOCUMENTS, invoicing.TELL_OF_DOCUMENTS]


@pytest.fixture
def issued(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """Return an invoice whose file was put away, where there is a mail server."""
    monkeypatch.setattr(invoice_mail, "can_mail", lambda: True)
    book.open_everybody(store)
    book.open_funds(store, kind="chargeback", overdraft_nanos=None)
    book.hold(store, usd(30))
    book.capture(store, hours(0), 3_600_000)
    invoiced.details(store, book.CONSUMER, email="invoices@ada.example")
    invoiced.soft_close(store)
    invoiced.issue(store)
    invoicing.archive_documents(store, now=LATER)
    invoiced.follow(store)
    return store


def send(store: MemoryStore) -> int:
    taken = invoice_mail.mail_documents(store, now=LATER)
    invoiced.follow(store)
    return taken


def test_an_invoice_is_mailed_once_with_its_file(issued: MemoryStore) -> None:
    assert (send(issued), send(issued)) == (1, 0)

    [sent] = mail.outbox
    row = InvoiceRow.objects.get()
    assert sent.to == ["invoices@ada.example"] and sent.subject == row.number
    [attached] = sent.attachments
    name, data, kind = attached
    assert (name, kind) == (f"{row.number}.pdf", "application/pdf")
    assert bytes(data).startswith(b"%PDF-")
    assert row.sent_to == "invoices@ada.example"


def test_a_credit_note_follows_the_same_way(issued: MemoryStore) -> None:
    send(issued)
    invoiced.credit(issued, InvoiceRow.objects.get())
    assert send(issued) == 0, "its file is not written yet"
    invoicing.archive_documents(issued, now=LATER)
    invoiced.follow(issued)

    assert send(issued) == 1
    assert CreditNoteRow.objects.get().sent_to == "invoices@ada.example"
    assert [each.subject for each in mail.outbox] == ["INV-2026-0001", "CN-2026-0001"]


def test_what_the_mail_server_does_not_take_is_mailed_again_under_the_same_id(
    issued: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []

    def fail(self: mail.EmailMessage, fail_silently: bool = False) -> int:
        said.append(self.extra_headers["Message-ID"])
        raise SMTPServerDisconnected("gone")

    with monkeypatch.context() as away:
        away.setattr(mail.EmailMessage, "send", fail)
        assert send(issued) == 0
    assert InvoiceRow.objects.get().sent_to == ""

    assert send(issued) == 1
    [sent] = mail.outbox
    assert [sent.extra_headers["Message-ID"]] == said


def test_without_a_mail_server_nothing_is_tried(
    issued: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invoice_mail, "can_mail", lambda: False)

    assert send(issued) == 0 and mail.outbox == []


def test_who_nobody_knows_is_not_told_and_entries_are_posted_once(issued: MemoryStore) -> None:
    """The consumer of this book was never registered; nothing stands in the way of the rest."""
    before = len(book.entries(issued))
    while follow_policies(issued, POLICIES):
        pass

    assert len(book.entries(issued)) == before
    found = issued.read_all(limit=1_000).events
    assert not [each for each in found if isinstance(each.event, NoticeGiven)]
