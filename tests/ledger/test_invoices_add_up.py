"""Reconciliation compares the journal with invoices: what differs is named, to the nano-unit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ledger.domain.parties import PLATFORM_ID
from ledger.domain.reconciling import Leg, unexplained, with_the_rest
from ledger.eventstore.memory import MemoryStore
from ledger.models import CreditNoteRow, InvoiceRow, PeriodRow
from ledger.queries.invoices_add_up import journal_and_invoices
from tests.ledger import busy_month, invoiced
from tests.ledger import ledgerbook as book
from tests.ledger.invoiced import LATER, MONTH
from tests.ledger.ledgerbook import hours, usd

pytestmark = pytest.mark.django_db
MILLIS = 3_600_000


@pytest.fixture
def busy(store: MemoryStore) -> MemoryStore:
    """Return a busy month that is soft-closed."""
    busy_month.live_through(store)
    invoiced.soft_close(store)
    return store


@pytest.fixture
def unit(store: MemoryStore) -> MemoryStore:
    """Return a month in which a cost centre, which is to pay, used two hours."""
    book.open_everybody(store)
    book.open_funds(store, kind="chargeback", overdraft_nanos=None)
    book.hold(store, usd(30))
    book.capture(store, hours(0), MILLIS)
    book.capture(store, hours(1), MILLIS)
    invoiced.tax_the_eu(store)
    invoiced.details(store, book.CONSUMER, country="DE")
    invoiced.soft_close(store)
    return store


def compared() -> Leg:
    return with_the_rest(journal_and_invoices(MONTH, LATER))


def reasons(leg: Leg) -> set[str]:
    return {each.reason for each in leg.differences}


def test_a_busy_month_is_on_its_invoices(busy: MemoryStore) -> None:
    assert reasons(compared()) == {"in-flight"}, "nobody issued one yet"
    invoiced.issue(busy)

    leg = compared()

    assert leg.differences == []
    assert {pair.subject for pair in leg.pairs} >= {row.number for row in InvoiceRow.objects.all()}
    assert all(pair.one == pair.other for pair in leg.pairs)


def test_what_comes_after_the_invoice_is_late_until_the_next(unit: MemoryStore) -> None:
    invoiced.issue(unit)
    book.capture(unit, hours(2), MILLIS)
    invoiced.follow(unit)

    [late] = compared().differences

    assert (late.reason, late.amount) == ("late", -1_730_000_001)
    invoiced.close(unit)
    invoiced.soft_close(unit, MONTH.next)
    invoiced.issue(unit, MONTH.next)
    assert compared().differences == []
    assert with_the_rest(journal_and_invoices(MONTH.next, LATER)).differences == []


def test_none_is_missing_where_closed_months_are_invoiced_by_themselves(unit: MemoryStore) -> None:
    invoiced.details(unit, PLATFORM_ID, vat_id="DE123456789", issues_by_itself=True)
    assert reasons(compared()) == {"in-flight"}
    invoiced.close(unit)

    [missing] = unexplained([compared()])

    assert missing.amount == -3_460_000_002
    assert "on no invoice" in missing.subject
    assert PeriodRow.objects.get().state == "closed"


def test_a_credit_note_is_its_entry(unit: MemoryStore) -> None:
    invoiced.issue(unit)
    row = InvoiceRow.objects.get()
    invoiced.credit(unit, row, ("001", 730_000_000))
    month = MONTH.next

    leg = with_the_rest(journal_and_invoices(month, LATER))

    [note] = [pair for pair in leg.pairs if pair.subject.startswith("CN-")]
    assert note.one == note.other == 870_000_000, "with its tax"
    CreditNoteRow.objects.update(total_nanos=870_000_001)
    [wrong] = unexplained([with_the_rest(journal_and_invoices(month, LATER))])
    assert (wrong.subject, wrong.amount) == (note.subject, 1)


def _line(row: InvoiceRow, **changed: int) -> dict[str, Any]:
    return {"lines": [{**row.lines[0], **changed}, *row.lines[1:]]}


@pytest.mark.parametrize(
    ("what", "amount"),
    [("exact", 1), ("rounded", 10_000_000), ("total", 1), ("tax", 10_000_000), ("extra", None)],
)
def test_what_was_changed_is_found(unit: MemoryStore, what: str, amount: int | None) -> None:
    invoiced.issue(unit)
    row = InvoiceRow.objects.get()
    rows = InvoiceRow.objects.filter(pk=row.pk)
    line, tax = row.lines[0], row.taxes[0]
    match what:
        case "exact":
            rows.update(**_line(row, exact_nanos=line["exact_nanos"] + 1))
        case "rounded":
            rows.update(**_line(row, nanos=line["nanos"] + 10_000_000))
        case "total":
            rows.update(net_nanos=row.net_nanos + 1, total_nanos=row.total_nanos + 1)
        case "tax":
            rows.update(taxes=[{**tax, "nanos": tax["nanos"] + 10_000_000}])
        case _:
            rows.update(as_of=0)

    found = unexplained([compared()])

    assert found
    assert amount is None or amount in {abs(each.amount) for each in found}


def test_a_month_without_invoices_has_nothing_to_compare(store: MemoryStore) -> None:
    assert journal_and_invoices(MONTH, LATER + timedelta(days=1)).pairs == []
