"""Reading what was exported."""

from __future__ import annotations

import csv
import io
import zipfile
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree

import pyarrow.parquet

from ledger.exports import xlsx


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def nanos(text: str) -> int:
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    whole, _, fraction = digits.partition(".")
    assert fraction[9:].strip("0") == "", "a cost has no more than nine places"
    return sign * (int(whole) * 10**9 + int(fraction[:9].ljust(9, "0")))


def sheets_of(data: bytes) -> dict[str, list[list[str]]]:
    """Read a workbook's sheets as rows of texts."""
    space = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    with zipfile.ZipFile(io.BytesIO(data)) as book:
        names = [
            each.attrib["name"]
            for each in ElementTree.fromstring(book.read("xl/workbook.xml")).iter(f"{space}sheet")
        ]
        found = {}
        for number, name in enumerate(names, start=1):
            sheet = ElementTree.fromstring(book.read(f"xl/worksheets/sheet{number}.xml"))
            found[name] = [_cells(row, space) for row in sheet.iter(f"{space}row")]
    return found


def _cells(row: ElementTree.Element, space: str) -> list[str]:
    """Return a row's cells by their places; those that are empty are not in the file."""
    cells = [""] * len(xlsx.CHARGE_COLUMNS)
    for each in row:
        letters = each.attrib["r"].rstrip("0123456789")
        text = each.findtext(f".//{space}t") or each.findtext(f"{space}v") or ""
        cells[ord(letters) - ord("A")] = text
    return cells


def text_of_parquet(data: bytes) -> str:
    """Return a Parquet file as the CSV file that says the same."""
    table = pyarrow.parquet.read_table(io.BytesIO(data))
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(table.column_names)
    columns = [table[name].to_pylist() for name in table.column_names]
    writer.writerows([_plain(value) for value in row] for row in zip(*columns, strict=True))
    return out.getvalue()


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return f"{value:f}"
    return f"{value:%Y-%m-%dT%H:%M:%SZ}" if hasattr(value, "year") else str(value)
