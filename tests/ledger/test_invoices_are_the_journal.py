"""Every charge is on exactly one invoice, and an invoice is what the journal has."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta

import pytest
from django.db.models import Sum

from ledger import exports, invoicing
from ledger.commands.invoices import MonthOpenStill, issue_invoice
from ledger.composing import PRICES_APART_MAX, compose, entries_of_line
from ledger.domain.account_ids import funds_account, rounding_account, tax_account
from ledger.domain.accounts import FundsInsufficient
from ledger.domain.billed import BILLED
from ledger.domain.ids import AccountId
from ledger.domain.invoices import InvoiceIssuedBefore, NothingToInvoice
from ledger.domain.money import Rate
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.rounding import half_up, unit_of
from ledger.eventstore.memory import MemoryStore
from ledger.following import read_up_to
from ledger.models import (
    AccountRow,
    CreditNoteRow,
    InvoiceRow,
    JournalEntryRow,
    PostingRow,
)
from ledger.projections.invoices import INVOICES
from ledger.projections.money import MONEY
from ledger.queries import disagreements
from ledger.queries.invoices import InvoiceNumbers, invoice_of
from ledger.rebuilding import fingerprint, rebuild
from tests.conftest import SOMEBODY
from tests.ledger import busy_month, invoiced
from tests.ledger import ledgerbook as book
from tests.ledger.busy_month import AUDITOR
from tests.ledger.exported import nanos, rows_of
from tests.ledger.invoiced import JOAN, LATER, MONTH
from tests.ledger.ledgerbook import hours, usd

pytestmark = pytest.mark.django_db
MILLIS = 3_600_000
CENT = unit_of("USD")
CHEM = funds_account(busy_month.unit_named('Chem "wet"\\lab, 3'), "USD")
ASTRO = funds_account(busy_month.unit_named("Astro"), "USD")
RENDER = funds_account(busy_month.unit_named("=Render"), "EUR")


@pytest.fixture
def busy(store: MemoryStore) -> MemoryStore:
    """Return a busy month that is soft-closed."""
    busy_month.live_through(store)
    invoiced.soft_close(store)
    return store


@pytest.fixture
def unit(store: MemoryStore) -> MemoryStore:
    """Return a month in which a cost centre used an hour that ends in less than a cent."""
    book.open_everybody(store)
    book.open_funds(store, kind="chargeback", overdraft_nanos=None)
    book.hold(store, usd(30))
    book.capture(store, hours(0), MILLIS)
    return store


def of(account_id: AccountId) -> InvoiceRow:
    return InvoiceRow.objects.get(account_id=account_id)


def moved(account_id: AccountId, *kinds: str, since: str = "", until: str = "9") -> int:
    """Return what entries of these kinds took from an account."""
    found = PostingRow.objects.filter(account_id=account_id, kind__in=kinds)
    found = found.filter(period__gte=since, period__lte=until)
    return -int(found.aggregate(sum=Sum("nanos"))["sum"] or 0)


def test_invoices_of_a_busy_month_are_its_journal(busy: MemoryStore) -> None:
    outcome = invoiced.issue(busy)

    assert len(outcome.issued) == 3 and outcome.refused == () and outcome.left == 0
    for account_id in (CHEM, ASTRO, RENDER):
        row = of(account_id)
        assert row.exact_nanos == moved(account_id, *BILLED, until=str(MONTH))
        assert row.net_nanos == half_up(row.exact_nanos, CENT)
        assert sum(line["nanos"] for line in row.lines) == row.net_nanos == row.total_nanos
    for account_id in (CHEM, RENDER):
        said = moved(account_id, *BILLED, "rounding", until=str(MONTH))
        assert said == of(account_id).total_nanos
    assert (of(ASTRO).kind, moved(ASTRO, "rounding")) == ("receipt", 0)
    assert disagreements() == []
    titles = {line["sku"] for line in of(CHEM).lines}
    assert {"VOLUME", "COMPENSATION"} <= titles


def used_at(store: MemoryStore, *prices: int) -> InvoiceRow:
    """Charge an hour of a lease at each of these prices, and return the month's invoice."""
    book.open_everybody(store)
    book.open_funds(store, kind="chargeback", overdraft_nanos=None)
    for number, nanos_per_hour in enumerate(prices):
        hold_id = book.hold_named(number)
        book.hold(store, usd(30), hold_id=hold_id)
        price, lease_id = Rate(nanos_per_hour), book.lease_named(number)
        at = hours(number % 24)
        book.capture(store, at, MILLIS, hold_id=hold_id, lease_id=lease_id, price=price)
    invoiced.soft_close(store)
    invoiced.issue(store)
    return InvoiceRow.objects.get()


