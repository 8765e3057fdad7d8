"""What a period is likely to come to, by a formula that anybody can check.

    expected = spent + max(run rate, committed)
    low      = spent + min(run rate, committed)
    high     = spent + run rate + committed

run rate: for each day that is left of the period, what was spent on that weekday in the last seven
days; of today what that weekday came to less what today has. committed: what running leases still
hold, as far as it falls into the period, evenly over the time that each has left. The two overlap,
as far as work that runs is like the work of last week; how far nobody knows, hence the range.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from ledger.domain.span import Window

ONE_DAY = timedelta(days=1)
WEEK_DAYS = 7


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a period comes to by its end, in nano-units, and what that rests on."""

    spent: int
    run_rate: int
    committed: int

    @property
    def low(self) -> int:
        """Return the least that is likely."""
        return self.spent + min(self.run_rate, self.committed)

    @property
    def expected(self) -> int:
        """Return what is likeliest."""
        return self.spent + max(self.run_rate, self.committed)

    @property
    def high(self) -> int:
        """Return the most that is likely."""
        return self.spent + self.run_rate + self.committed


def forecast(
    by_day: Mapping[date, int],
    committed: Iterable[tuple[int, datetime]],
    *,
    period: Window,
    now: datetime,
) -> Forecast:
    """Return the forecast of the period in which `now` lies.

    by_day: what was spent on each UTC day, of the period and of the last seven days. committed:
    what each running lease still holds, and when it ends.
    """
    today, ends = now.astimezone(UTC).date(), period.ends_at.date()
    spent = sum(nanos for day, nanos in by_day.items() if period.starts_at.date() <= day < ends)
    rate, day = max(0, _weekday(by_day, today, today) - by_day.get(today, 0)), today + ONE_DAY
    while day < ends:
        rate += _weekday(by_day, day, today)
        day += ONE_DAY
    rest = sum(_within(held, lease_ends, period, now) for held, lease_ends in committed)
    return Forecast(spent, rate, rest)


def _weekday(by_day: Mapping[date, int], day: date, today: date) -> int:
    """Return what was spent on the last day before today that was the weekday of `day`."""
    back = (today - day).days % WEEK_DAYS or WEEK_DAYS
    return by_day.get(today - timedelta(days=back), 0)


def _within(held: int, lease_ends: datetime, period: Window, now: datetime) -> int:
    if lease_ends <= period.ends_at or lease_ends <= now:
        return held
    return held * (Window(now, period.ends_at).millis) // Window(now, lease_ends).millis
