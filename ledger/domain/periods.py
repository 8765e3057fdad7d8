"""Accounting periods: months in UTC, whatever the zone of who looks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from ledger.domain.refusal import Invalid
from ledger.domain.span import Window

_PERIOD = re.compile(r"(20[0-9]{2}|21[0-9]{2})-(0[1-9]|1[0-2])")


class PeriodUnreadable(Invalid):
    """A period is a month such as 2026-11."""


@dataclass(frozen=True, slots=True, order=True)
class Period:
    """A month. Use belongs to the month in which its window starts, all else to that of booking."""

    year: int
    month: int

    def __str__(self) -> str:
        return f"{self.year:04d}-{self.month:02d}"

    @classmethod
    def of(cls, moment: datetime) -> Period:
        """Return the period in which an aware moment lies."""
        moment = moment.astimezone(UTC)
        return cls(moment.year, moment.month)

    @property
    def next(self) -> Period:
        """Return the following month."""
        return Period(self.year + self.month // 12, self.month % 12 + 1)

    @property
    def window(self) -> Window:
        """Return the span from the first instant of the month to that of the next."""
        after = self.next
        return Window(
            datetime(self.year, self.month, 1, tzinfo=UTC),
            datetime(after.year, after.month, 1, tzinfo=UTC),
        )


def read_period(text: str) -> Period:
    """Read `2026-11`.

    Raises: PeriodUnreadable.
    """
    form = _PERIOD.fullmatch(text)
    if form is None:
        raise PeriodUnreadable(given=text[:40])
    return Period(int(form[1]), int(form[2]))
