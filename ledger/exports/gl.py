"""A period for a general ledger that counts in cents: one CSV journal, summarised.

One journal for each kind of entry, cost centre and currency; in it one line for each account.

What an account is booked is the difference of two rounded totals: that of the ledger to the end of
the period less that to its start. So whatever is smaller than a cent is carried to the next month,
and an account's months add up to its total in the ledger to within one cent, however many there
are. The rounded totals of all accounts together are zero (largest remainder), like the exact ones.

A journal whose lines would not add up is balanced by a line of the account `rounding`. A last
journal of each currency, of the kind `rounding`, moves the carried cents of accounts that nothing
else moved in the period, so that `rounding` is at zero again at the end of every period.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from ledger.domain.money import NANOS_PER_UNIT
from ledger.domain.periods import Period
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

ROUNDING = "rounding"

JournalKey = tuple[str, str, str]
"""Kind, cost centre, currency."""
Journals = dict[JournalKey, dict[BookAccount, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of a journal, `number` of it from 1. minor: cents, or what the currency counts in; a
    debit is below zero."""

    entry_no: str
    number: int
    day: date
    period: Period
    account: BookAccount
    minor: int
    currency: str
    cost_centre: str
    kind: str
    source: str

    @property
    def written(self) -> str:
        """Return the amount without its sign."""
        return _written(abs(self.minor), digits_of(self.currency))

    @property
    def is_debit(self) -> bool:
        """Tell on which side it stands."""
        return self.minor < 0


def journals(books: Books) -> Iterator[list[Line]]:
    """Yield the journals of a period, each as its lines, which sum to zero."""
    last_day = (books.period.window.ends_at - timedelta(days=1)).date()
    written = in_cents(_journals(books), opening=books.opening(), closing=books.closing())
    for journal, key in enumerate(sorted(written), start=1):
        kind, cost_centre, currency = key
        accounts = sorted(written[key], key=lambda it: (it.kind, str(it.account_id)))
        yield [
            Line(
                entry_no=f"{books.period}-{journal:04d}",
                number=number,
                day=last_day,
                period=books.period,
                account=account,
                minor=written[key][account],
                currency=currency,
                cost_centre=cost_centre,
                kind=kind,
                source=f"offpeak:{books.period}@{books.position}",
            )
            for number, account in enumerate(accounts, start=1)
        ]


def lines(books: Books) -> Iterator[str]:
    """Yield the lines of the CSV file, the header first."""
    return csv_lines(COLUMNS, _cells, journals(books))


def csv_lines(
    columns: Sequence[str], cells: Callable[[Line], Sequence[str]], told: Iterable[list[Line]]
) -> Iterator[str]:
    """Yield a CSV file of journals, a journal at a time."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(columns)
    for journal in told:
        writer.writerows(harmless(cells(line)) for line in journal)
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def _cells(line: Line) -> Sequence[str]:
    return (
        line.entry_no,
        line.day.isoformat(),
        str(line.period),
        str(line.account.account_id or line.account.kind),
        line.account.kind,
        line.account.title,
        line.written if line.is_debit else "",
        "" if line.is_debit else line.written,
        line.currency,
        line.cost_centre,
        line.kind,
        line.source,
    )


def digits_of(currency: str) -> int:
    """Return how many places after the point a currency has."""
    return MINOR_DIGITS.get(currency, MINOR_DIGITS_DEFAULT)


def _journals(books: Books) -> Journals:
    journals: Journals = {}
    for entry in books.entries():
        summed = journals.setdefault((entry.kind, entry.cost_centre, entry.currency), {})
        for account, nanos in entry.lines:
            summed[account] = summed.get(account, 0) + nanos
    return journals


def in_cents(
    journals: Journals, *, opening: Mapping[BookAccount, int], closing: Mapping[BookAccount, int]
) -> Journals:
    """Return what is booked of a period's journals, in whole minor units; lines of zero left out.

    opening, closing: every account's total in nano-units before and after the period; what an
    account is left out of is zero. Each journal returned sums to zero, and every account is booked
    `rounded(closing) - rounded(opening)` over all of them.
    """
    before, after = rounded(opening), rounded(closing)
    booked: Journals = {key: {} for key in journals}
    left = {each: after.get(each, 0) - before.get(each, 0) for each in {**before, **after}}
    lines: dict[BookAccount, list[tuple[JournalKey, int]]] = {}
    for key in sorted(journals):
        for account, nanos in journals[key].items():
            lines.setdefault(account, []).append((key, nanos))
    for account, moved in lines.items():
        unit = _unit(account.currency)
        # The part of a cent that is carried into the period goes where it first fills one.
        carried = opening.get(account, 0) - before.get(account, 0) * unit
        told = 0
        for key, nanos in moved[:-1]:
            carried += nanos
            booked[key][account] = _nearest(carried, unit) - told
            told += booked[key][account]
        booked[moved[-1][0]][account] = left.pop(account, 0) - told
    for account, minor in left.items():
        booked.setdefault((ROUNDING, "", account.currency), {})[account] = minor
    for (_, _, currency), cents in booked.items():
        off = sum(cents.values())
        cents[
            BookAccount(account_id=None, kind=ROUNDING, title="Rounding", currency=currency)
        ] = -off
    trimmed = {
        key: {account: minor for account, minor in cents.items() if minor}
        for key, cents in booked.items()
    }
    return {key: cents for key, cents in trimmed.items() if cents}


def rounded(totals: Mapping[BookAccount, int]) -> dict[BookAccount, int]:
    """Return totals in minor units: each within one of the exact, all of a currency zero together.

    The same totals give the same result, whatever else accounts are called by then.
    """
    cents: dict[BookAccount, int] = {}
    for currency in sorted({account.currency for account in totals}):
        mine = [account for account in totals if account.currency == currency]
        mine.sort(key=lambda account: str(account.account_id))
        units = in_minor_units([totals[each] for each in mine], digits=digits_of(currency))
        cents |= dict(zip(mine, units, strict=True))
    return cents


def in_minor_units(nanos: list[int], *, digits: int) -> list[int]:
    """Round amounts that sum to zero so that the rounded ones do too, each within one unit.

    Largest remainder: all are rounded down, then those that lost most get one back; ties to
    the earlier.
    """
    assert sum(nanos) == 0
    unit = NANOS_PER_UNIT // 10**digits
    units = [each // unit for each in nanos]
    lost = [each % unit for each in nanos]
    neediest = sorted(range(len(nanos)), key=lambda index: (-lost[index], index))
    for index in neediest[: -sum(units)]:
        units[index] += 1
    return units


def _unit(currency: str) -> int:
    return NANOS_PER_UNIT // int(10 ** digits_of(currency))


def _nearest(nanos: int, unit: int) -> int:
    """Return whole units, the nearest ones; a half goes to the even one, so to neither side."""
    whole, rest = divmod(nanos, unit)
    is_up: bool = 2 * rest > unit or (2 * rest == unit and whole % 2 == 1)
    return whole + is_up


def _written(minor: int, digits: int) -> str:
    if digits == 0:
        return str(minor)
    return f"{minor // 10**digits}.{minor % 10**digits:0{digits}d}"
