"""Hours and reclaim terms by name, as most owners want them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, time
from types import MappingProxyType

from listings.domain.events import ReclaimStep, WeeklyRule

DAILY = tuple(range(7))
WEEKEND = (5, 6)
EVENING, MORNING, MIDNIGHT = time(20), time(8), time(0)
PPM_PER_PERCENT = 10_000
MINUTE, HOUR = 60, 3_600


@dataclass(frozen=True, slots=True)
class Schedule:
    """Weekly hours by name. spans: days, since and until of each rule; each is an offer."""

    label: str
    spans: tuple[tuple[tuple[int, ...], time, time], ...]

    def rules(self, *, zone: str, first: date) -> tuple[WeeklyRule, ...]:
        """Return its weekly rules on the clock of a zone."""
        return tuple(
            WeeklyRule(zone=zone, days=days, since=since, until=until, first=first)
            for days, since, until in self.spans
        )


@dataclass(frozen=True, slots=True)
class ReclaimTerms:
    """What an owner promises about a reclaim. label: of a preset."""

    notice_seconds: int
    grace_seconds: int | None
    fee_ppm: int
    steps: tuple[ReclaimStep, ...] = ()
    label: str = ""


SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {
        "nights-and-weekends": Schedule(
            "Nights and weekends: 20:00 to 08:00, Saturday and Sunday all day",
            ((DAILY, EVENING, MORNING), (WEEKEND, MORNING, EVENING)),
        ),
        "nights": Schedule("Every night: 20:00 to 08:00", ((DAILY, EVENING, MORNING),)),
        "whenever-idle": Schedule(
            "Whenever idle: all day, every day", ((DAILY, MIDNIGHT, MIDNIGHT),)
        ),
    }
)
RECLAIM_TERMS: Mapping[str, ReclaimTerms] = MappingProxyType(
    {
        "standard": ReclaimTerms(
            notice_seconds=10 * MINUTE,
            grace_seconds=15,
            fee_ppm=10 * PPM_PER_PERCENT,
            label="Standard: 10 min notice, 15 s grace, 10 % fee",
        ),
        "fast": ReclaimTerms(
            notice_seconds=2 * MINUTE,
            grace_seconds=15,
            fee_ppm=20 * PPM_PER_PERCENT,
            label="Fast reclaim: 2 min notice, 15 s grace, 20 % fee",
        ),
        "long": ReclaimTerms(
            notice_seconds=2 * HOUR,
            grace_seconds=5 * MINUTE,
            fee_ppm=5 * PPM_PER_PERCENT,
            steps=(ReclaimStep(24 * HOUR, 1 * PPM_PER_PERCENT),),
            label="Long notice: 2 h notice, 5 min grace, 5 % fee (1 % with a day's notice)",
        ),
    }
)
