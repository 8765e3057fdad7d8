from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.span import Window
from listings.domain.events import WeeklyRule
from listings.domain.recurrence import (
    RuleEndsBeforeItStarts,
    RuleNeverComes,
    RuleTooFarAhead,
    WallTimeTooFine,
    WeekdaysUnreadable,
    WindowTooShort,
    ZoneUnknown,
    check_rule,
    instant,
    last_end,
    occurrences,
)
from tests.conftest import NOON

EVERY_DAY = (0, 1, 2, 3, 4, 5, 6)
ZONES = sorted(zone for zone in available_timezones() if "/" in zone)
WALL = st.builds(time, st.integers(0, 23), st.integers(0, 59))


def rule(zone: str = "Europe/London", **fields: Any) -> WeeklyRule:
    known: dict[str, Any] = {
        "days": EVERY_DAY,
        "since": time(22),
        "until": time(6),
        "first": date(2026, 1, 5),
    }
    return WeeklyRule(zone=zone, **(known | fields))


def windows(of: WeeklyRule, first: date, last: date) -> list[Window]:
    since, until = (datetime.combine(day, time(), tzinfo=UTC) for day in (first, last))
    return list(occurrences(of, since=since, until=until))


def exists(zone: ZoneInfo, day: date, wall: time) -> bool:
    local = datetime.combine(day, wall, tzinfo=zone)
    return local.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None)


@given(
    zone=st.sampled_from(ZONES),
    day=st.dates(date(1995, 1, 1), date(2037, 12, 1)),
    since=WALL,
    until=WALL,
)
def test_every_window_starts_at_the_rules_local_time(
    zone: str, day: date, since: time, until: time
) -> None:
    weekly = rule(zone, since=since, until=until, first=day)

    found = windows(weekly, day, day + timedelta(days=21))

    local = ZoneInfo(zone)
    for window in found:
        starts = window.starts_at.astimezone(local)
        if exists(local, starts.date(), since):
            assert starts.time() == since
        else:
            assert starts.time() > since or starts.date() > day
    assert all(one.ends_at <= other.starts_at for one, other in pairwise(found))


@given(
    zone=st.sampled_from(ZONES),
    day=st.dates(date(1995, 1, 1), date(2037, 12, 1)),
    since=WALL,
    until=WALL,
)
def test_windows_asked_for_in_pieces_are_those_asked_for_at_once(
    zone: str, day: date, since: time, until: time
) -> None:
    weekly = rule(zone, since=since, until=until, first=day)
    days = [day + timedelta(days=n) for n in range(22)]

    whole = windows(weekly, days[0], days[-1])
    pieces = {w for one, other in pairwise(days) for w in windows(weekly, one, other)}

    assert whole == sorted(pieces)


@given(
    zone=st.sampled_from(ZONES),
    day=st.dates(date(1995, 1, 1), date(2037, 12, 1)),
    wall=WALL,
)
def test_a_time_that_comes_twice_means_the_first(zone: str, day: date, wall: time) -> None:
    local = ZoneInfo(zone)

    at = instant(local, day, wall)

    for hours in (1, 0.5, 3):
        before = (at - timedelta(hours=hours)).astimezone(local)
        assert before.replace(tzinfo=None) != datetime.combine(day, wall)


@pytest.mark.parametrize(
    ("zone", "day", "since", "until", "starts_at", "hours"),
    [
        # Night of the change to summer time: an hour less passes.
        ("Europe/London", date(2026, 3, 28), time(22), time(6), "2026-03-28T22:00Z", 7),
        ("America/New_York", date(2026, 3, 7), time(22), time(6), "2026-03-08T03:00Z", 7),
        # Night of the change to winter time: an hour more.
        ("Europe/London", date(2026, 10, 24), time(22), time(6), "2026-10-24T21:00Z", 9),
        # 01:30 does not exist: 02:30 summer time, the gap further on.
        ("Europe/London", date(2026, 3, 29), time(1, 30), time(6), "2026-03-29T01:30Z", 3.5),
        # 01:30 comes twice: the first, so that the window is an hour longer.
        ("Europe/London", date(2026, 10, 25), time(1, 30), time(6), "2026-10-25T00:30Z", 5.5),
        # A gap of half an hour.
        ("Australia/Lord_Howe", date(2026, 10, 4), time(2, 15), time(6), "2026-10-03T15:45Z", 3.25),
        # Not a whole hour from UTC.
        ("Asia/Kathmandu", date(2026, 6, 1), time(22), time(6), "2026-06-01T16:15Z", 8),
    ],
)
def test_windows_on_the_day_of_a_clock_change(
    zone: str, day: date, since: time, until: time, starts_at: str, hours: float
) -> None:
    weekly = rule(zone, since=since, until=until, first=day, last=day)

    (found,) = windows(weekly, day - timedelta(days=2), day + timedelta(days=3))

    assert found.starts_at == datetime.fromisoformat(starts_at)
    assert found.length == timedelta(hours=hours)


def test_a_window_that_a_clock_change_leaves_no_time_for_does_not_come() -> None:
    spring = date(2026, 3, 29)
    weekly = rule(since=time(1, 30), until=time(2, 15), first=spring, last=spring)

    assert windows(weekly, spring - timedelta(days=2), spring + timedelta(days=3)) == []


def test_a_day_that_a_zone_skips_gives_no_second_window_on_the_next() -> None:
    weekly = rule("Pacific/Apia", since=time(8), until=time(12), first=date(2011, 12, 28))

    found = windows(weekly, date(2011, 12, 28), date(2012, 1, 3))

    assert len({window.starts_at for window in found}) == len(found)
    assert all(one.ends_at <= other.starts_at for one, other in pairwise(found))


def test_the_last_day_is_included_and_its_night_too() -> None:
    weekly = rule("UTC", days=(4,), last=date(2026, 1, 9))

    assert last_end(weekly) == datetime(2026, 1, 10, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"zone": "Mars/Olympus"}, ZoneUnknown),
        ({"zone": "../etc/passwd"}, ZoneUnknown),
        ({"days": ()}, WeekdaysUnreadable),
        ({"days": (1, 1)}, WeekdaysUnreadable),
        ({"days": (7,)}, WeekdaysUnreadable),
        ({"since": time(22, 0, 1)}, WallTimeTooFine),
        ({"since": time(22, tzinfo=UTC)}, WallTimeTooFine),
        ({"since": time(22), "until": time(22, 14)}, WindowTooShort),
        ({"last": date(2026, 1, 4)}, RuleEndsBeforeItStarts),
        ({"days": (6,), "last": date(2026, 1, 6)}, RuleNeverComes),
        ({"first": date(2027, 3, 1)}, RuleTooFarAhead),
    ],
)
def test_a_rule_out_of_bounds_is_refused(fields: dict[str, Any], refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        check_rule(rule(**fields), now=NOON)
