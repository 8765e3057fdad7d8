"""A window that comes back every week on the clock on the wall, as instants in UTC.

The rule for clock changes, in one place (`instant`): a local time that does not exist moves
forward by the gap, and of a local time that comes twice the first is meant. So every window starts
at the rule's local time wherever that exists, and its length is the time that really passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from ledger.domain.refusal import Invalid
from ledger.domain.span import Window
from listings.domain.events import WeeklyRule

WINDOW_MIN = timedelta(minutes=15)
FIRST_AHEAD_MAX = timedelta(days=366)
DAY = timedelta(days=1)
SLACK = timedelta(days=3)
"""A window lasts at most a day, and no zone is further than a day from UTC."""


class ZoneUnknown(Invalid):
    """That is not a time zone of the IANA database.

    Write a name such as Europe/London, America/New_York or UTC.
    """


class WeekdaysUnreadable(Invalid):
    """The days of a weekly window are numbers from 0 (Monday) to 6 (Sunday), each once."""


class WallTimeTooFine(Invalid):
    """A weekly window starts and ends on a whole minute of the local clock, without an offset."""


class WindowTooShort(Invalid):
    """An idle window must last at least fifteen minutes."""


class RuleEndsBeforeItStarts(Invalid):
    """The last day of a weekly window must not come before its first."""


class RuleNeverComes(Invalid):
    """No window of the weekly rule lies between its first and its last day."""


class RuleTooFarAhead(Invalid):
    """A weekly window must start to apply within a year from now."""


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def check_rule(rule: WeeklyRule, *, now: datetime) -> WeeklyRule:
    """Return the rule with its days in order, or refuse it.

    Raises:
        ZoneUnknown, WeekdaysUnreadable, WallTimeTooFine, WindowTooShort,
        RuleEndsBeforeItStarts, RuleNeverComes, RuleTooFarAhead.
    """
    if rule.zone not in _zones():
        raise ZoneUnknown(zone=rule.zone[:80])
    days = tuple(sorted(set(rule.days)))
    if not days or len(days) != len(rule.days) or days[0] < 0 or days[-1] > 6:
        raise WeekdaysUnreadable(days=list(rule.days)[:16])
    for wall in (rule.since, rule.until):
        if wall.tzinfo is not None or wall.second or wall.microsecond:
            raise WallTimeTooFine(time=wall)
    if _nominal_length(rule) < WINDOW_MIN:
        raise WindowTooShort(minutes_min=15)
    if rule.first > (now + FIRST_AHEAD_MAX).date():
        raise RuleTooFarAhead(first=rule.first)
    checked = replace(rule, days=days)
    if rule.last is not None:
        if rule.last < rule.first:
            raise RuleEndsBeforeItStarts(first=rule.first, last=rule.last)
        if last_end(checked) is None:
            raise RuleNeverComes(first=rule.first, last=rule.last)
    return checked


def instant(zone: ZoneInfo, day: date, wall: time) -> datetime:
    """Return when the clock of `zone` shows `wall` on `day`, in UTC.

    A time that the zone skips moves forward by the gap; of one that comes twice, the first.
    """
    # fold=0 is both rules at once: the offset before the change is used, which is the first of
    # two equal times, and carries a time inside the gap to the same distance behind it.
    return datetime.combine(day, wall.replace(fold=0), tzinfo=zone).astimezone(UTC)


def occurrences(rule: WeeklyRule, *, since: datetime, until: datetime) -> Iterator[Window]:
    """Yield the rule's windows that share time with [since, until), each whole, in order.

    Windows of one rule never overlap: where a clock change would make two, the earlier one ends
    where the later one starts. A window that a change leaves no time for does not come.
    """
    zone = ZoneInfo(rule.zone)
    day = max(rule.first, (since - SLACK).date())
    end = min(rule.last or date.max, (until + SLACK).date())
    while day <= end:
        if day.weekday() in rule.days:
            window = _window_of(rule, zone, day)
            if window and window.starts_at < until and since < window.ends_at:
                yield window
        day += DAY


def is_unbroken(rule: WeeklyRule) -> bool:
    """Tell if each window goes on into the next: all hours of all days, from the first on."""
    return len(rule.days) == 7 and rule.since == rule.until


def last_end(rule: WeeklyRule) -> datetime | None:
    """Return when the last window of a rule with a last day ends; None if it has none."""
    assert rule.last is not None
    midnight = datetime.combine(rule.last, time(), tzinfo=UTC)
    windows = list(occurrences(rule, since=midnight - 3 * SLACK, until=midnight + SLACK))
    return windows[-1].ends_at if windows else None


def _window_of(rule: WeeklyRule, zone: ZoneInfo, day: date) -> Window | None:
    starts_at = instant(zone, day, rule.since)
    ends_at = instant(zone, day if rule.until > rule.since else day + DAY, rule.until)
    following = day + DAY
    if following.weekday() in rule.days and (rule.last is None or following <= rule.last):
        ends_at = min(ends_at, instant(zone, following, rule.since))
    return Window(starts_at, ends_at) if starts_at < ends_at else None


def _nominal_length(rule: WeeklyRule) -> timedelta:
    """Return how long a window is on a day without a clock change."""
    midnight = datetime(2001, 1, 1)  # noqa: DTZ001 -- a difference of wall times, no instant
    since, until = (datetime.combine(midnight, wall) for wall in (rule.since, rule.until))
    return until - since if until > since else until + DAY - since
