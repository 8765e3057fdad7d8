"""A heat map by the hours of a wall clock shows elapsed time, whatever clocks are changed."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.days import local_day
from metering.domain.heat import HOUR, HOURS, Cell, Measured, heat, wall_hours, whole_share_ppm

HOUR_MS = 3_600_000
NEW_YORK, KOLKATA, KATHMANDU, LORD_HOWE, LONDON, SAO_PAULO = (
    ZoneInfo(name)
    for name in (
        "America/New_York",
        "Asia/Kolkata",
        "Asia/Kathmandu",
        "Australia/Lord_Howe",
        "Europe/London",
        "America/Sao_Paulo",
    )
)
LATER = datetime(2027, 1, 1, tzinfo=UTC)


def measured(starts: datetime, hours: int, part_ms: int) -> list[Measured]:
    return [Measured(starts + HOUR * number, part_ms) for number in range(hours)]


def test_the_hour_that_comes_twice_is_two_hours() -> None:
    day = date(2026, 11, 1)
    whole = local_day(day, NEW_YORK)
    assert whole.length == 25 * HOUR

    [row] = heat(
        measured(whole.starts_at, 25, HOUR_MS // 2), days=[day], zone=NEW_YORK, now=LATER, gpus=1
    )

    assert [cell.percent for cell in row if cell] == [50] * 24
    assert row[1] == Cell(HOUR_MS, 2 * HOUR_MS)
    assert whole_share_ppm([row]) == 500_000


def test_the_hour_that_is_left_out_says_nothing() -> None:
    day = date(2026, 3, 8)
    whole = local_day(day, NEW_YORK)
    assert whole.length == 23 * HOUR

    [row] = heat(
        measured(whole.starts_at, 23, HOUR_MS // 4), days=[day], zone=NEW_YORK, now=LATER, gpus=1
    )

    assert row[2] is None
    assert [cell.percent for cell in row if cell] == [25] * 23
    assert whole_share_ppm([row]) == 250_000


@pytest.mark.parametrize(("zone", "minutes"), [(KOLKATA, 330), (KATHMANDU, 345)])
def test_an_hour_of_utc_falls_into_both_hours_of_the_wall_that_it_touches(
    zone: ZoneInfo, minutes: int
) -> None:
    day = date(2026, 11, 20)
    at = datetime(2026, 11, 20, 6, tzinfo=UTC)  # 11:30, or 11:45, to an hour later

    [row] = heat([Measured(at, HOUR_MS)], days=[day], zone=zone, now=LATER, gpus=1)

    before = HOUR_MS * (60 - minutes % 60) // 60
    assert row[11] == Cell(before, HOUR_MS)
    assert row[12] == Cell(HOUR_MS - before, HOUR_MS)
    assert sum(cell.part_ms for cell in row if cell) == HOUR_MS


def test_of_the_running_hour_only_what_has_passed_counts() -> None:
    now = datetime(2026, 11, 20, 9, 15, tzinfo=UTC)
    quarter = HOUR_MS // 4

    [row] = heat(
        [Measured(datetime(2026, 11, 20, 9, tzinfo=UTC), quarter // 2)],
        days=[date(2026, 11, 20)],
        zone=LONDON,
        now=now,
        gpus=1,
    )

    assert row[9] == Cell(quarter // 2, quarter)
    assert row[10] is None, "it is still to come"


def test_half_a_week_leased_is_half_also_while_an_hour_runs() -> None:
    now = datetime(2026, 11, 1, 17, 23, 17, tzinfo=UTC)
    days = [date(2026, 10, 26) + timedelta(days=number) for number in range(7)]
    starts = local_day(days[0], NEW_YORK).starts_at
    whole = [Measured(hour, HOUR_MS // 2) for hour in hours_from(starts, now - HOUR)]
    passed = now.replace(minute=0, second=0)
    running = Measured(passed, (now - passed) // timedelta(milliseconds=1) // 2)

    rows = heat([*whole, running], days=days, zone=NEW_YORK, now=now, gpus=1)

    assert whole_share_ppm(rows) == 500_000


def hours_from(starts: datetime, until: datetime) -> list[datetime]:
    found = [starts]
    while found[-1] + HOUR <= until:
        found.append(found[-1] + HOUR)
    return found


def test_busy_time_has_the_whole_that_was_measured() -> None:
    at = datetime(2026, 11, 20, 6, tzinfo=UTC)

    [row] = heat(
        [Measured(at, HOUR_MS // 4, HOUR_MS // 2)],
        days=[date(2026, 11, 20)],
        zone=KOLKATA,
        now=LATER,
    )

    assert [cell.percent for cell in row if cell] == [50, 50]
    assert row[10] is None


def test_a_change_of_half_an_hour_is_told_right() -> None:
    day = date(2026, 4, 5)  # at 2:00 clocks are put back to 1:30
    spans = wall_hours([day], LORD_HOWE, until=LATER)

    assert sum((window.length for window in spans[day, 1]), timedelta()) == timedelta(minutes=90)
    assert local_day(day, LORD_HOWE).length == timedelta(hours=24, minutes=30)


def test_a_day_that_has_no_midnight_begins_with_the_change() -> None:
    whole = local_day(date(2018, 11, 4), SAO_PAULO)

    assert whole.starts_at == datetime(2018, 11, 4, 3, tzinfo=UTC)
    assert whole.length == 23 * HOUR


@given(
    zone=st.sampled_from([NEW_YORK, KOLKATA, KATHMANDU, LORD_HOWE, LONDON]),
    first=st.dates(date(2025, 1, 1), date(2027, 12, 1)),
    parts=st.lists(st.integers(0, 3 * HOUR_MS), min_size=1, max_size=30),
    skipped=st.integers(0, 48),
    passed=st.integers(1, 24 * 60 * 60_000),
)
def test_nothing_is_lost_or_counted_twice(
    zone: ZoneInfo, first: date, parts: list[int], skipped: int, passed: int
) -> None:
    days = [first + timedelta(days=number) for number in range(3)]
    starts = local_day(days[0], zone).starts_at
    now = local_day(days[1], zone).ends_at + timedelta(milliseconds=passed)
    hour = starts.replace(minute=0) + HOUR * (1 + skipped)
    given_parts = [Measured(hour + HOUR * number, part) for number, part in enumerate(parts)]
    ends = local_day(days[2], zone).ends_at
    inside = [each for each in given_parts if each.hour < min(now, ends) and each.hour >= starts]
    whole = [each for each in inside if min(each.hour + HOUR, now) <= ends]

    rows = heat(given_parts, days=days, zone=zone, now=now, gpus=2)

    assert all(len(row) == HOURS for row in rows)
    spread = sum(cell.part_ms for row in rows for cell in row if cell)
    assert sum(each.part_ms for each in whole) <= spread <= sum(each.part_ms for each in inside)
    elapsed = (min(now, ends) - starts) // timedelta(milliseconds=1)
    assert sum(cell.whole_ms for row in rows for cell in row if cell) == 2 * elapsed
