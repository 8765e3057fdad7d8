"""The statement of a payout as CSV: opening, every line, the payout, closing; exact."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

from ledger.domain.money import decimal_of
from ledger.exports.cells import harmless
from ledger.models import PayoutRow
from ledger.queries.payouts import EarnedBy

COLUMNS = ("period", "kind", "lease_id", "sku", "gpu_hours", "gross", "fee", "amount", "currency")
MILLIS_PER_HOUR = 3_600_000
PLACES = 9


def lines(row: PayoutRow, earned: Iterable[EarnedBy]) -> Iterator[str]:
    """Yield the lines of the file, the header first. The amounts of all lines sum to zero."""
    yield _line(COLUMNS)
    yield _sum("opening", row.opening_nanos, row)
    for each in earned:
        yield _line(
            (
                each.period,
                each.kind,
                str(each.lease_id or ""),
                each.sku,
                f"{each.gpu_millis / MILLIS_PER_HOUR:.6f}" if each.gpu_millis else "",
                _amount(each.gross_nanos),
                _amount(-each.fee_nanos),
                _amount(each.nanos),
                each.currency,
            )
        )
    yield _sum("payout", -row.nanos, row)
    yield _sum("closing", -row.closing_nanos, row)


def _sum(kind: str, nanos: int, row: PayoutRow) -> str:
    return _line((row.period, kind, "", "", "", "", "", _amount(nanos), row.currency))


def _amount(nanos: int) -> str:
    return decimal_of(nanos, places_min=PLACES)


def _line(cells: Iterable[str]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerow(harmless(cells))
    return buffer.getvalue()
