"""A month as a workbook: its charges as people read them, and its journal line by line.

Amounts stand there twice: as a number to add up, rounded to what a spreadsheet holds exactly (15
digits), and as text with all nine places. The file is made row by row in constant memory and says
that it was made at the month's start, so that the same month gives the same bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ledger.exports.cells import harmless
from ledger.exports.charges import Charge
from ledger.exports.entries import Entry
from ledger.exports.focus import ZERO, amount, row_of
from ledger.exports.tally import CountedBooks

if TYPE_CHECKING:
    from xlsxwriter import Workbook

WRITER = f"xlsxwriter {version('xlsxwriter')}"
"""Another version of it may write other bytes for the same rows."""
ROWS_MAX = 1_048_576
"""Rows of a sheet, its header among them; more go on in another one."""
DIGITS_EXACT = 15
READ_AT_ONCE = 65_536

CHARGE_COLUMNS = (
    ("Organisation", "BillingAccountName"),
    ("Unit", "SubAccountName"),
    ("Cost centre", "x_CostCenter"),
    ("From", "ChargePeriodStart"),
    ("To", "ChargePeriodEnd"),
    ("Category", "ChargeCategory"),
    ("Class", "ChargeClass"),
    ("Description", "ChargeDescription"),
    ("SKU", "SkuId"),
    ("Region", "RegionName"),
    ("Quantity", "PricingQuantity"),
    ("Quantity unit", "PricingUnit"),
    ("Unit price", "ContractedUnitPrice"),
    ("Billed", "BilledCost"),
    ("Billed, exact", "BilledCost"),
    ("Cost", "EffectiveCost"),
    ("Cost, exact", "EffectiveCost"),
    ("List cost, exact", "ListCost"),
    ("Currency", "BillingCurrency"),
    ("Invoice", "InvoiceId"),
    ("Lease", "x_LeaseId"),
    ("Entry", "x_JournalEntryId"),
)
LINE_COLUMNS = (
    "Day",
    "Kind",
    "Account",
    "Account kind",
    "Amount",
    "Amount, exact",
    "Currency",
    "Cost centre",
    "Reference",
    "Lease",
    "Entry",
    "Event",
)
NUMBERS = frozenset({"Billed", "Cost", "Amount"})


def parts(books: CountedBooks, charges: Iterator[Charge]) -> Iterator[bytes]:
    """Yield the file, piece by piece, once all of it is made."""
    import xlsxwriter

    with tempfile.TemporaryDirectory(prefix="offpeak-xlsx-") as folder:
        made = f"{folder}/month.xlsx"
        options = {"constant_memory": True, "tmpdir": folder, "strings_to_formulas": False}
        options |= {"strings_to_urls": False, "strings_to_numbers": False}
        with xlsxwriter.Workbook(made, options) as workbook:
            began = books.period.window.starts_at.astimezone(UTC).replace(tzinfo=None)
            _fill(workbook, books, charges, began)
        with open(made, "rb") as file:
            while piece := file.read(READ_AT_ONCE):
                yield piece


def _fill(
    workbook: Workbook, books: CountedBooks, charges: Iterator[Charge], began: datetime
) -> None:
    workbook.set_properties(
        {
            "title": f"Offpeak {books.period}",
            "comments": f"As of event {books.position}. Amounts with all places are text.",
            "created": began,
        }
    )
    bought = _Sheets(workbook, "Charges", [heading for heading, _ in CHARGE_COLUMNS])
    for charge in charges:
        row = row_of(charge, period=books.period)
        bought.add([row.get(column, "") for _, column in CHARGE_COLUMNS])
    journal = _Sheets(workbook, "Journal", LINE_COLUMNS)
    for entry in books.entries():
        for line in _lines(entry):
            journal.add(line)


def _lines(entry: Entry) -> Iterator[list[str]]:
    for account, nanos in entry.lines:
        yield [
            entry.day.isoformat(),
            entry.kind,
            account.title,
            account.kind,
            amount(nanos),
            amount(nanos),
            entry.currency,
            entry.cost_centre,
            entry.reference,
            str(entry.lease_id or ""),
            str(entry.entry_id),
            str(entry.position),
        ]


class _Sheets:
    """A table over as many sheets as it needs: `Charges`, `Charges 2` …"""

    def __init__(self, workbook: Workbook, title: str, headings: Sequence[str]) -> None:
        self._workbook, self._title, self._headings = workbook, title, headings
        self._bold = workbook.add_format({"bold": True})
        self._money = workbook.add_format({"num_format": "#,##0.00"})
        self._sheets = 0
        self._sheet: Any = None
        self._begin()

    def add(self, cells: Sequence[str]) -> None:
        """Write a row; texts that look like a formula are kept from being one."""
        if self._row == ROWS_MAX:
            self._begin()
        for at, (heading, text) in enumerate(zip(self._headings, cells, strict=True)):
            if not text:
                continue
            if heading in NUMBERS:
                self._sheet.write_number(self._row, at, number(text), self._money)
            else:
                self._sheet.write_string(self._row, at, *harmless([text]))
        self._row += 1

    def _begin(self) -> None:
        self._sheets += 1
        name = self._title if self._sheets == 1 else f"{self._title} {self._sheets}"
        self._sheet = self._workbook.add_worksheet(name)
        self._sheet.set_column(0, len(self._headings) - 1, 16)
        self._sheet.freeze_panes(1, 0)
        for at, heading in enumerate(self._headings):
            self._sheet.write_string(0, at, heading, self._bold)
        self._row = 1


def number(text: str) -> float:
    """Return an amount as the nearest number of 15 digits: what a spreadsheet holds exactly."""
    whole = text.lstrip("-").partition(".")[0]
    places = max(0, min(len(ZERO) - 2, DIGITS_EXACT - len(whole)))
    return round(float(text), places)
