"""Over time cohorts get what their weights say, however many units each of them has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from tests.marketplace.support.hungry import CROWD, GPUS, Hungry, Lane


def lived(
    cohorts: Mapping[str, Sequence[str]], lane: Lane, hours: int, **weights: int
) -> Counter[str]:
    """Return what each unit had after so many hours in which everybody wanted everything."""
    market = Hungry(cohorts, weights)
    for number in range(hours):
        market.hour(number, lane)
    assert market.had.total() == GPUS * hours, "nothing was left idle"
    return market.had


LANES = pytest.mark.parametrize("lane", ["instant", "rounds"])


@LANES
def test_a_cohort_of_one_unit_gets_as_much_as_one_of_five(lane: Lane) -> None:
    had = lived({"single": ["a"], "crowd": CROWD}, lane, hours=40)

    assert abs(had["a"] - 60) <= 2
    assert all(abs(had[unit] - 12) <= 2 for unit in CROWD)


@LANES
def test_with_twice_the_weight_it_gets_twice_as_much(lane: Lane) -> None:
    had = lived({"single": ["a"], "crowd": CROWD}, lane, hours=40, single=2)

    assert abs(had["a"] - 80) <= 2
    assert all(abs(had[unit] - 8) <= 2 for unit in CROWD)


@LANES
def test_units_beside_each_other_get_a_sixth_each(lane: Lane) -> None:
    had = lived({"": ["a", *CROWD]}, lane, hours=40)

    assert all(abs(had[unit] - 20) <= 2 for unit in ("a", *CROWD))


@LANES
def test_what_a_pass_gives_counts_before_it_gives_more(lane: Lane) -> None:
    market = Hungry({"single": ["a"], "crowd": CROWD}, {})
    for number in range(12):
        market.hour(number, lane)

        # Ranked once a pass, a cohort would get all three GPUs of the hour.
        assert abs(2 * market.had["a"] - market.had.total()) <= 1
