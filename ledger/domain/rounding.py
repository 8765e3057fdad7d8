"""Amounts in whole smallest units of a currency: rounded once, so that lines sum to the total."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.domain.money import NANOS_PER_UNIT, Money

DIGITS_DEFAULT = 2
DIGITS = {
    **dict.fromkeys(("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG"), 0),
    **dict.fromkeys(("RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF"), 0),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
}
"""Places after the point of currencies that do not have two. Source: ISO 4217."""


def digits_of(currency: str) -> int:
    """Return how many places after the point a currency has."""
    return DIGITS.get(currency, DIGITS_DEFAULT)


def unit_of(currency: str) -> int:
    """Return the smallest unit of a currency in nano-units."""
    return NANOS_PER_UNIT // int(10 ** digits_of(currency))


def half_up(nanos: int, unit: int) -> int:
    """Return the nearest multiple of `unit`; a half goes up."""
    return (2 * nanos + unit) // (2 * unit) * unit


def half_even(nanos: int, unit: int) -> int:
    """Return how many units are nearest to an amount that is not below zero; a half to even."""
    units, rest = divmod(nanos, unit)
    return units + (rest * 2 > unit or (rest * 2 == unit and units % 2))


def in_words(money: Money) -> str:
    """Write an amount for people, in a sentence: `0.80 USD`, and `less than 0.01 USD`."""
    digits, size = digits_of(money.currency), abs(money.nanos)
    units = half_even(size, unit_of(money.currency))
    little = ("less than " if money.nanos > 0 else "more than ") if size and not units else ""
    whole, part = divmod(units or (1 if size else 0), 10**digits)
    sign = "-" if money.nanos < 0 else ""
    return (
        f"{little}{sign}{whole}" + (f".{part:0{digits}d}" if digits else "") + f" {money.currency}"
    )


def lines_to_total(nanos: Sequence[int], unit: int) -> list[int]:
    """Round lines to multiples of `unit` that sum to their rounded sum.

    Largest remainder: each is rounded down, then the units left go to those that lost most, ties to
    the earlier. So each is within one unit of the exact, and equal input gives equal output.
    """
    parts = [each // unit * unit for each in nanos]
    left = (half_up(sum(nanos), unit) - sum(parts)) // unit
    assert 0 <= left <= len(nanos)
    neediest = sorted(range(len(nanos)), key=lambda index: (-(nanos[index] % unit), index))
    for index in neediest[:left]:
        parts[index] += unit
    return parts
