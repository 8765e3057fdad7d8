"""Amounts, use and time are written from whole numbers, exactly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.site.parts.figures import (
    NANOS,
    amount_text,
    duration_text,
    gpu_hours_text,
    percent_ppm,
    since_text,
)
from config.templatetags import offpeak


@pytest.mark.parametrize(
    ("nanos", "currency", "text"),
    [
        (0, "USD", "$0.00"),
        (2_140_000_000, "USD", "$2.14"),
        (2_145_000_000, "USD", "$2.14"),
        (2_155_000_000, "USD", "$2.16"),
        (1, "USD", "<$0.01"),
        (-1, "USD", "\N{MINUS SIGN}<$0.01"),
        (-1_234_567_890_000_000, "EUR", "\N{MINUS SIGN}€1,234,567.89"),
        (1_500_000_000, "JPY", "¥2"),
        (7_250_000_000, "CHF", "CHF 7.25"),
        (1_234_400_000_000, "KRW", "KRW 1,234"),
        (400_000_000, "KRW", "<KRW 1"),
        (1_234_567_800, "KWD", "KWD 1.235"),
    ],
)
def test_amounts_round_half_even_to_the_coin(nanos: int, currency: str, text: str) -> None:
    assert amount_text(nanos, currency) == text


@given(st.integers(min_value=-(10**24), max_value=10**24))
def test_exact_amounts_lose_nothing(nanos: int) -> None:
    text = amount_text(nanos, "USD", exact=True)

    sign = -1 if text.startswith("\N{MINUS SIGN}") else 1
    whole, _, fraction = text.lstrip("\N{MINUS SIGN}$").replace(",", "").partition(".")
    assert sign * (int(whole) * NANOS + int(fraction.ljust(9, "0"))) == nanos


@given(st.integers(min_value=1, max_value=10**24))
def test_an_amount_that_is_not_nothing_never_reads_as_nothing(nanos: int) -> None:
    assert amount_text(nanos, "USD") != amount_text(0, "USD")


def test_gpu_hours_round_to_hundredths() -> None:
    assert gpu_hours_text(3_600_000) == "1.00"
    assert gpu_hours_text(17_999) == "0.00"
    assert gpu_hours_text(18_000) == "0.01"
    assert gpu_hours_text(123_456_789_000) == "34,293.55"


def test_lengths_show_their_two_largest_units() -> None:
    assert duration_text(timedelta(hours=7, minutes=30, seconds=9)) == "7 h 30 min"
    assert duration_text(timedelta(days=2, seconds=5)) == "2 d"
    assert duration_text(timedelta()) == "0 s"


def test_moments_are_told_from_now() -> None:
    assert since_text(timedelta(seconds=9)) == "just now"
    assert since_text(timedelta(minutes=3, seconds=50)) == "3 min ago"
    assert since_text(-timedelta(hours=5)) == "in 5 h"


def test_times_are_written_in_utc_with_z() -> None:
    noon = datetime(2026, 1, 5, 12, 0, 0, 999_999, tzinfo=UTC)

    assert offpeak.rfc3339(noon) == "2026-01-05T12:00:00Z"
    assert percent_ppm(305_499) == "30.5%"
