"""Invoices on pages: issued by finance, read by who pays, credited by two people."""

from __future__ import annotations

import re
from datetime import timedelta
from uuid import uuid4

import pytest

from ledger.domain.periods import Period
from ledger.models import CreditNoteRow, InboxRow, InvoiceRow, PaperRow
from tests.pages.papered import close, issue, post, used
from tests.pages.reading import html
from tests.pages.world import CONSUMER, OWNER, PLATFORM, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def invoiced(world: World) -> World:
    """Return a month that is soft-closed, in which the consumer's unit used an hour."""
    return used(world)


def test_finance_issues_a_month_and_the_payer_reads_it(invoiced: World) -> None:
    joan, grace = invoiced.member(PLATFORM, "finance"), invoiced.member(CONSUMER, "finance")
    assert "To be issued" in html(joan.get("/invoices").content)
    assert "No invoices yet" in html(grace.get("/invoices").content)

    assert "1 issued for" in issue(joan, invoiced)

    row = InvoiceRow.objects.get()
    assert row.number.startswith("REC-")
    assert "To be issued" not in html(joan.get("/invoices").content)
    assert row.number in html(grace.get("/invoices").content)
    page = html(grace.get(f"/invoices/{row.number}").content)
    assert "$1.73" in page and "$1.730000001" in page and "1.000 GPU-hours" in page
    assert "Credit it" not in page
    [line] = re.findall(rf'href="(/finance/entries\?invoice={row.number}&amp;line=[^"]*)"', page)
    entries = html(grace.get(line.replace("&amp;", "&")).content)
    assert 'title="$1.730000001"' in entries and f"on <b>{row.number}" in entries
    assert grace.get("/finance/entries?invoice=REC-none").status_code == 404
    file = grace.get(f"/invoices/{row.number}/pdf")
    assert file["Content-Type"] == "application/pdf" and file.content.startswith(b"%PDF-")


def test_a_credit_note_is_asked_for_by_one_and_issued_by_another(invoiced: World) -> None:
    joan, oscar = invoiced.member(PLATFORM, "finance"), invoiced.member(PLATFORM, "operator")
    issue(joan, invoiced)
    number = InvoiceRow.objects.get().number

    assert "This field is required" in post(joan, invoiced, f"{number}/credit", reason="")
    form = {"reason": "ours to bear", "amount-001": "2.00"}
    assert "more than is left" in post(joan, invoiced, f"{number}/credit", **form)
    form["amount-001"] = "1e3"
    assert "plain decimal number" in post(joan, invoiced, f"{number}/credit", **form)
    form["amount-001"] = "0.73"
    assert "Asked. Somebody else" in post(joan, invoiced, f"{number}/credit", **form)
    note = CreditNoteRow.objects.get()
    assert "Somebody else has to approve it" in html(joan.get("/invoices").content)
    step = f"credit-notes/{note.pk}"
    assert "cannot approve it as well" in post(joan, invoiced, f"{step}/approve")

    page = post(oscar, invoiced, f"{step}/approve")

    assert "The credit note is issued" in page and "CN-" in page
    shown = html(joan.get(f"/invoices/{number}").content)
    assert "Credited" in shown and "$1.00" in shown
    grace = invoiced.member(CONSUMER, "finance")
    assert grace.get(f"/invoices/{step}/pdf").content.startswith(b"%PDF-")


def test_nobody_else_issues_or_credits_and_strangers_read_nothing(invoiced: World) -> None:
    issue(invoiced.member(PLATFORM, "finance"), invoiced)
    number = InvoiceRow.objects.get().number
    grace = invoiced.member(CONSUMER, "finance")

    assert grace.post("/invoices/issue", {"period": "2026-01"}).status_code == 403
    assert grace.post(f"/invoices/{number}/credit", {"reason": "x"}).status_code == 403
    assert invoiced.member(OWNER, "finance").get(f"/invoices/{number}").status_code == 404
    assert invoiced.member(CONSUMER, "consumer").get("/invoices").status_code == 403


