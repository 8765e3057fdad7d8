"""Amounts in sentences are rounded to what a currency has, and never to nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.money import Money
from ledger.domain.rounding import half_even, in_words


@pytest.mark.parametrize(
    ("nanos", "currency", "words"),
    [
        (0, "USD", "0.00 USD"),
        (1_948_883, "USD", "less than 0.01 USD"),
        (-1_948_883, "USD", "more than -0.01 USD"),
        (5_000_001, "USD", "0.01 USD"),
        (2_145_000_000, "USD", "2.14 USD"),
        (2_155_000_000, "USD", "2.16 USD"),
        (-1_234_567_890_000, "EUR", "-1234.57 EUR"),
        (1_234_400_000_000, "KRW", "1234 KRW"),
        (400_000_000, "KRW", "less than 1 KRW"),
        (1_234_567_800, "KWD", "1.235 KWD"),
    ],
)
def test_an_amount_has_the_places_of_its_currency(nanos: int, currency: str, words: str) -> None:
    assert in_words(Money(nanos, currency)) == words


@given(st.integers(min_value=0, max_value=10**20), st.sampled_from((10**6, 10**7, 10**9)))
def test_the_nearest_unit_is_taken_and_of_two_the_even_one(nanos: int, unit: int) -> None:
    units = half_even(nanos, unit)

    off = abs(units * unit - nanos)
    assert 2 * off < unit or (2 * off == unit and units % 2 == 0)
