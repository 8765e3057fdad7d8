"""Invoices and credit notes as documents: their rows say all of it, so it is the same each time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ledger.documents.document import Column, Document, Table
from ledger.domain.money import NANOS_PER_UNIT, decimal_of
from ledger.domain.rounding import digits_of
from ledger.models import CreditNoteRow, InvoiceRow

TITLES = {"invoice": "Invoice", "internal": "Internal invoice", "receipt": "Receipt"}
CREDIT_NOTE = "Credit note"
LINES = (
    Column("Item", 6),
    Column("Month", 2),
    Column("Quantity", 4, numeric=True),
    Column("Amount", 3, numeric=True),
)


def coins(nanos: int, currency: str) -> str:
    """Write an amount that is whole in the currency's smallest unit: 1,234.50."""
    digits = digits_of(currency)
    whole, rest = divmod(abs(nanos), NANOS_PER_UNIT)
    fraction = f".{rest:09d}"[: digits + 1] if digits else ""
    return f"{'-' if nanos < 0 else ''}{whole:,}{fraction}"


def invoice_paper(row: InvoiceRow) -> Document:
    """Return an invoice as a document."""
    facts = [
        ("Number", row.number),
        ("Date", day(row.issued_at)),
        ("Month", f"{row.period} (UTC)"),
        ("Account", str(row.account_id)),
    ]
    notes = [tax["note"] for tax in row.taxes if tax["note"]]
    if row.kind == "receipt":
        notes.insert(0, paid_words(row))
    else:
        facts.insert(2, ("Due", day(row.issued_at + timedelta(days=row.due_days))))
        notes.append(exact_words(row))
    if order := row.payer.get("purchase_order"):
        facts.insert(-1, ("Your order", order))
    if row.kind == "internal":
        notes.insert(0, "Billed within one organisation; no tax applies.")
    return Document(
        title=f"{TITLES[row.kind]} {row.number}",
        issuer=party_lines(row.issuer),
        addressee=party_lines(row.payer),
        facts=tuple(facts),
        tables=(
            Table(
                columns=LINES,
                rows=tuple(line_of(line, line["nanos"], row.currency) for line in row.lines),
                totals=_totals(row),
            ),
        ),
        notes=tuple(notes),
        footer=f"{row.issuer['name']} · {row.number}",
    )


def credit_paper(row: CreditNoteRow, invoice: InvoiceRow) -> Document:
    """Return an issued credit note as a document. invoice: the one that it corrects."""
    lines = {line["line_id"]: line for line in invoice.lines}
    assert row.decided_at is not None, "only an issued credit note is a document"
    return Document(
        title=f"{CREDIT_NOTE} {row.number}",
        issuer=party_lines(invoice.issuer),
        addressee=party_lines(invoice.payer),
        facts=(
            ("Number", row.number),
            ("Date", day(row.decided_at)),
            ("Corrects", f"{TITLES[invoice.kind].lower()} {invoice.number}"),
            ("Reason", row.reason),
            ("Account", str(row.account_id)),
        ),
        tables=(
            Table(
                columns=LINES,
                rows=tuple(
                    line_of(lines[each["line_id"]], each["nanos"], row.currency, quantity=False)
                    for each in row.lines
                ),
                totals=_totals(row),
            ),
        ),
        notes=(
            "The amount is credited to the account.",
            *(tax["note"] for tax in row.taxes if tax["note"]),
        ),
        footer=f"{invoice.issuer['name']} · {row.number}",
    )


def party_lines(details: dict[str, Any]) -> tuple[str, ...]:
    """Return a party's name and address, line by line."""
    said = [details["name"], *details["address"]]
    if details["country"]:
        said.append(details["country"])
    if details["vat_id"]:
        said.append(f"VAT id {details['vat_id']}")
    return tuple(said)


def day(moment: datetime) -> str:
    """Write the day of a moment in UTC."""
    return moment.astimezone(UTC).date().isoformat()


def exact_words(row: InvoiceRow) -> str:
    """Return how the lines were rounded."""
    exact = decimal_of(row.exact_nanos)
    return (
        f"Use is charged to a billionth of a {row.currency}: these lines are {exact} exactly, and"
        " were rounded once, to the total."
    )


def paid_words(row: InvoiceRow) -> str:
    """Return that a receipt's use is paid, and what is taken besides."""
    said = f"Paid from the prepaid account as it was used, {decimal_of(row.exact_nanos)} exactly."
    return f"{said} The tax was taken from it with this receipt." if row.tax_nanos else said


def line_of(
    line: dict[str, Any], nanos: int, currency: str, *, quantity: bool = True
) -> tuple[str, ...]:
    """Return a line of an invoice as a row of its table."""
    title = line["title"]
    if line["corrects"]:
        title += f" (adds to {line['corrects']})"
    amount = f"{line['quantity']} {line['unit']}".strip() if quantity else ""
    return title, line["period"], amount, coins(nanos, currency)


def _totals(row: InvoiceRow | CreditNoteRow) -> tuple[tuple[str, ...], ...]:
    said = [("Net", "", "", coins(row.net_nanos, row.currency))] if row.taxes else []
    for tax in row.taxes:
        base = f"on {coins(tax['base_nanos'], row.currency)}"
        said.append((tax["title"], "", base, coins(tax["nanos"], row.currency)))
    title = f"Total in {row.currency}"
    return (*said, (title, "", "", coins(row.total_nanos, row.currency)))
