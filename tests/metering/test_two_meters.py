"""The owners' meter beside the work's own heartbeat: where they differ, and by how much."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.domain.rollup import Span
from metering.domain.two_meters import Granted, Heartbeat, Tolerance, compare, union, without

WINDOW = (0, 600_000)
TWO_PERCENT = Tolerance(ppm=20_000, millis=60_000)

points = st.integers(0, 60)
spans = st.lists(
    st.tuples(points, points).map(lambda pair: (min(pair), max(pair))), max_size=6
).map(tuple)


def one(granted: tuple[Span, ...], beat: Heartbeat, name: str = "GPU-a") -> Granted:
    return Granted(name, granted, beat)


def covered(found: tuple[Span, ...]) -> set[int]:
    return {at for start, end in found for at in range(start, end)}


@given(spans, spans, spans)
def test_what_is_missing_is_granted_and_neither_alive_nor_left_out(
    granted: tuple[Span, ...], alive: tuple[Span, ...], away: tuple[Span, ...]
) -> None:
    beat = Heartbeat(alive=alive, since_ms=10)

    found = compare([one(granted, beat)], (5, 55), not_counted=away)

    expected = {at for at in covered(granted) if 10 <= at < 55}
    expected -= covered(alive) | covered(away)
    assert covered(found.missing.get("GPU-a", ())) == expected
    assert found.missing_ms == len(expected)
    assert found.granted_ms == len({at for at in covered(granted) if 5 <= at < 55})


@given(spans, spans)
def test_spans_are_taken_together_and_apart(
    some: tuple[Span, ...], taken: tuple[Span, ...]
) -> None:
    left, right = union(some, (0, 60)), union(taken, (0, 60))

    assert covered(left) == covered(some)
    assert covered(without(left, right)) == covered(some) - covered(taken)


def test_work_without_a_heartbeat_is_not_compared() -> None:
    found = compare([one((WINDOW,), Heartbeat())], WINDOW)

    assert (found.missing_ms, found.alive_ms, found.compared_ms) == (0, 600_000, 0)
    assert not found.is_beyond(Tolerance(0, 0))


def test_before_its_first_heartbeat_work_may_take_its_time() -> None:
    beat = Heartbeat(alive=((300_000, 600_000),), since_ms=300_000)

    assert compare([one((WINDOW,), beat)], WINDOW).missing_ms == 0


def test_a_gap_of_the_owners_meter_is_missing_in_neither() -> None:
    beat = Heartbeat(alive=((0, 100_000),), since_ms=0)

    assert compare([one(((0, 100_000),), beat)], WINDOW).missing_ms == 0


def test_what_is_alive_after_the_runtime_saw_it_end_does_not_count() -> None:
    beat = Heartbeat(alive=((0, 600_000),), since_ms=0, ended_ms=400_000)

    found = compare([one((WINDOW,), beat)], WINDOW)

    assert found.missing == {"GPU-a": ((400_000, 600_000),)}


@pytest.mark.parametrize(
    ("alive_until", "beyond"), [(600_000, False), (540_000, False), (539_999, True)]
)
def test_a_minute_a_gpu_is_tolerated(alive_until: int, beyond: bool) -> None:
    beat = Heartbeat(alive=((0, alive_until),), since_ms=0)

    assert compare([one((WINDOW,), beat)], WINDOW).is_beyond(TWO_PERCENT) is beyond


def test_a_small_share_of_a_long_window_is_tolerated() -> None:
    window = (0, 36_000_000)
    beat = Heartbeat(alive=((0, 36_000_000 - 700_000),), since_ms=0)

    found = compare([one((window,), beat)], window)

    assert not found.is_beyond(TWO_PERCENT)
    assert found.is_beyond(Tolerance(ppm=19_000, millis=60_000))
