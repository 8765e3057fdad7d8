"""The geometry of spending by day: one bar for each day of a period."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from config.site.parts.figures import amount_text

WIDTH, HEIGHT = 960, 120
GAP = 3
LABEL_EVERY = 5


@dataclass(frozen=True, slots=True)
class DayBar:
    """One day: where its bar stands, and what it says. label: empty where it would not fit."""

    x: str
    y: str
    width: str
    height: str
    text: str
    label: str


@dataclass(frozen=True, slots=True)
class DayBars:
    """All days of a period. most: what the highest bar means."""

    bars: list[DayBar]
    most: str
    width: int = WIDTH
    height: int = HEIGHT


def day_bars(by_day: Mapping[date, int], since: date, until: date, currency: str) -> DayBars | None:
    """Return a bar for each day from `since` up to but not including `until`; None: all empty."""
    most = max(by_day.values(), default=0)
    if most <= 0:
        return None
    count = (until - since).days
    wide, bars = WIDTH / count, []
    for index in range(count):
        day = since + timedelta(days=index)
        nanos = by_day.get(day, 0)
        tall = nanos / most * HEIGHT
        bars.append(
            DayBar(
                x=f"{index * wide:.1f}",
                y=f"{HEIGHT - tall:.1f}",
                width=f"{wide - GAP:.1f}",
                height=f"{tall:.1f}",
                text=f"{day:%-d %B}: {amount_text(nanos, currency)}",
                label=f"{day.day}" if index % LABEL_EVERY == 0 else "",
            )
        )
    return DayBars(bars, amount_text(most, currency))
