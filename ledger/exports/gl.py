"""A period for a general ledger that counts in cents: one CSV journal, summarised.

One journal for each kind of entry, cost centre and currency; in it one line for each account.
Nano-units become cents (or what the currency has for them) by largest remainder, so every
journal balances and no line is off by a whole cent.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import timedelta

from ledger.domain.money import NANOS_PER_UNIT
from ledger.exports.cells import harmless
from ledger.exports.entries import BookAccount, Books

COLUMNS = (
    "entry_no",
    "date",
    "period",
    "account",
    "account_kind",
    "account_title",
    "debit",
    "credit",
    "currency",
    "cost_centre",
    "memo",
    "source",
)
MINOR_DIGITS_DEFAULT = 2
MINOR_DIGITS = {
    **dict.fromkeys(("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG"), 0),
    **dict.fromkeys(("RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF"), 0),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
}
"""Places after the point of currencies that do not have two. Source: ISO 4217."""

JournalKey = tuple[str, str, str]
"""Kind, cost centre, currency."""


def lines(books: Books) -> Iterator[str]:
    """Yield the lines of the CSV file, the header first."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(COLUMNS)
    journals = _journals(books)
    last_day = (books.period.window.ends_at - timedelta(days=1)).date()
    for number, key in enumerate(sorted(journals), start=1):
        kind, cost_centre, currency = key
        digits = MINOR_DIGITS.get(currency, MINOR_DIGITS_DEFAULT)
        accounts = sorted(journals[key], key=lambda each: (each.kind, str(each.account_id)))
        cents = in_minor_units([journals[key][each] for each in accounts], digits=digits)
        for account, minor in zip(accounts, cents, strict=True):
            writer.writerow(
                harmless(
                    [
                        f"{books.period}-{number:04d}",
                        last_day.isoformat(),
                        str(books.period),
                        str(account.account_id or "others"),
                        account.kind,
                        account.title,
                        _written(-minor, digits) if minor < 0 else "",
                        _written(minor, digits) if minor >= 0 else "",
                        currency,
                        cost_centre,
                        kind,
                        f"offpeak:{books.period}@{books.position}",
                    ]
                )
            )
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def _journals(books: Books) -> dict[JournalKey, dict[BookAccount, int]]:
    journals: dict[JournalKey, dict[BookAccount, int]] = {}
    for entry in books.entries():
        summed = journals.setdefault((entry.kind, entry.cost_centre, entry.currency), {})
        for account, nanos in entry.lines:
            summed[account] = summed.get(account, 0) + nanos
    return journals


def in_minor_units(nanos: list[int], *, digits: int) -> list[int]:
    """Round amounts that sum to zero so that the rounded ones do too, each within one unit.

    Largest remainder: all are rounded down, then those that lost most get one back; ties to
    the earlier.
    """
    assert sum(nanos) == 0
    unit = NANOS_PER_UNIT // 10**digits
    rounded = [each // unit for each in nanos]
    lost = [each % unit for each in nanos]
    neediest = sorted(range(len(nanos)), key=lambda index: (-lost[index], index))
    for index in neediest[: -sum(rounded)]:
        rounded[index] += 1
    return rounded


def _written(minor: int, digits: int) -> str:
    if digits == 0:
        return str(minor)
    return f"{minor // 10**digits}.{minor % 10**digits:0{digits}d}"
