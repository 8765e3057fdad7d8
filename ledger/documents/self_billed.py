"""Owners' invoices as documents: their rows say all of it, so it is the same each time."""

from __future__ import annotations

from ledger.documents.document import Document, Table
from ledger.documents.papers import LINES, coins, day, line_of, party_lines
from ledger.documents.statements import statement_paper
from ledger.domain.money import decimal_of
from ledger.models import PaperRow

SELF_BILLING = "Self-billing"
"""What Article 226 of Council Directive 2006/112/EC wants on such an invoice, in these words."""


def paper_of(row: PaperRow) -> Document:
    """Return a statement, or an invoice for an owner, as a document."""
    return self_billed_paper(row) if row.kind == "self-billed" else statement_paper(row)


def self_billed_paper(row: PaperRow) -> Document:
    """Return an owner's invoice to the platform as a document."""
    net = row.total_nanos - row.tax_nanos
    totals = [("Net", "", "", coins(net, row.currency))] if row.taxes else []
    for tax in row.taxes:
        base = f"on {coins(tax['base_nanos'], row.currency)}"
        totals.append((tax["title"], "", base, coins(tax["nanos"], row.currency)))
    totals.append((f"Total in {row.currency}", "", "", coins(row.total_nanos, row.currency)))
    return Document(
        title=f"{title_of_bill(row)} {row.number}",
        issuer=party_lines(row.issuer),
        addressee=party_lines(row.party),
        facts=(
            ("Number", row.number),
            ("Date", day(row.issued_at)),
            ("Settlement", row.period),
            ("Payout", str(row.payout_id)),
            ("Kind", SELF_BILLING),
        ),
        tables=(
            Table(
                columns=LINES,
                rows=tuple(line_of(line, line["nanos"], row.currency) for line in row.lines),
                totals=tuple(totals),
            ),
        ),
        notes=(
            f"{SELF_BILLING}: issued by {row.party['name']} in the name and on behalf of"
            f" {row.issuer['name']}, as agreed.",
            *(tax["note"] for tax in row.taxes if tax["note"]),
            exact_words(row),
        ),
        footer=f"{row.issuer['name']} · {row.number}",
    )


def title_of_bill(row: PaperRow) -> str:
    """Return what it is called: below zero it is owed to the platform."""
    return "Invoice" if row.total_nanos >= 0 else "Credit note"


def exact_words(row: PaperRow) -> str:
    """Return how the lines were rounded, and how the tax is paid."""
    exact = decimal_of(sum(line["exact_nanos"] for line in row.lines))
    said = f"The lines are {exact} exactly; what is less than a cent is carried to the next one."
    return f"{said} The tax is paid with the next payout." if row.tax_nanos else said
