"""FOCUS rows as CSV. What many rows share is written into a line once, and filled in for each.

Made that way a row costs a tenth of what it does cell by cell; the bytes are those that Python's
own `csv` writes (tests/ledger/test_focus.py compares them).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence

from ledger.domain.periods import Period
from ledger.exports import focus
from ledger.exports.cells import STARTS, harmless
from ledger.exports.charges import Charge

LINES_KNOWN = 4_096
"""How many kinds of lines are held; more are made again."""
USE_TEXTS = ("ChargeDescription",)
TEXTS = ("ChargeDescription", "ResourceName", "Tags", "x_CostCenter", "AllocatedTags")
"""Columns of `own_part` that hold what people typed; all others are figures, moments and ids."""

_QUOTED = re.compile('[",\r\n]')


def lines(charges: Iterable[Charge], *, period: Period, columns: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the file, the header first."""
    yield ",".join(columns) + "\r\n"
    known: dict[Hashable, str] = {}
    since = period.window.starts_at
    for charge in charges:
        own = focus.own_part(charge)
        for column in USE_TEXTS if charge.use is not None else TEXTS:
            if column in own:
                own[column] = cell(own[column])
        key = focus.shared_key(charge, since)
        line = known.get(key)
        if line is None:
            if len(known) >= LINES_KNOWN:
                known.clear()
            shared = focus.shared_part(charge, period=period)
            line = known[key] = _line(shared, own.keys(), columns)
        yield line % own


def _line(shared: focus.Row, own: Iterable[str], columns: Sequence[str]) -> str:
    """Return a line in which the shared cells are written and the own ones left open."""
    left_open = set(own)
    cells = (
        f"%({column})s" if column in left_open else cell(shared.get(column, "")).replace("%", "%%")
        for column in columns
    )
    return ",".join(cells) + "\r\n"


def cell(text: str) -> str:
    """Return a cell that no spreadsheet takes for a formula, in quotes where CSV wants them."""
    if not text:
        return text
    if text[0] in STARTS:
        (text,) = harmless([text])
    if _QUOTED.search(text):
        return '"' + text.replace('"', '""') + '"'
    return text