def test_use_at_a_few_prices_has_a_line_for_each(store: MemoryStore) -> None:
    first, second = 1_500_000_001, 2_000_000_004
    row = used_at(store, first, second, first)

    assert [(each["title"], each["quantity"]) for each in row.lines] == [
        ("H100-80G, on-demand, at 1.500000001 USD per GPU-hour", "2.000"),
        ("H100-80G, on-demand, at 2.000000004 USD per GPU-hour", "1.000"),
    ]
    assert sum(each["nanos"] for each in row.lines) == row.net_nanos == usd(5).nanos
    made = [
        JournalEntryRow.objects.filter(entries_of_line(row, each)).values_list("pk", flat=True)
        for each in row.lines
    ]
    assert [len(set(each)) for each in made] == [2, 1]
    assert not set(made[0]) & set(made[1])


def test_use_at_very_many_prices_is_one_line(store: MemoryStore) -> None:
    row = used_at(store, *range(1_000_000_000, 1_000_000_000 + PRICES_APART_MAX + 1))

    [line] = row.lines
    assert (line["title"], line["quantity"]) == ("H100-80G, on-demand", "13.000")
    assert JournalEntryRow.objects.filter(entries_of_line(row, line)).count() == 13


def test_every_charge_is_on_one_invoice_which_says_so(busy: MemoryStore) -> None:
    invoiced.issue(busy)
    numbers = InvoiceNumbers(AUDITOR, position=read_up_to("ledger.money"))

    sums: dict[str, int] = defaultdict(int)
    for line in PostingRow.objects.filter(account_id__in=(CHEM, RENDER), period=str(MONTH)):
        if line.kind in BILLED:
            number = numbers.of(line.account_id, period=line.period, position=line.position)
        else:
            number = line.reference if line.kind == "rounding" else ""
        sums[number] -= line.nanos
    for account_id in (CHEM, RENDER):
        assert sums[of(account_id).number] == of(account_id).total_nanos
    entry = JournalEntryRow.objects.filter(account_id=CHEM, kind="usage").first()
    assert entry is not None
    assert invoice_of(AUDITOR, entry.pk, position=10**9) == of(CHEM).number
    assert invoice_of(AUDITOR, entry.pk, position=entry.position) == ""
    usage = PostingRow.objects.filter(account_id=ASTRO, kind="usage").first()
    assert usage is not None
    assert invoice_of(AUDITOR, usage.entry_id, position=10**9) == ""


def test_a_month_that_is_open_is_not_invoiced(unit: MemoryStore) -> None:
    invoiced.follow(unit)

    with pytest.raises(MonthOpenStill):
        invoiced.issue(unit)


def test_a_month_is_invoiced_once(unit: MemoryStore) -> None:
    invoiced.soft_close(unit)
    [invoice_id] = invoiced.issue(unit).issued

    assert invoiced.issue(unit).issued == ()
    account = AccountRow.objects.get(pk=book.FUNDS)
    with pytest.raises(InvoiceIssuedBefore):
        invoicing.issue_one(unit, account, MONTH, user_id=JOAN, by=SOMEBODY, now=LATER)
    assert InvoiceRow.objects.get().pk == invoice_id


