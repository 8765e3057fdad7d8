"""What pooling saved follows from its formula, and from nothing that nobody said."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.money import MILLIS_PER_HOUR, NANOS_PER_UNIT, Money, Rate
from marketplace.domain.spending.events import ComparisonSet
from marketplace.domain.spending.savings import (
    Comparisons,
    ComparisonUnclear,
    compare,
    dedicated_per_hour,
    saved,
)
from tests.conftest import NOON

TERMS = ComparisonSet(
    gpu_model="H100",
    currency="USD",
    cloud=Rate(4 * NANOS_PER_UNIT),
    purchase=Money(35_064 * NANOS_PER_UNIT),
    years=4,
    utilisation_ppm=500_000,
    running=Rate(NANOS_PER_UNIT // 2),
    source="a quote of March",
    by=None,
    at=NOON,
)


def test_the_formula_is_that_of_the_page() -> None:
    assert dedicated_per_hour(TERMS) == 2_500_000_000, "35,064 / (4 × 8,766 × 0.5) + 0.5"
    ten_hours, paid = 10 * MILLIS_PER_HOUR, 15 * NANOS_PER_UNIT
    assert saved(ten_hours, paid, 4 * NANOS_PER_UNIT) == 25 * NANOS_PER_UNIT
    assert saved(ten_hours, paid, dedicated_per_hour(TERMS)) == 10 * NANOS_PER_UNIT
    assert saved(ten_hours, paid, None) is None
    assert dedicated_per_hour(replace(TERMS, purchase=None)) is None


@given(st.integers(0, 10**12), st.integers(0, 10**15), st.integers(0, 10**12))
def test_what_costs_more_than_elsewhere_saves_less_than_nothing(
    millis: int, paid: int, price: int
) -> None:
    told = saved(millis, paid, price)
    assert told is not None
    assert (told < 0) == (millis * price // MILLIS_PER_HOUR < paid)


@pytest.mark.parametrize(
    "changed",
    [
        {"gpu_model": ""},
        {"cloud": None, "purchase": None},
        {"years": 0},
        {"utilisation_ppm": 0},
        {"utilisation_ppm": 1_000_001},
    ],
)
def test_unclear_figures_are_refused(changed: dict[str, object]) -> None:
    with pytest.raises(ComparisonUnclear):
        compare(Comparisons(), replace(TERMS, **changed))  # type: ignore[arg-type]


def test_the_same_figures_again_change_nothing() -> None:
    known = Comparisons.evolve(None, TERMS)
    assert compare(known, TERMS) == []
    assert compare(known, replace(TERMS, years=3)) == [replace(TERMS, years=3)]
