"""Owners' invoices that the platform issues: one a settlement, by agreement, with its tax."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import paying, self_billing, stating
from ledger.commands import payouts as payout_commands
from ledger.commands import self_billing as commands
from ledger.documents import pdf_of
from ledger.documents.self_billed import paper_of
from ledger.domain.account_ids import earnings_account, tax_account
from ledger.domain.ids import AccountId, TenantId, UserId
from ledger.domain.invoice_events import PartyDetails
from ledger.domain.invoices import DraftLine
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.periods import Period
from ledger.domain.reconciling import unexplained, with_the_rest
from ledger.domain.self_billing import (
    NO_VAT_ID,
    SMALL_BUSINESS,
    BillDraft,
    NothingToSelfBill,
    SelfBilledBefore,
    SelfBilling,
    SelfBillingNotAgreed,
    SupplierUnnamed,
)
from ledger.domain.self_billing_events import OwnerTaxAdded, SelfBilledInvoiceIssued
from ledger.domain.settling import Due, PayoutTerms
from ledger.domain.tax import REVERSE_CHARGE
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import load
from ledger.models import AccountRow, EarningRow, PaperRow, PayeeRow, PayoutRow, PostingRow
from ledger.projections.invoices import INVOICES
from ledger.projections.money import MONEY
from ledger.queries import disagreements
from ledger.queries.invoices_add_up import journal_and_invoices
from ledger.queries.payouts import earned
from ledger.queries.payouts_add_up import payouts_that_differ
from ledger.rebuilding import fingerprint, rebuild
from tests.conftest import NOON, SOMEBODY
from tests.ledger import invoiced
from tests.ledger import ledgerbook as book
from tests.ledger.invoiced import JOAN
from tests.ledger.ledgerbook import hours, usd
from tests.ledger.pdf_text import text_of

MILLIS = 3_600_000
CENT = 10_000_000
OWNER = PartyDetails(name="Owner SARL", address=("1 rue",), country="FR", vat_id="FR12345678901")
PLATFORM = PartyDetails(
    name="Offpeak GmbH", address=("Street 1",), country="DE", vat_id="DE123456789"
)
EARNINGS = earnings_account(book.OWNER, "USD")


def draft(*nanos: int, owner: PartyDetails = OWNER, payout: UUID | None = None) -> BillDraft:
    return BillDraft(
        tenant_id=book.OWNER,
        slug="owner",
        account_id=EARNINGS,
        payout_id=payout or uuid4(),
        settlement="2026-W02",
        currency="USD",
        issuer=owner,
        payer=PLATFORM,
        lines=tuple(
            DraftLine(category="use", sku="H100", title="Use", period="2026-01", nanos=each)
            for each in nanos
        ),
        scheme="eu-vat",
    )


def agreed(*, small_business: bool = False) -> SelfBilling:
    [event] = SelfBilling().agree(
        book.OWNER, details=OWNER, small_business=small_business, by=JOAN, now=NOON
    )
    return SelfBilling.evolve(None, event)


def billed(
    state: SelfBilling, of: BillDraft
) -> tuple[SelfBilledInvoiceIssued, SelfBilling, list[OwnerTaxAdded]]:
    issued, *taxes = state.bill(of, platform_id=PLATFORM_ID, now=NOON)
    assert isinstance(issued, SelfBilledInvoiceIssued)
    after = SelfBilling.evolve(state, issued)
    return issued, after, [each for each in taxes if isinstance(each, OwnerTaxAdded)]


def test_nobody_is_billed_for_who_has_not_agreed_or_is_not_named() -> None:
    with pytest.raises(SelfBillingNotAgreed):
        billed(SelfBilling(), draft(5))
    for details in (None, replace(OWNER, address=()), replace(OWNER, country="")):
        with pytest.raises(SupplierUnnamed):
            SelfBilling().agree(
                book.OWNER, details=details, small_business=False, by=JOAN, now=NOON
            )
    state = agreed()
    assert state.agree(book.OWNER, details=OWNER, small_business=False, by=JOAN, now=NOON) == [], (
        "agreeing again is agreeing once"
    )
    [ended] = state.end(by=JOAN, now=NOON)
    over = SelfBilling.evolve(state, ended)
    assert over.end(by=JOAN, now=NOON) == []
    with pytest.raises(SelfBillingNotAgreed):
        billed(over, draft(5))


@pytest.mark.parametrize(
    ("owner", "small", "code", "cents", "note"),
    [
        (replace(OWNER, country="DE", vat_id="DE811907980"), False, "vat-DE", 19_00, ""),
        (OWNER, False, "reverse", 0, REVERSE_CHARGE),
        (OWNER, True, "small", 0, SMALL_BUSINESS),
        (replace(OWNER, vat_id=""), False, "no-vat-id", 0, NO_VAT_ID),
        (replace(OWNER, country="US", vat_id=""), False, None, 0, ""),
    ],
    ids=["the same country", "reverse charge", "small business", "no VAT id", "third country"],
)
def test_the_tax_is_by_who_supplies(
    owner: PartyDetails, small: bool, code: str | None, cents: int, note: str
) -> None:
    issued, _, taxes = billed(agreed(small_business=small), draft(100_00 * CENT, owner=owner))

    assert [(each.code, each.note) for each in issued.taxes] == ([(code, note)] if code else [])
    assert issued.total_nanos == 100_00 * CENT + cents * CENT
    assert [each.money.nanos for each in taxes] == ([cents * CENT] if cents else [])
    for each in taxes:
        assert {line.account_id: line.nanos for line in each.postings} == {
            EARNINGS: cents * CENT,
            tax_account(PLATFORM_ID, "USD"): -cents * CENT,
        }


def test_each_settlement_is_billed_once_and_numbers_have_no_gap() -> None:
    state, payout = agreed(), uuid4()
    first, state, _ = billed(state, draft(CENT, payout=payout))
    with pytest.raises(SelfBilledBefore):
        billed(state, draft(CENT, payout=payout))
    with pytest.raises(NothingToSelfBill):
        billed(state, draft())
    second, state, _ = billed(state, draft(CENT))

    assert [first.number, second.number] == ["SB-OWNER-2026-0001", "SB-OWNER-2026-0002"]


@given(st.lists(st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=5), max_size=8))
def test_all_invoices_together_are_within_half_a_cent(amounts: list[list[int]]) -> None:
    state, exact, net = agreed(), 0, 0
    for each in amounts:
        issued, state, _ = billed(state, draft(*each))
        exact, net = exact + sum(each), net + issued.net_nanos
        assert issued.net_nanos % CENT == 0
        assert issued.net_nanos == sum(line.nanos for line in issued.lines)
        assert issued.exact_nanos == sum(each)
        assert abs(exact - net) <= CENT // 2


# --- from the earnings to the paper -------------------------------------------------------------


@pytest.fixture
def earning(store: MemoryStore) -> MemoryStore:
    """Return a German owner that agreed, and whose GPU was used."""
    book.open_everybody(store)
    book.open_funds(store, kind="chargeback", overdraft_nanos=None)
    book.hold(store, usd(100))
    book.capture(store, hours(0), MILLIS)
    book.capture(store, hours(1), MILLIS * 3)
    invoiced.tax_the_eu(store)
    invoiced.details(
        store, book.OWNER, name="Rechenhalle eG", vat_id="DE811907980", email="a@rechen.example"
    )
    return store


def agree(store: MemoryStore, *, now: datetime = NOON) -> None:
    commands.agree_to_self_billing(
        store, book.OWNER, small_business=False, user_id=JOAN, by=SOMEBODY, now=now
    )
    invoiced.follow(store)


def settle(store: MemoryStore, week: int = 2) -> UUID:
    """Request the payout of all that was earned."""
    row = PayeeRow.objects.get(pk=EARNINGS)
    found = earned(row, Due(f"2026-W{week:02d}", date(2027, 1, 1)), held_days=0)
    payout_id, _ = payout_commands.settle_earnings(
        store,
        paying.of_row(row),
        Due(f"2026-W{week:02d}", date(2027, 1, 1)),
        found,
        terms=PayoutTerms(minimum_nanos=CENT, held_days=0),
        unit=CENT,
        platform_id=PLATFORM_ID,
        user_id=UserId(uuid4()),
        by=SOMEBODY,
        now=NOON + timedelta(days=7 * week),
    )
    invoiced.follow(store)
    assert payout_id is not None
    return payout_id


def bill(store: MemoryStore) -> int:
    done = self_billing.bill_settlements(store, now=NOON + timedelta(days=30))
    invoiced.follow(store)
    return done


@pytest.mark.django_db
def test_a_settlement_is_invoiced_with_fee_tax_and_its_payout(earning: MemoryStore) -> None:
    agree(earning)
    payout_id = settle(earning)

    assert bill(earning) == 1
    assert bill(earning) == 0

    row = PaperRow.objects.get()
    assert (row.kind, row.payout_id, row.email) == ("self-billed", payout_id, "a@rechen.example")
    use, fee = row.lines
    rows = EarningRow.objects.filter(kind="usage")
    gross, taken = (sum(rows.values_list(name, flat=True)) for name in ("gross_nanos", "fee_nanos"))
    assert (use["exact_nanos"], fee["exact_nanos"]) == (gross, -taken)
    assert (use["quantity"], fee["category"]) == ("4.000", "fee")
    account = AccountRow.objects.get(pk=EARNINGS)
    payout = PayoutRow.objects.get()
    assert account.total_nanos == gross - taken - payout.nanos + row.tax_nanos
    assert row.tax_nanos > 0
    [tax] = PostingRow.objects.filter(account_id=EARNINGS, kind="owner-tax")
    assert (tax.nanos, tax.reference) == (row.tax_nanos, row.number)
    assert disagreements() == [] and payouts_that_differ() == []
    leg = with_the_rest(journal_and_invoices(Period.of(row.issued_at), row.issued_at))
    assert row.number in {pair.subject for pair in leg.pairs}
    assert all(row.number not in each.subject for each in leg.differences)
    PaperRow.objects.update(tax_nanos=row.tax_nanos + CENT)
    leg = with_the_rest(journal_and_invoices(Period.of(row.issued_at), row.issued_at))
    assert {each.amount for each in unexplained([leg]) if row.number in each.subject} == {CENT}
    paper = text_of(pdf_of(paper_of(row)))
    for words in ("Self-billing", "Rechenhalle eG", "VAT 19%", "Fee of the platform", row.number):
        assert words in paper


@pytest.mark.django_db
def test_the_tax_is_paid_with_the_next_payout_and_is_no_supply(earning: MemoryStore) -> None:
    agree(earning)
    settle(earning)
    bill(earning)
    first = PaperRow.objects.get()

    settle(earning, week=3)

    second = PayoutRow.objects.latest("requested_at")
    assert 0 <= second.nanos - first.tax_nanos < CENT
    assert bill(earning) == 0, "taxes alone are no supply"
    book.capture(earning, hours(2), MILLIS)
    invoiced.follow(earning)
    settle(earning, week=4)
    assert bill(earning) == 1
    newest = PaperRow.objects.latest("position")
    assert [line["category"] for line in newest.lines] == ["use", "fee"]
    assert newest.number.endswith("-0002")


@pytest.mark.django_db
def test_what_was_settled_before_the_agreement_is_not_invoiced(earning: MemoryStore) -> None:
    settle(earning)
    agree(earning, now=NOON + timedelta(days=20))
    assert bill(earning) == 0
    book.capture(earning, hours(2), MILLIS)
    invoiced.follow(earning)
    settle(earning, week=4)
    assert bill(earning) == 1
    commands.end_self_billing(earning, book.OWNER, user_id=JOAN, by=SOMEBODY, now=NOON)
    book.capture(earning, hours(3), MILLIS)
    invoiced.follow(earning)
    settle(earning, week=5)
    assert bill(earning) == 0


@pytest.mark.django_db
def test_who_is_killed_between_invoice_and_file_goes_on(earning: MemoryStore) -> None:
    agree(earning)
    settle(earning)
    draft_of = self_billing.compose_bill(PayoutRow.objects.get())
    commands.issue_self_billed(earning, draft_of, by=SOMEBODY, now=NOON + timedelta(days=30))
    # Killed before rows were written, the loop asks for the same again: it is there already.
    assert self_billing.bill_settlements(earning, now=NOON + timedelta(days=30)) == 0
    with pytest.raises(SelfBilledBefore):
        commands.issue_self_billed(earning, draft_of, by=SOMEBODY, now=NOON)
    invoiced.follow(earning)
    assert stating.archive_papers(earning, now=NOON) == 1
    invoiced.follow(earning)
    assert stating.archive_papers(earning, now=NOON) == 0
    known = load(earning, SelfBilling, TenantId(book.OWNER))
    assert known is not None and len(known.bills) == 1
    tables = (*INVOICES.tables, *MONEY.tables)
    before = fingerprint(tables)

    rebuild(earning, MONEY)
    rebuild(earning, INVOICES)

    assert fingerprint(tables) == before


def test_an_owner_has_one_account_for_taxes_of_all_its_invoices() -> None:
    _, _, [tax] = billed(
        agreed(), draft(-CENT * 100, owner=replace(OWNER, country="DE", vat_id="DE811907980"))
    )
    assert tax.money.nanos == -19 * CENT, "what is owed back takes its tax with it"
    assert AccountId(tax.account_id) == EARNINGS