def test_an_organisation_says_how_it_is_named(invoiced: World) -> None:
    grace = invoiced.member(CONSUMER, "finance")
    assert "Days until" not in html(grace.get("/invoices/billing-details").content)

    form = {"name": "Cirrus SARL", "address": "1 rue\n\nParis", "country": "fr"}
    page = post(grace, invoiced, "billing-details", **form, vat_id="nonsense!")
    assert page.count("A VAT id is the two letters") == 1, "at its field"
    page = post(grace, invoiced, "billing-details", **form, vat_id="FR123")
    assert "In the EU each country has a form of its own" in page
    page = post(grace, invoiced, "billing-details", **form, vat_id="FR 12345678901")
    assert "Saved, for invoices from now on." in page and "FR12345678901" in page

    joan = invoiced.member(PLATFORM, "finance")
    assert "Days until" in html(joan.get("/invoices/billing-details").content)
    form |= {"scheme": "eu-vat", "due_days": "14", "country": "DE"}
    assert "Saved" in post(joan, invoiced, "billing-details", **form, issues_by_itself="on")
    issue(joan, invoiced)
    row = InvoiceRow.objects.get()
    assert (row.payer["name"], row.taxes[0]["code"]) == ("Cirrus SARL", "reverse")
    assert "Reverse charge" in html(grace.get(f"/invoices/{row.number}").content)
    told = InboxRow.objects.get(topic="invoice")
    assert row.number in told.title and told.link == f"/invoices/{row.number}"


def test_a_unit_is_named_apart_from_its_organisation(invoiced: World) -> None:
    grace = invoiced.member(CONSUMER, "finance")
    unit = invoiced.unit_id
    assert "the organisation" in html(grace.get("/invoices/billing-details").content)
    assert grace.get(f"/invoices/billing-details?unit={uuid4()}").status_code == 404
    assert grace.get("/invoices/billing-details?unit=none").status_code == 404
    stranger = invoiced.member(OWNER, "finance")
    assert stranger.get(f"/invoices/billing-details?unit={unit}").status_code == 404

    path = f"billing-details?unit={unit}"
    form = {"name": "Vision lab", "address": "2 rue", "country": "FR", "purchase_order": "P" * 41}
    page = post(grace, invoiced, path, **form)
    assert "has at most forty characters" in page and "Days until" not in page
    form["purchase_order"] = "PO-4711"
    assert "Saved, for invoices from now on." in post(grace, invoiced, path, **form)

    assert "itself" in html(grace.get("/invoices/billing-details").content)
    issue(invoiced.member(PLATFORM, "finance"), invoiced)
    row = InvoiceRow.objects.get()
    assert (row.payer["name"], row.payer["purchase_order"]) == ("Vision lab", "PO-4711")
    assert "PO-4711" in html(grace.get(f"/invoices/{row.number}").content)


def test_a_closed_month_is_stated_and_read_by_whose_account_it_is(invoiced: World) -> None:
    joan, grace = invoiced.member(PLATFORM, "finance"), invoiced.member(CONSUMER, "finance")
    ada = invoiced.member(OWNER, "owner")
    period = Period.of(invoiced.now.replace(day=1) - timedelta(days=1))
    refused = joan.post("/documents/issue", {"period": str(period)})
    assert refused.status_code == 422
    assert "A statement is of a closed month" in html(refused.content)
    close(invoiced)
    assert "To be issued" in html(joan.get("/documents").content)
    assert grace.post("/documents/issue", {"period": str(period)}).status_code == 403

    answer = joan.post("/documents/issue", {"period": str(period)}, follow=True)
    invoiced.settle()

    assert "2 issued for" in html(answer.content)
    page = html(joan.get("/documents").content)
    assert "To be issued" not in page and "STM-" in page
    paid = PaperRow.objects.get(account_id=invoiced.account_id)
    earned = PaperRow.objects.get(account_kind="earnings")
    shown = html(grace.get(f"/documents/{paid.pk}").content)
    assert "Use of GPUs" in shown and "Closing" in shown and "1.73" in shown
    assert grace.get(f"/documents/{earned.pk}").status_code == 404
    assert ada.get(f"/documents/{paid.pk}").status_code == 404
    shown = html(ada.get(f"/documents/{earned.pk}").content)
    assert "Consumers paid" in shown and "$0.14" in shown
    assert ada.get(f"/documents/{earned.pk}/pdf").content.startswith(b"%PDF-")
    assert invoiced.member(CONSUMER, "consumer").get("/documents").status_code == 403