def test_late_use_before_the_month_is_closed_is_on_the_next_invoice(unit: MemoryStore) -> None:
    """It counts in the month still, whose invoice was made; so it is not lost, and named."""
    invoiced.soft_close(unit)
    invoiced.issue(unit)
    book.capture(unit, hours(1), MILLIS)
    invoiced.close(unit)
    later = MONTH.next
    book.capture(unit, hours(40 * 24), MILLIS)
    invoiced.soft_close(unit, later)

    invoiced.issue(unit, later)

    first, second = InvoiceRow.objects.order_by("period")
    assert [(line["period"], line["corrects"]) for line in second.lines] == [
        (str(MONTH), first.number),
        (str(later), ""),
    ]
    assert moved(book.FUNDS, *BILLED, "rounding") == first.total_nanos + second.total_nanos
    numbers = InvoiceNumbers(AUDITOR, position=10**9)
    said = [
        numbers.of(line.account_id, period=line.period, position=line.position)
        for line in PostingRow.objects.filter(account_id=book.FUNDS, kind="usage").order_by(
            "position"
        )
    ]
    assert said == [first.number, second.number, second.number]


def test_what_comes_to_a_month_that_was_opened_again_is_on_the_next_invoice(
    unit: MemoryStore,
) -> None:
    """The invoice of the month stays as it was issued."""
    invoiced.soft_close(unit)
    invoiced.issue(unit)
    invoiced.close(unit)
    invoiced.reopen(unit)
    book.capture(unit, hours(1), MILLIS)
    invoiced.soft_close(unit)
    invoiced.close(unit)
    invoiced.soft_close(unit, MONTH.next)
    before = InvoiceRow.objects.values().get()

    assert invoiced.issue(unit).issued == ()
    assert len(invoiced.issue(unit, MONTH.next).issued) == 1

    assert InvoiceRow.objects.filter(period=str(MONTH)).values().get() == before
    new = InvoiceRow.objects.get(period=str(MONTH.next))
    assert [line["corrects"] for line in new.lines] == [before["number"]]


def test_rounding_and_tax_count_in_the_month_of_their_invoice_while_it_is_not_closed(
    unit: MemoryStore,
) -> None:
    invoiced.tax_the_eu(unit)
    invoiced.details(unit, book.CONSUMER)
    invoiced.soft_close(unit)
    invoiced.issue(unit)

    entries = JournalEntryRow.objects.filter(kind__in=("rounding", "tax"))
    last = (MONTH.window.ends_at - timedelta(days=1)).date()
    assert set(entries.values_list("period", "day")) == {(str(MONTH), last)}
    assert entries.count() == 2


def test_of_a_closed_month_they_count_in_the_next(unit: MemoryStore) -> None:
    invoiced.soft_close(unit)
    invoiced.close(unit)
    invoiced.issue(unit)

    [entry] = JournalEntryRow.objects.filter(kind="rounding")
    assert entry.period == str(MONTH.next)


def test_tax_is_charged_to_the_payer_and_owed_to_the_state(unit: MemoryStore) -> None:
    invoiced.tax_the_eu(unit)
    invoiced.details(unit, book.CONSUMER)
    invoiced.soft_close(unit)
    invoiced.issue(unit)

    row = of(book.FUNDS)
    assert (row.kind, row.net_nanos, row.tax_nanos) == ("invoice", 173 * CENT, 33 * CENT)
    assert moved(book.FUNDS, *BILLED, "rounding", "tax") == row.total_nanos
    assert -moved(tax_account(PLATFORM_ID, "USD"), "tax") == row.tax_nanos
    residue = row.net_nanos - row.exact_nanos
    assert -moved(rounding_account(PLATFORM_ID, "USD"), "rounding") == residue
    assert disagreements() == []


