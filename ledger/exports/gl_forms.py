"""The journals of `gl` in the forms that SAP, NetSuite and QuickBooks take in.

Each account goes by what the mapping calls its kind there, and by its own title in the line's text.
The amounts are those of `gl`: cents whose rest is carried, every journal balanced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ledger.domain.gl_mapping import GlMapping
from ledger.exports.entries import Books
from ledger.exports.gl import Line, csv_lines, journals

SAP_COLUMNS = (
    "BUKRS",
    "BLART",
    "BLDAT",
    "BUDAT",
    "WAERS",
    "XBLNR",
    "BKTXT",
    "BUZEI",
    "SHKZG",
    "HKONT",
    "WRBTR",
    "KOSTL",
    "ZUONR",
    "SGTXT",
)
"""Fields of a document's head (BKPF) and of its items (BSEG), by their names in SAP."""
NETSUITE_COLUMNS = (
    "External ID",
    "Date",
    "Posting Period",
    "Subsidiary",
    "Currency",
    "Account",
    "Debit",
    "Credit",
    "Department",
    "Memo",
    "Line Memo",
)
"""Columns that NetSuite's import of journal entries maps by itself."""
IIF_FIELDS = ("TRNSTYPE", "DATE", "ACCNT", "CLASS", "AMOUNT", "DOCNUM", "MEMO")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

SAP_HEAD_LENGTH, SAP_LINE_LENGTH, SAP_REFERENCE_LENGTH = 25, 50, 18
"""How many characters BKTXT, SGTXT and ZUONR hold."""


def sap(books: Books, mapping: GlMapping) -> Iterator[str]:
    """Yield a CSV file with the fields of SAP's documents, one line an item."""

    def cells(line: Line) -> Sequence[str]:
        day = line.day.strftime("%Y%m%d")
        return (
            mapping.company,
            mapping.document_type,
            day,
            day,
            line.currency,
            line.entry_no,
            f"Offpeak {line.kind} {line.period}"[:SAP_HEAD_LENGTH],
            f"{line.number:03d}",
            "S" if line.is_debit else "H",
            mapping.account(line.account.kind),
            line.written,
            line.cost_centre,
            str(line.account.account_id or "")[:SAP_REFERENCE_LENGTH],
            line.account.title[:SAP_LINE_LENGTH],
        )

    return csv_lines(SAP_COLUMNS, cells, journals(books))


def netsuite(books: Books, mapping: GlMapping) -> Iterator[str]:
    """Yield a CSV file for NetSuite's import of journal entries."""

    def cells(line: Line) -> Sequence[str]:
        return (
            line.entry_no,
            line.day.strftime("%m/%d/%Y"),
            f"{MONTHS[line.period.month - 1]} {line.period.year}",
            mapping.company,
            line.currency,
            mapping.account(line.account.kind),
            line.written if line.is_debit else "",
            "" if line.is_debit else line.written,
            line.cost_centre,
            f"Offpeak {line.kind} {line.period}",
            line.account.title,
        )

    return csv_lines(NETSUITE_COLUMNS, cells, journals(books))


def iif(books: Books, mapping: GlMapping) -> Iterator[str]:
    """Yield a file of QuickBooks' Intuit Interchange Format: general journal entries.

    It knows no currencies, so an account's name ends with its own. A debit is above zero.
    """
    yield "\t".join(("!TRNS", *IIF_FIELDS)) + "\r\n"
    yield "\t".join(("!SPL", *IIF_FIELDS)) + "\r\n"
    yield "!ENDTRNS\r\n"
    for journal in journals(books):
        for first, line in enumerate(journal):
            sign = "" if line.is_debit else "-"
            cells = (
                "SPL" if first else "TRNS",
                "GENERAL JOURNAL",
                line.day.strftime("%m/%d/%Y"),
                f"{mapping.account(line.account.kind)} {line.currency}",
                line.cost_centre,
                f"{sign}{line.written}",
                line.entry_no,
                f"{line.kind}: {line.account.title}",
            )
            yield "\t".join(_plain(cell) for cell in cells) + "\r\n"
        yield "ENDTRNS\r\n"


def _plain(cell: str) -> str:
    """Return a cell without what ends one: the format has no way to quote it."""
    return " ".join(cell.replace('"', "'").split())
