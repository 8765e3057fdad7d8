"""EU VAT from end to end: four customers of a German company, by where they are and who they are.

Of each: the invoice, its entry, a credit note of half of it, what reconciliation says, and the
words on the paper. Rates are those of 2026 (config/docs/invoices.md has the same table).
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ledger.commands.closing import soft_close_period
from ledger.documents import pdf_of
from ledger.documents.papers import credit_paper, invoice_paper
from ledger.domain.account_ids import tax_account
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.reconciling import with_the_rest
from ledger.domain.tax import OUTSIDE, REVERSE_CHARGE
from ledger.eventstore.memory import MemoryStore
from ledger.models import AccountRow, CreditNoteRow, InvoiceRow, JournalEntryRow
from ledger.queries import disagreements
from ledger.queries.invoices_add_up import journal_and_invoices
from tests.conftest import SOMEBODY
from tests.ledger import invoiced
from tests.ledger import ledgerbook as book
from tests.ledger.invoiced import JOAN, LATER, MONTH
from tests.ledger.ledgerbook import hours, usd
from tests.ledger.pdf_text import text_of

pytestmark = pytest.mark.django_db
CENT = 10_000_000


@dataclass(frozen=True)
class Customer:
    """Who gets the invoice of 173.00, and what VAT that has, in cents."""

    country: str
    vat_id: str
    code: str
    vat: int
    note: str = ""


SAME_COUNTRY = Customer("DE", "DE811907980", "vat-DE", 32_87)
BUSINESS_ELSEWHERE = Customer("FR", "FR12345678901", "reverse", 0, REVERSE_CHARGE)
PERSON_ELSEWHERE = Customer("FR", "", "vat-FR", 34_60)
THIRD_COUNTRY = Customer("US", "", "outside", 0, OUTSIDE)


@pytest.mark.parametrize(
    "customer",
    [SAME_COUNTRY, BUSINESS_ELSEWHERE, PERSON_ELSEWHERE, THIRD_COUNTRY],
    ids=["the same country", "reverse charge", "no VAT id", "a third country"],
)
def test_vat_from_the_use_to_the_paper(store: MemoryStore, customer: Customer) -> None:
    book.open_everybody(store)
    book.open_funds(store, kind="chargeback", overdraft_nanos=None)
    book.hold(store, usd(500))
    book.capture(store, hours(0), 360_000_000)
    invoiced.tax_the_eu(store)
    invoiced.details(store, book.CONSUMER, country=customer.country, vat_id=customer.vat_id)
    now = MONTH.window.ends_at
    soft_close_period(store, MONTH, user_id=JOAN, by=SOMEBODY, now=now)
    invoiced.follow(store)

    invoiced.issue(store)

    row = InvoiceRow.objects.get()
    [tax] = row.taxes
    assert (tax["code"], tax["nanos"], tax["note"]) == (
        customer.code, customer.vat * CENT, customer.note,
    )  # fmt: skip
    assert (row.net_nanos, row.total_nanos) == (173_00 * CENT, (173_00 + customer.vat) * CENT)
    entries = JournalEntryRow.objects.filter(kind="tax")
    assert [each.reference for each in entries] == ([row.number] if customer.vat else [])
    owed = AccountRow.objects.get(pk=tax_account(PLATFORM_ID, "USD"))
    assert owed.total_nanos == customer.vat * CENT
    paper = text_of(pdf_of(invoice_paper(row)))
    assert tax["title"] in paper and "VAT id DE123456789" in paper
    for words in (customer.vat_id, *customer.note.split()[:3]):
        assert words in paper

    invoiced.credit(store, row, ("001", 86_50 * CENT))

    note = CreditNoteRow.objects.get()
    owed.refresh_from_db()
    half = (customer.vat + 1) // 2
    assert (note.tax_nanos, owed.total_nanos) == (half * CENT, (customer.vat - half) * CENT)
    row.refresh_from_db()
    assert row.credited_nanos == note.total_nanos
    assert tax["title"] in text_of(pdf_of(credit_paper(note, row)))
    assert disagreements() == []
    for month in (MONTH, MONTH.next):
        assert with_the_rest(journal_and_invoices(month, LATER)).differences == []