def test_a_wallet_that_does_not_cover_the_tax_gets_no_receipt_before_it_does(
    store: MemoryStore,
) -> None:
    book.open_everybody(store)
    book.open_funds(store)
    book.fund(store, usd(1.74))
    book.hold(store, usd(1.74))
    book.capture(store, hours(0), MILLIS)
    book.release(store)
    invoiced.tax_the_eu(store)
    invoiced.details(store, book.CONSUMER)
    invoiced.soft_close(store)

    outcome = invoiced.issue(store)
    assert [type(each.refusal) for each in outcome.refused] == [FundsInsufficient]
    assert not InvoiceRow.objects.exists()
    book.fund(store, usd(5), entry="more", reference="more", now=LATER)
    invoiced.follow(store)

    assert len(invoiced.issue(store).issued) == 1
    row = of(book.FUNDS)
    assert (row.number, row.kind, row.tax_nanos) == ("REC-2026-0001", "receipt", 33 * CENT)


def test_a_credit_note_gives_back_net_and_tax_and_names_what_it_corrects(
    unit: MemoryStore,
) -> None:
    invoiced.tax_the_eu(unit)
    invoiced.details(unit, book.CONSUMER)
    invoiced.soft_close(unit)
    invoiced.issue(unit)
    row = of(book.FUNDS)

    credit_id = invoiced.credit(unit, row)

    note = CreditNoteRow.objects.get(pk=credit_id)
    assert (note.number, note.total_nanos) == ("CN-2026-0001", row.total_nanos)
    assert moved(book.FUNDS, *BILLED, "rounding", "tax", "credit") == 0
    assert moved(tax_account(PLATFORM_ID, "USD"), "tax", "credit") == 0
    assert of(book.FUNDS).credited_nanos == row.total_nanos
    [entry] = JournalEntryRow.objects.filter(kind="credit")
    assert entry.reference == note.number
    assert invoice_of(AUDITOR, entry.pk, position=10**9) == note.number
    assert disagreements() == []


def test_nothing_is_invoiced_for_a_month_without_charges(store: MemoryStore) -> None:
    book.open_everybody(store)
    book.open_funds(store)
    invoiced.soft_close(store)

    assert invoiced.issue(store).issued == ()
    draft = compose(AccountRow.objects.get(pk=book.FUNDS), MONTH, as_of=read_up_to("ledger.money"))
    with pytest.raises(NothingToInvoice):
        issue_invoice(store, draft, user_id=JOAN, by=SOMEBODY, now=LATER)


def test_closed_months_are_invoiced_by_themselves_where_finance_wants_it(
    unit: MemoryStore,
) -> None:
    invoiced.soft_close(unit)
    invoiced.close(unit)
    assert invoicing.see_to_invoices(unit, now=LATER) == 0

    invoiced.details(unit, PLATFORM_ID, issues_by_itself=True)
    assert invoicing.see_to_invoices(unit, now=LATER) == 1
    invoiced.follow(unit)
    assert invoicing.see_to_invoices(unit, now=LATER) == 1  # its file
    invoiced.follow(unit)
    assert invoicing.see_to_invoices(unit, now=LATER) == 0
    assert of(book.FUNDS).sha256


def test_rows_of_invoices_are_what_their_streams_say(busy: MemoryStore) -> None:
    invoiced.issue(busy)
    invoiced.credit(busy, of(CHEM))
    invoicing.archive_documents(busy, now=LATER)
    invoiced.follow(busy)
    tables = (*MONEY.tables, *INVOICES.tables)
    before = fingerprint(tables)

    rebuild(busy, MONEY)
    rebuild(busy, INVOICES)

    assert fingerprint(tables) == before


def test_the_rows_of_an_export_that_name_an_invoice_are_its_total(busy: MemoryStore) -> None:
    invoiced.issue(busy)
    invoiced.credit(busy, of(CHEM), ("001", CENT))
    summed: dict[str, int] = defaultdict(int)
    position = read_up_to("ledger.money")
    for period in (MONTH, MONTH.next):
        parts = exports.export(AUDITOR, "focus", period=period, position=position)
        for row in rows_of(b"".join(parts).decode()):
            summed[row["InvoiceId"]] += nanos(row["BilledCost"])

    for account_id in (CHEM, RENDER):
        assert summed[of(account_id).number] == of(account_id).total_nanos
    assert of(ASTRO).number not in summed
    [note] = CreditNoteRow.objects.all()
    assert summed[note.number] == -CENT
