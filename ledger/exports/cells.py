"""Cells of a CSV file that people open in a spreadsheet.

A spreadsheet takes a text that begins with =, +, - or @ for a formula and runs it, and names of
tenants, units and cost centres are typed by people whom finance never met. Such a text gets an
apostrophe before it, which spreadsheets show as plain text. Source: OWASP, "CSV Injection".
"""

from __future__ import annotations

import re
from collections.abc import Iterable

STARTS = frozenset("=+-@\t\r\n")
"""What a text begins with that may be a formula."""
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def harmless(cells: Iterable[str]) -> list[str]:
    """Return cells of which none is a formula; numbers below zero stay numbers."""
    return [
        f"'{cell}" if cell[:1] in STARTS and not _NUMBER.fullmatch(cell) else cell for cell in cells
    ]
