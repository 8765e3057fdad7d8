"""The rules of invoices: numbers without gaps, lines that sum, tax, and credit by two people."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.closing import SecondPersonNeeded
from ledger.domain.credit_notes import (
    CreditExceedsLine,
    CreditLineUnknown,
    CreditNoteAskedOtherwise,
    CreditNoteUnknown,
    CreditNotWhole,
    CreditReasonMissing,
    NothingToCredit,
)
from ledger.domain.ids import TenantId, UserId
from ledger.domain.invoice_events import (
    CreditedLine,
    CreditNoteAsked,
    InvoiceEvent,
    InvoiceIssued,
    PartyDetails,
)
from ledger.domain.invoices import (
    Draft,
    InvoiceIssuedBefore,
    Invoices,
    InvoicesMoved,
    LaterMonthInvoiced,
    NothingToInvoice,
)
from ledger.domain.periods import Period
from ledger.domain.refusal import Refusal
from ledger.domain.rounding import half_up, lines_to_total, unit_of
from ledger.domain.tax import EuVat, TaxCountryMissing, VatIdUnreadable, tax_on, vat_id_read
from tests.ledger.drafts import PAYER, draft

ISSUER = TenantId(uuid4())
JOAN, OSCAR = UserId(uuid4()), UserId(uuid4())
DECEMBER = Period(2026, 12)
NOW = datetime(2026, 12, 2, tzinfo=UTC)
NEXT_YEAR = datetime(2027, 1, 2, tzinfo=UTC)
CENT = unit_of("EUR")
AMOUNTS = st.integers(-(10**13), 10**13)


def after(known: Invoices, *events: InvoiceEvent) -> Invoices:
    for event in events:
        known = Invoices.evolve(known, event)
    return known


def issued(of: Draft) -> tuple[Invoices, InvoiceIssued]:
    [event] = Invoices().issue(of, issuer_id=ISSUER, by=JOAN, now=NOW)
    return after(Invoices(), event), event


# --- rounding ----------------------------------------------------------------------------------


@given(st.lists(AMOUNTS, min_size=1, max_size=60), st.sampled_from(["EUR", "JPY", "KWD"]))
def test_rounded_lines_sum_to_the_rounded_total_and_each_is_within_a_unit(
    nanos: list[int], currency: str
) -> None:
    unit = unit_of(currency)

    whole = lines_to_total(nanos, unit)

    assert sum(whole) == half_up(sum(nanos), unit)
    assert all(each % unit == 0 for each in whole)
    assert all(abs(each - exact) < unit for each, exact in zip(whole, nanos, strict=True))
    assert lines_to_total(nanos, unit) == whole


def test_a_half_cent_goes_up_and_ties_go_to_the_earlier_line() -> None:
    half = CENT // 2

    assert lines_to_total([half, half], CENT) == [CENT, 0]
    assert lines_to_total([half], CENT) == [CENT]
    assert lines_to_total([half - 1], CENT) == [0]
    assert lines_to_total([-half], CENT) == [0]


# --- numbers -----------------------------------------------------------------------------------


def test_numbers_have_no_gap_and_begin_anew_each_year_and_for_each_kind() -> None:
    known = Invoices()
    numbers = []
    for kind, now in (
        ("invoice", NOW), ("receipt", NOW), ("invoice", NOW), ("internal", NOW),
        ("invoice", NEXT_YEAR), ("receipt", NOW),
    ):  # fmt: skip
        of = replace(draft(CENT), kind=kind)  # type: ignore[arg-type]  # one of the kinds
        [event] = known.issue(of, issuer_id=ISSUER, by=JOAN, now=now)
        known = after(known, event)
        numbers.append(event.number)

    assert numbers == [
        "INV-2026-0001", "REC-2026-0001", "INV-2026-0002", "INT-2026-0001",
        "INV-2027-0001", "REC-2026-0002",
    ]  # fmt: skip


def test_a_month_of_an_account_is_invoiced_once() -> None:
    of = draft(CENT)
    known, first = issued(of)

    with pytest.raises(InvoiceIssuedBefore) as refused:
        known.issue(of, issuer_id=ISSUER, by=JOAN, now=NOW)
    assert refused.value.details["number"] == first.number


def test_months_are_invoiced_in_order_and_from_what_the_last_one_left() -> None:
    of = draft(CENT)
    known, first = issued(replace(of, period=DECEMBER))

    with pytest.raises(LaterMonthInvoiced):
        known.issue(of, issuer_id=ISSUER, by=JOAN, now=NOW)
    later = replace(of, period=DECEMBER.next)
    with pytest.raises(InvoicesMoved):
        known.issue(later, issuer_id=ISSUER, by=JOAN, now=NOW)
    assert known.issue(replace(later, follows=first.invoice_id), issuer_id=ISSUER, by=JOAN, now=NOW)


def test_nothing_is_no_invoice() -> None:
    with pytest.raises(NothingToInvoice):
        Invoices().issue(draft(), issuer_id=ISSUER, by=JOAN, now=NOW)


def test_an_invoice_says_what_it_was_rounded_by() -> None:
    _, invoice = issued(draft(333_333_333, 333_333_333, 333_333_339))

    assert invoice.exact_nanos == 1_000_000_005
    assert [each.nanos // CENT for each in invoice.lines] == [33, 33, 34]
    assert invoice.net_nanos == invoice.total_nanos == 100 * CENT


# --- tax ---------------------------------------------------------------------------------------

EXAMPLES = [
    # issuer, customer, customer's VAT id, rate in ppm, begins with
    ("DE", "DE", "", 190_000, ""),
    ("DE", "DE", "DE123456789", 190_000, ""),
    ("DE", "FR", "FR12345678901", 0, "Reverse charge"),
    ("DE", "FR", "", 200_000, ""),
    ("DE", "FR", "DE123456789", 200_000, ""),
    ("FR", "GR", "EL123456789", 0, "Reverse charge"),
    ("FR", "GR", "GR123456789", 240_000, ""),
    ("DE", "FI", "", 255_000, ""),
    ("DE", "CH", "CHE123456789", 0, "Not subject to EU VAT"),
    ("DE", "US", "", 0, "Not subject to EU VAT"),
]


@pytest.mark.parametrize(("home", "there", "vat_id", "rate_ppm", "note"), EXAMPLES)
def test_eu_vat_follows_from_both_countries_and_the_vat_id(
    home: str, there: str, vat_id: str, rate_ppm: int, note: str
) -> None:
    issuer = PartyDetails(name="A", country=home)
    payer = PartyDetails(name="B", country=there, vat_id=vat_id)

    treatment = EuVat().treat("use", issuer=issuer, payer=payer)

    assert treatment is not None and treatment.rate_ppm == rate_ppm
    assert treatment.note.startswith(note) and bool(treatment.note) == bool(note)


def test_outside_the_eu_the_example_taxes_nothing() -> None:
    issuer, payer = PartyDetails(name="A", country="US"), PartyDetails(name="B", country="DE")

    assert EuVat().treat("use", issuer=issuer, payer=payer) is None


def test_a_party_without_a_country_cannot_be_taxed() -> None:
    of = replace(draft(CENT), rule=EuVat(), payer=PartyDetails(name="B"))

    with pytest.raises(TaxCountryMissing) as refused:
        Invoices().issue(of, issuer_id=ISSUER, by=JOAN, now=NOW)
    assert refused.value.details["party"] == "payer"


def test_tax_is_worked_out_on_the_sum_of_the_rounded_lines() -> None:
    home = replace(PAYER, country="DE", vat_id="")
    _, invoice = issued(replace(draft(1_005_000_000, 2_344_999_999), rule=EuVat(), payer=home))

    [tax] = invoice.taxes
    assert (tax.code, tax.base_nanos) == ("vat-DE", invoice.net_nanos) == ("vat-DE", 335 * CENT)
    assert tax.nanos == 64 * CENT  # 0.6365, a half up
    assert invoice.total_nanos == 399 * CENT
    assert {each.tax for each in invoice.lines} == {"vat-DE"}


def test_within_an_organisation_nothing_is_taxed() -> None:
    _, invoice = issued(replace(draft(CENT), kind="internal", rule=EuVat()))

    assert invoice.taxes == () and invoice.tax_nanos == 0


@pytest.mark.parametrize(
    "text", ["12", "D", "DE1", "DE 123 456 789 012 345", "\u0414\u0415123456789"]
)
def test_a_vat_id_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(VatIdUnreadable):
        vat_id_read(text)


def test_a_vat_id_is_printed_without_blanks() -> None:
    assert vat_id_read("de 123-456.789") == "DE123456789"
    assert vat_id_read(" ") == ""


# --- credit notes ------------------------------------------------------------------------------


def asked(
    known: Invoices, invoice: InvoiceIssued, *lines: tuple[str, int], reason: str = "double"
) -> CreditNoteAsked:
    [event] = known.ask_credit(
        credit_id=uuid4(),
        invoice_id=invoice.invoice_id,
        lines=[CreditedLine(line_id=key, nanos=nanos) for key, nanos in lines],
        reason=reason,
        by=JOAN,
        now=NOW,
    )
    return event


def test_whoever_asked_for_a_credit_note_does_not_approve_it() -> None:
    known, invoice = issued(draft(500 * CENT))
    ask = asked(known, invoice, ("001", 100 * CENT))
    known = after(known, ask)

    with pytest.raises(SecondPersonNeeded):
        known.approve_credit(ask.credit_id, by=JOAN, now=NOW)
    [note] = known.approve_credit(ask.credit_id, by=OSCAR, now=NOW)

    assert note.number == "CN-2026-0001" and note.total_nanos == 100 * CENT
    known = after(known, note)
    assert known.approve_credit(note.credit_id, by=OSCAR, now=NOW) == []
    with pytest.raises(CreditNoteUnknown):
        known.approve_credit(note.credit_id, by=UserId(uuid4()), now=NOW)


def test_a_number_is_not_used_up_by_what_was_declined() -> None:
    known, invoice = issued(draft(500 * CENT))
    first = asked(known, invoice, ("001", CENT))
    known = after(known, first)
    known = after(known, *known.decline_credit(first.credit_id, by=OSCAR, now=NOW))
    second = asked(known, invoice, ("001", 500 * CENT))
    known = after(known, second)

    [note] = known.approve_credit(second.credit_id, by=OSCAR, now=NOW)
    assert note.number == "CN-2026-0001"


@pytest.mark.parametrize(
    ("lines", "refusal"),
    [
        ([("009", CENT)], CreditLineUnknown),
        ([("001", CENT + 1)], CreditNotWhole),
        ([("001", 0)], CreditNotWhole),
        ([("001", -CENT)], CreditNotWhole),
        ([("001", 501 * CENT)], CreditExceedsLine),
        ([("001", CENT), ("001", CENT)], CreditLineUnknown),
        ([("002", CENT)], CreditLineUnknown),
        ([("001", 450 * CENT)], CreditExceedsLine),
    ],
)
def test_what_cannot_be_credited_is_refused(
    lines: list[tuple[str, int]], refusal: type[Refusal]
) -> None:
    """The second line gave 100 cents back, so 400 are left of the invoice."""
    known, invoice = issued(draft(500 * CENT, -100 * CENT))

    with pytest.raises(refusal):
        asked(known, invoice, *lines)


def test_a_credit_has_a_reason_and_an_id_of_its_own() -> None:
    known, invoice = issued(draft(500 * CENT))
    with pytest.raises(CreditReasonMissing):
        asked(known, invoice, reason=" ")
    ask = asked(known, invoice, ("001", CENT))
    known = after(known, ask)

    def again(reason: str) -> list[CreditNoteAsked]:
        return known.ask_credit(
            credit_id=ask.credit_id,
            invoice_id=invoice.invoice_id,
            lines=ask.lines,
            reason=reason,
            by=JOAN,
            now=NOW,
        )

    assert again("double") == []
    with pytest.raises(CreditNoteAskedOtherwise):
        again("other")


def test_what_waits_for_approval_counts_as_credited() -> None:
    known, invoice = issued(draft(500 * CENT))
    known = after(known, asked(known, invoice))

    with pytest.raises(NothingToCredit):
        asked(known, invoice)


@given(
    st.lists(st.integers(-(10**11), 10**12), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 7), st.integers(1, 10**5)), max_size=20),
)
def test_credits_never_exceed_the_invoice_and_all_of_it_gives_the_tax_back_to_the_cent(
    nanos: list[int], parts: list[tuple[int, int]]
) -> None:
    home = replace(PAYER, country="DE", vat_id="")
    known, invoice = issued(replace(draft(*nanos), rule=EuVat(), payer=home))
    net = tax = 0
    for index, cents in [*parts, (-1, 0)]:
        lines = [(f"{index + 1:03d}", cents * CENT)] if index >= 0 else []
        try:
            ask = asked(known, invoice, *lines)
        except Refusal:
            continue
        known = after(known, ask)
        [note] = known.approve_credit(ask.credit_id, by=OSCAR, now=NOW)
        known = after(known, note)
        net, tax = net + note.net_nanos, tax + note.tax_nanos

    if invoice.net_nanos > 0:
        assert (net, tax) == (invoice.net_nanos, invoice.tax_nanos)
    else:
        assert (net, tax) == (0, 0)
    assert tax == tax_on(net, 190_000, CENT)
