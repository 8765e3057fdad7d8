"""What is known of a lease lies on one axis: what is not known is a gap, and never nothing."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from config.site.parts.axis import (
    GPUS_HEIGHT,
    MARK_GAP_PX,
    POINTS_MAX,
    Axis,
    Measured,
    Price,
    Scale,
    axis_of,
    points_for,
)

SECOND, HOUR = 1_000, 3_600_000
DOLLAR = 1_000_000_000
PRICE = Price(2 * DOLLAR, 8 * DOLLAR)


def drawn(measured: list[Measured], *, ran: tuple[int, int] | None = (0, 4 * HOUR)) -> Axis:
    return axis_of(measured, Scale(0, 4 * HOUR, 4, 2), price=PRICE, ran=ran)


def test_bars_are_as_high_as_gpus_were_granted_and_busy() -> None:
    axis = drawn([Measured(0, 2 * HOUR, HOUR, 1_024), Measured(1, HOUR, 0, 512)], ran=(0, 2 * HOUR))

    assert [(each.x, each.width) for each in axis.points] == [(0.0, 25.0), (25.0, 25.0)]
    assert [each.granted.height for each in axis.points] == [GPUS_HEIGHT, GPUS_HEIGHT / 2]
    assert [each.busy.height for each in axis.points] == [GPUS_HEIGHT / 2, 0]
    assert [each.cost_nanos for each in axis.points] == [4 * DOLLAR, 6 * DOLLAR]
    assert axis.memory_most_mib == 1_024
    assert axis.gaps == []


def test_time_without_a_measurement_is_a_gap_while_the_work_ran_and_nothing_else() -> None:
    axis = drawn([Measured(0, HOUR, 0, None), Measured(3, HOUR, 0, None)])
    never = drawn([], ran=None)
    later = drawn([Measured(2, HOUR, 0, None)], ran=(2 * HOUR, 3 * HOUR))

    assert [(each.x, each.width) for each in axis.gaps] == [(25.0, 50.0)]
    assert [type(each).__name__ for each in axis.rows] == ["Point", "Gap", "Point"]
    assert never.gaps == [] and never.points == [] and never.cost == ""
    assert later.gaps == [], "before its work began nothing is missing"


def test_use_that_gpus_cannot_tell_is_unknown_and_not_idle() -> None:
    axis = drawn([Measured(0, HOUR, None, None)])

    assert axis.points[0].used is None
    assert axis.points[0].memory_mib is None
    assert not axis.is_use_known and axis.memory_most_mib is None


def test_a_part_that_is_not_over_is_as_wide_as_it_is_long_so_far() -> None:
    axis = axis_of(
        [Measured(0, HOUR, HOUR, None)],
        Scale(0, 4 * HOUR, 4, 2),
        price=PRICE,
        ran=(0, HOUR // 2),
        now_ms=HOUR // 2,
    )

    assert axis.points[0].gpus == 2
    assert axis.points[0].width == axis.now == 12.5
    assert axis.ahead.endswith("L1000 2.0"), "what it costs at most, at its end"


def test_events_have_numbers_and_those_close_together_one_mark() -> None:
    events = [(-HOUR, "Granted"), (0, "Started"), (2 * HOUR, "Saved"), (5 * HOUR, "Closed")]

    axis = axis_of([], Scale(0, 4 * HOUR, 1, 2), price=PRICE, events=events)

    assert [(each.text, each.x) for each in axis.marks] == [
        ("1-2", 0.0),
        ("3", 50.0),
        ("4", 100.0),
    ]
    assert axis.marks[0].titles == ("Granted", "Started")
    assert axis.marks[0].left == 0, "at an edge a mark stays within the picture"
    assert axis.marks[2].left == -axis.marks[2].width


@given(st.lists(st.integers(0, 24 * HOUR), max_size=60))
def test_marks_never_touch_on_a_phone_and_each_event_is_in_one(places: list[int]) -> None:
    events = [(at, f"event {number}") for number, at in enumerate(sorted(places), start=1)]

    marks = axis_of([], Scale(0, 24 * HOUR, 1, 2), price=PRICE, events=events).marks

    assert [title for each in marks for title in each.titles] == [title for _, title in events]
    for before, mark in pairwise(marks):
        assert mark.first == before.last + 1
        assert mark.begins >= before.begins + before.width + MARK_GAP_PX


def test_checkpoints_of_every_minute_are_thinned() -> None:
    saved = range(0, 4 * HOUR, 60 * SECOND)

    axis = axis_of([], Scale(0, 4 * HOUR, 1, 2), price=PRICE, saved=saved)

    assert 50 < len(axis.saved) <= 100


def test_a_long_lease_has_no_more_points_than_can_be_seen_and_a_short_one_no_emptier_ones() -> None:
    assert points_for(30 * 24 * HOUR, 10 * SECOND) == POINTS_MAX
    assert points_for(60 * SECOND, 10 * SECOND) == 6
    assert points_for(SECOND, 10 * SECOND) == 1


@given(
    st.lists(
        st.builds(
            Measured,
            at=st.integers(0, 23),
            granted_ms=st.integers(0, 10 * HOUR),
            used_ms=st.none() | st.integers(0, 10 * HOUR),
            memory_mib=st.none() | st.integers(0, 10**6),
        ),
        max_size=24,
        unique_by=lambda each: each.at,
    ),
    st.none() | st.tuples(st.integers(-HOUR, 25 * HOUR), st.integers(0, 25 * HOUR)),
)
def test_whatever_was_measured_stays_within_the_picture(
    measured: list[Measured], ran: tuple[int, int] | None
) -> None:
    axis = axis_of(measured, Scale(0, 24 * HOUR, 24, 8), price=PRICE, ran=ran)

    for each in axis.points:
        assert 0 <= each.granted.height <= GPUS_HEIGHT
        assert 0 <= each.busy.height <= each.granted.height
        assert 0 <= each.x <= 100
    for gap in axis.gaps:
        assert not any(gap.starts_ms < each.ends_ms <= gap.ends_ms for each in axis.points)
