"""The periods of spending budgets: weeks from Monday, months, quarters and years, all in UTC.

They are those of the books, which count in UTC as FOCUS asks. A budget's zone is for people only:
in which they read when a period begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import assert_never

from ledger.domain.span import Window
from marketplace.domain.spending.events import SpendingPeriod

WEEK = timedelta(days=7)


def period_at(kind: SpendingPeriod, moment: datetime) -> Window:
    """Return the period of a kind in which an aware moment lies."""
    moment = moment.astimezone(UTC)
    day = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    match kind:
        case "week":
            monday = day - timedelta(days=day.weekday())
            return Window(monday, monday + WEEK)
        case "month":
            first = day.replace(day=1)
            return Window(first, _months_on(first, 1))
        case "quarter":
            first = day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
            return Window(first, _months_on(first, 3))
        case "year":
            first = day.replace(month=1, day=1)
            return Window(first, _months_on(first, 12))
        case _:
            assert_never(kind)


def periods_from(kind: SpendingPeriod, since: datetime, until: datetime) -> Iterator[Window]:
    """Yield the periods from the one of `since` to the one of `until`, one after the other."""
    period = period_at(kind, since)
    while period.starts_at <= until:
        yield period
        period = period_at(kind, period.ends_at)


def _months_on(first: datetime, months: int) -> datetime:
    count = first.year * 12 + first.month - 1 + months
    return first.replace(year=count // 12, month=count % 12 + 1)
