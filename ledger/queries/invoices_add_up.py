"""Whether invoices say what the journal has: a leg of reconciliation (decision 123).

It asks the tables which invoice each charge is on, apart from what composes invoices, and works out
roundings and taxes again from the lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Sum

from ledger.domain.accounts import PAYING_KINDS
from ledger.domain.billed import BILLED
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.periods import Period
from ledger.domain.reconciling import Difference, Leg, Pair
from ledger.domain.rounding import lines_to_total, unit_of
from ledger.domain.self_billing import NOT_SUPPLIED
from ledger.domain.tax import tax_on
from ledger.models import (
    BillingDetailsRow,
    CreditNoteRow,
    EarningRow,
    InvoiceRow,
    PaperRow,
    PayoutRow,
    PostingRow,
    PostingSumRow,
)
from ledger.queries.closing import month

_ON_INVOICES = """
SELECT i.invoice_id, coalesce(-sum(p.nanos), 0)
  FROM ledger_invoicerow i
  LEFT JOIN ledger_postingrow p
    ON p.account_id = i.account_id AND p.kind = ANY(%(kinds)s)
   AND p.period <= i.period AND p.position <= i.as_of
   AND p.period >= (
       SELECT min(f.period) FROM ledger_invoicerow f WHERE f.account_id = i.account_id)
   AND NOT EXISTS (
       SELECT 1 FROM ledger_invoicerow e
        WHERE e.account_id = i.account_id AND e.period < i.period
          AND e.period >= p.period AND e.as_of >= p.position)
 WHERE i.period = %(period)s
 GROUP BY i.invoice_id
"""
_ON_NONE = """
SELECT p.account_id, p.currency, -sum(p.nanos),
       EXISTS (
           SELECT 1 FROM ledger_invoicerow i
            WHERE i.account_id = p.account_id AND i.period >= %(period)s)
  FROM ledger_postingrow p
  JOIN ledger_accountrow a ON a.account_id = p.account_id AND a.kind = ANY(%(paying)s)
 WHERE p.period = %(period)s AND p.kind = ANY(%(kinds)s)
   AND NOT EXISTS (
       SELECT 1 FROM ledger_invoicerow i
        WHERE i.account_id = p.account_id AND i.period >= p.period AND i.as_of >= p.position)
 GROUP BY p.account_id, p.currency
HAVING sum(p.nanos) <> 0
 ORDER BY p.account_id, p.currency
