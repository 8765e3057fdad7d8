"""Statements of months as documents: their rows say all of it, so it is the same each time."""

from __future__ import annotations

from ledger.documents.document import Column, Document, Table
from ledger.documents.papers import day, party_lines
from ledger.domain.money import NANOS_PER_UNIT
from ledger.models import PaperRow

OF_EARNINGS = (
    Column("Movement", 5),
    Column("Consumers paid", 3, numeric=True),
    Column("Fee", 3, numeric=True),
    Column("Amount", 3, numeric=True),
)
OF_OTHERS = (Column("Movement", 7), Column("Amount", 3, numeric=True))
EXACT = "Amounts are those of the ledger, to a billionth. Opening and movements make the closing."


def statement_paper(row: PaperRow) -> Document:
    """Return a statement as a document."""
    earned = row.account_kind == "earnings"
    facts = [
        ("Number", row.number),
        ("Date", day(row.issued_at)),
        ("Month", f"{row.period} (UTC)"),
        ("Account", row.account_title),
        ("", str(row.account_id)),
    ]
    if row.replaces:
        facts.insert(1, ("Replaces", row.replaces))
    blank = ("", "") if earned else ()
    lines = [
        (
            line["title"],
            *(_parts(line["gross_nanos"], line["fee_nanos"]) if earned else ()),
            exactly(line["nanos"]),
        )
        for line in row.lines
    ]
    closing = (f"Closing, {row.currency}", *blank, exactly(row.total_nanos))
    held = ("Of that set aside", *blank, exactly(row.held_nanos))
    return Document(
        title=f"Statement {row.number}",
        issuer=party_lines(row.issuer),
        addressee=party_lines(row.party),
        facts=tuple(facts),
        tables=(
            Table(
                columns=OF_EARNINGS if earned else OF_OTHERS,
                rows=(("Opening", *blank, exactly(row.opening_nanos)), *lines),
                totals=(*((held,) if row.held_nanos else ()), closing),
            ),
        ),
        notes=(EXACT, *held_words(row)),
        footer=f"{row.issuer['name']} · {row.number}",
    )


def exactly(nanos: int) -> str:
    """Write an amount to the nano-unit, so that amounts below each other align: 1,234.500000000."""
    whole, rest = divmod(abs(nanos), NANOS_PER_UNIT)
    return f"{'-' if nanos < 0 else ''}{whole:,}.{rest:09d}"


def held_words(row: PaperRow) -> tuple[str, ...]:
    """Return what the amount that is set aside means; nothing where none is."""
    if not row.held_nanos:
        return ()
    why = "contested charges" if row.account_kind == "earnings" else "bids and leases"
    return (f"Set aside for {why} when this was written, on {day(row.issued_at)}.",)


def _parts(gross: int, fee: int) -> tuple[str, str]:
    return (exactly(gross), exactly(fee)) if gross or fee else ("", "")
