"""Rows of accounting periods, and in which of them an entry counts.

They are kept with the rows of money: which month an entry counts in depends on what was closed
when it was recorded, so both are written in the order of the store.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, date, datetime

from ledger.domain.closing import first_open
from ledger.domain.closing_events import (
    PeriodClosed,
    PeriodEvent,
    PeriodExportsFrozen,
    PeriodReopened,
    PeriodSoftClosed,
    ReopeningAsked,
    ReopeningDeclined,
)
from ledger.domain.periods import Period
from ledger.eventstore.port import Recorded
from ledger.following import names_of
from ledger.models import ClosedThroughRow, PeriodRow
from ledger.rows import Rows

BOOKS = "main"
ON = names_of(
    PeriodSoftClosed,
    PeriodClosed,
    PeriodExportsFrozen,
    ReopeningAsked,
    ReopeningDeclined,
    PeriodReopened,
)
TABLES = (PeriodRow, ClosedThroughRow)
UNASKED: dict[str, object] = {"reopening_reason": "", "reopening_by": None, "reopening_at": None}


def project_period(event: PeriodEvent, recorded: Recorded, rows: Rows) -> None:
    """Keep the rows of periods equal to their stream."""
    match event:
        case PeriodSoftClosed():
            _change(
                rows,
                event.period,
                state="soft-closed",
                soft_closed_at=event.at,
                soft_closed_by=event.by_user,
            )
        case PeriodClosed():
            _change(
                rows,
                event.period,
                state="closed",
                closed_at=event.at,
                closed_by=event.by_user,
                closed_position=recorded.position,
            )
            _close_through(rows, event.period)
        case PeriodExportsFrozen():
            _change(rows, event.period, exports=[asdict(each) for each in event.exports])
        case ReopeningAsked():
            _begin(rows, event.period, recorded.position)
            _change(
                rows,
                event.period,
                reopening_reason=event.reason,
                reopening_by=event.asked_by,
                reopening_at=event.at,
            )
        case ReopeningDeclined():
            _change(rows, event.period, **UNASKED)
        case PeriodReopened():
            _change(
                rows,
                event.period,
                state="open",
                closed_position=None,
                reopened_reason=event.reason,
                reopened_at=event.at,
                reopened_by=event.asked_by,
                reopened_with=event.approved_by,
                exports=[],
                **UNASKED,
            )
            # Entries are written before rows that change: those to come would find it closed still.
            rows.flush()


def _change(rows: Rows, period: str, **fields: object) -> None:
    if rows.find(PeriodRow, period) is None:
        rows.add(PeriodRow(period=period, state="open"))
    rows.change(PeriodRow, period, **fields)


def _begin(rows: Rows, period: str, position: int) -> None:
    """Give a month a row that was closed with a later one, and has none: it is closed still."""
    through = rows.find(ClosedThroughRow, BOOKS)
    if through is None or period > through.period or rows.find(PeriodRow, period) is not None:
        return
    rows.add(PeriodRow(period=period, state="closed", closed_position=position))


def _close_through(rows: Rows, period: str) -> None:
    known = rows.find(ClosedThroughRow, BOOKS)
    if known is None:
        rows.add(ClosedThroughRow(books=BOOKS, period=period))
    elif known.period < period:
        rows.change(ClosedThroughRow, BOOKS, period=period)


def counts_in(moment: datetime, rows: Rows) -> Period:
    """Return the month in which an entry counts that belongs to that of `moment`."""
    through = rows.find(ClosedThroughRow, BOOKS)
    if through is None or str(Period.of(moment)) > through.period:
        return Period.of(moment)

    def is_closed(period: Period) -> bool:
        row = rows.find(PeriodRow, str(period))
        return row.state == "closed" if row is not None else str(period) <= through.period

    return first_open(Period.of(moment), is_closed)


def day_in(period: Period, moment: datetime) -> date:
    """Return the day of a moment (UTC), or the first of the month in which it counts."""
    return max(moment, period.window.starts_at).astimezone(UTC).date()