"""


def journal_and_invoices(period: Period, now: datetime) -> Leg:
    """Compare what the journal charges in a month with its invoices, and those with their lines.

    Of each invoice: its charges, its rounding and tax, and its lines. Of each credit note: its
    entry; of each invoice for an owner what it earned, and its tax; of each statement its closing.
    Charges that are on no invoice are told by account: `in-flight` where none was issued
    yet, `late` where they came after it; unless closed months are invoiced by themselves, where
    none is missing.
    """
    pairs, differences = list[Pair](), list[Difference]()
    charged = _charged_on_invoices(period)
    for row in InvoiceRow.objects.filter(period=str(period)).order_by("number").iterator():
        pairs += _of_invoice(row, charged.get(row.pk, 0))
        differences += _lines_that_differ(row)
    within = period.window
    notes = CreditNoteRow.objects.filter(
        state="issued", decided_at__gte=within.starts_at, decided_at__lt=within.ends_at
    )
    for note in notes.order_by("number").iterator():
        given = _posted(note.account_id, note.number, "credit")
        pairs.append(Pair(note.number, f"{note.currency} nanos", given, note.total_nanos))
    papers = PaperRow.objects.filter(issued_at__gte=within.starts_at, issued_at__lt=within.ends_at)
    for paper in papers.filter(kind="self-billed").order_by("number").iterator():
        pairs += _of_owner(paper)
    stated = PaperRow.objects.filter(kind="statement", period=str(period)).order_by("-position")
    if month(period).state == "closed":
        newest = {paper.account_id: paper for paper in reversed(stated)}
        pairs += [_of_statement(paper) for paper in newest.values()]
    missing = _not_invoiced(period)
    pairs += [pair for pair, _ in missing]
    differences += [difference for _, difference in missing if difference is not None]
    return Leg("journal-invoices", "The journal and invoices", pairs, differences)


def _charged_on_invoices(period: Period) -> dict[UUID, int]:
    with connection.cursor() as cursor:
        cursor.execute(_ON_INVOICES, {"kinds": list(BILLED), "period": str(period)})
        return {invoice_id: int(nanos) for invoice_id, nanos in cursor.fetchall()}


def _of_invoice(row: InvoiceRow, charged: int) -> Iterator[Pair]:
    unit = f"{row.currency} nanos"
    yield Pair(row.number, unit, charged, sum(line["exact_nanos"] for line in row.lines))
    residue = 0 if row.kind == "receipt" else row.net_nanos - row.exact_nanos
    posted = -_posted(row.account_id, row.number, "rounding", "tax")
    yield Pair(f"{row.number}, rounding and tax", unit, posted, residue + row.tax_nanos)
    said = sum(line["nanos"] for line in row.lines) + sum(tax["nanos"] for tax in row.taxes)
    yield Pair(f"{row.number}, total", unit, said, row.total_nanos)


def _of_owner(row: PaperRow) -> Iterator[Pair]:
    unit = f"{row.currency} nanos"
    assert row.payout_id is not None, "it is of a settlement"
    payout = PayoutRow.objects.get(pk=row.payout_id)
    earned = EarningRow.objects.filter(account_id=row.account_id, round=payout.round)
    supplied = earned.exclude(kind__in=NOT_SUPPLIED).aggregate(sum=Sum("nanos"))["sum"]
    yield Pair(row.number, unit, int(supplied or 0), sum(line["exact_nanos"] for line in row.lines))
    posted = _posted(row.account_id, row.number, "owner-tax")
    yield Pair(f"{row.number}, tax", unit, posted, row.tax_nanos)
    said = sum(line["nanos"] for line in row.lines) + sum(tax["nanos"] for tax in row.taxes)
    yield Pair(f"{row.number}, total", unit, said, row.total_nanos)


def _of_statement(row: PaperRow) -> Pair:
    sums = PostingSumRow.objects.filter(account_id=row.account_id, period__lte=row.period)
    closing = int(sums.aggregate(sum=Sum("nanos"))["sum"] or 0)
    return Pair(row.number, f"{row.currency} nanos", closing, row.total_nanos)


def _posted(account_id: UUID, number: str, *kinds: str) -> int:
    rows = PostingRow.objects.filter(account_id=account_id, kind__in=kinds, reference=number)
    return int(rows.aggregate(sum=Sum("nanos"))["sum"] or 0)


def _lines_that_differ(row: InvoiceRow) -> Iterator[Difference]:
    """Yield what is not as it is worked out again from the lines: they may hide each other."""
    unit, smallest = f"{row.currency} nanos", unit_of(row.currency)
    whole = lines_to_total([line["exact_nanos"] for line in row.lines], smallest)
    for line, nanos in zip(row.lines, whole, strict=True):
        if line["nanos"] != nanos:
            words = f"{row.number}, line {line['line_id']}: rounded, it is {nanos}"
            yield Difference(row.number, unit, line["nanos"] - nanos, "unexplained", words)
    for tax in row.taxes:
        base = sum(line["nanos"] for line in row.lines if line["tax"] == tax["code"])
        due = tax_on(base, tax["rate_ppm"], smallest)
        if (tax["base_nanos"], tax["nanos"]) != (base, due):
            words = f"{row.number}, {tax['title']}: on {base} it is {due}"
            yield Difference(row.number, unit, tax["nanos"] - due, "unexplained", words)


def _not_invoiced(period: Period) -> list[tuple[Pair, Difference | None]]:
    """Return what is charged and on no invoice, by account, with the reason where there is one."""
    none_missing = month(period).state == "closed" and _issued_by_themselves()
    found = list[tuple[Pair, Difference | None]]()
    with connection.cursor() as cursor:
        cursor.execute(
            _ON_NONE,
            {"kinds": list(BILLED), "paying": sorted(PAYING_KINDS), "period": str(period)},
        )
        rows: list[Any] = cursor.fetchall()
    for account_id, currency, nanos, is_invoiced in rows:
        subject, unit = f"account {account_id}, on no invoice", f"{currency} nanos"
        pair = Pair(subject, unit, int(nanos), 0)
        difference = None
        if is_invoiced:
            words = "charged after the invoice of the month: it is on the next one"
            difference = Difference(subject, unit, -int(nanos), "late", words)
        elif not none_missing:
            words = f"no invoice of {period} was issued for this account yet"
            difference = Difference(subject, unit, -int(nanos), "in-flight", words)
        found.append((pair, difference))
    return found


def _issued_by_themselves() -> bool:
    return BillingDetailsRow.objects.filter(pk=PLATFORM_ID, issues_by_itself=True).exists()
