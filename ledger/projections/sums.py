"""Sums of postings by runs of the log, so that a statement never adds up all its lines."""

from __future__ import annotations

from ledger.domain.events import Posting
from ledger.models import PostingSumRow
from ledger.rows import Rows


def add_up(rows: Rows, line: Posting, *, period: str, position: int, kind: str) -> None:
    """Count a posting in the sum that it belongs to."""
    block = position // PostingSumRow.POSITIONS_SUMMED
    sum_id = f"{line.account_id}:{period}:{block}:{kind}"
    found = rows.find(PostingSumRow, sum_id)
    if found is None:
        rows.make(
            PostingSumRow,
            sum_id=sum_id,
            account_id=line.account_id,
            period=period,
            block=block,
            kind=kind,
            nanos=line.nanos,
            lines=1,
        )
        return
    rows.update(found, nanos=found.nanos + line.nanos, lines=found.lines + 1)
