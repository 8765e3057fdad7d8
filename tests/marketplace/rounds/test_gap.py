"""The gap of a round is told where it says something: a ratio of what rounding left is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.domain.facts.values import DUST_NANOS, gap_ppm

CENT = 10_000_000


@pytest.mark.parametrize(
    ("worth", "bound", "ppm"),
    [
        (0, 1, None),  # nothing could be granted: a bound of one nano-unit is rounding
        (0, 0, None),
        (0, DUST_NANOS, None),
        (5 * CENT, 5 * CENT + 3, 1),  # it is never rounded away
        (5 * CENT + 3, 5 * CENT, 0),  # no gap is below zero
        (0, 5 * CENT, 1_000_000),  # something was there to be gained, and was not
        (3 * CENT, 4 * CENT, 250_000),
        (3 * CENT - 1, 4 * CENT, 250_001),  # rounded up: at most so much
    ],
)
def test_a_gap_is_a_gap_of_something(worth: int, bound: int, ppm: int | None) -> None:
    assert gap_ppm(worth_nanos=worth, bound_nanos=bound) == ppm


@given(st.integers(0, 10**15), st.integers(0, 10**15))
def test_a_gap_lies_between_nothing_and_all(worth: int, bound: int) -> None:
    gap = gap_ppm(worth_nanos=min(worth, bound), bound_nanos=bound)

    assert gap is None or 0 <= gap <= 1_000_000
    if gap is not None:
        assert gap * bound >= (bound - min(worth, bound)) * 1_000_000
