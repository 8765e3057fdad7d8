"""Spans of numbers stand for the set of numbers, and stay few."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from metering.domain.numbers import SPANS_MAX, all_new, is_taken, taken_with

NUMBERS = st.lists(st.integers(1, 40), unique=True, max_size=15).map(sorted)


@given(st.lists(NUMBERS, max_size=8), NUMBERS)
def test_spans_hold_what_was_taken_and_nothing_else(
    batches: list[list[int]], asked: list[int]
) -> None:
    spans: list[int] = []
    for batch in batches:
        spans = taken_with(spans, batch)
    taken = {seq for batch in batches for seq in batch}

    assert [seq for seq in range(50) if is_taken(spans, seq)] == sorted(taken)
    assert all_new(spans, asked) == taken.isdisjoint(asked)
    assert spans == sorted(set(spans))


def test_a_run_without_holes_is_one_span_however_long() -> None:
    spans: list[int] = []
    for start in range(1, 100_000, 1_000):
        spans = taken_with(spans, range(start, start + 1_000))

    assert spans == [1, 100_001]


def test_beyond_a_bound_the_earliest_holes_count_as_taken() -> None:
    spans: list[int] = []
    for seq in range(1, 4 * SPANS_MAX, 2):
        spans = taken_with(spans, [seq])

    assert len(spans) == 2 * SPANS_MAX
    assert is_taken(spans, 2)
    assert not is_taken(spans, 4 * SPANS_MAX - 2)
