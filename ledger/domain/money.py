"""Money as whole nano-units and use as whole GPU-milliseconds, so that sums never drift."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ledger.domain.making import made_quickly
from ledger.domain.refusal import Invalid

NANOS_PER_UNIT = 1_000_000_000
MILLIS_PER_HOUR = 3_600_000
NANOS_MAX = 9_000_000_000 * NANOS_PER_UNIT
"""Nine thousand million units: what a signed 64-bit column holds, with room for a sum."""

_DECIMAL = re.compile(r"-?[0-9]{1,10}(\.[0-9]+)?")


class AmountUnreadable(Invalid):
    """An amount is a plain decimal number such as 2.15.

    Write it without sign, exponent, thousands separators or currency symbol.
    """


class AmountTooFine(Invalid):
    """An amount has at most nine decimal places: a nano-unit is the smallest there is."""


class AmountTooLarge(Invalid):
    """An amount must lie between zero and nine thousand million units."""


class CurrencyUnknown(Invalid):
    """A currency is a three-letter ISO 4217 code such as USD."""


def nanos_of(text: str) -> int:
    """Read a decimal number of units as whole nano-units.

    Raises:
        AmountUnreadable: not a plain decimal number (NaN, 1e9, 1,000 and the like).
        AmountTooFine: more than nine decimal places that are not zero.
        AmountTooLarge: beyond NANOS_MAX, or below zero.
    """
    if not _DECIMAL.fullmatch(text):
        raise AmountUnreadable(given=text[:40])
    whole, _, fraction = text.partition(".")
    if fraction[9:].strip("0"):
        raise AmountTooFine(given=text[:40])
    nanos = abs(int(whole)) * NANOS_PER_UNIT + int(fraction[:9].ljust(9, "0"))
    if (text.startswith("-") and nanos) or nanos > NANOS_MAX:
        raise AmountTooLarge(given=text[:40])
    return nanos


def decimal_of(nanos: int, *, places_min: int = 2) -> str:
    """Write nano-units as a decimal number: at least `places_min` places, no more than needed."""
    sign = "-" if nanos < 0 else ""
    whole, rest = divmod(abs(nanos), NANOS_PER_UNIT)
    fraction = f"{rest:09d}".rstrip("0").ljust(places_min, "0")
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"


@dataclass(frozen=True, slots=True, order=True)
class Money:
    """An amount in thousand-millionths of one currency unit; negative means owed."""

    nanos: int
    currency: str = "USD"

    def __str__(self) -> str:
        """Return it as a person reads it in a refusal: `0.80 USD`."""
        return f"{decimal_of(self.nanos)} {self.currency}"

    def __add__(self, other: Money) -> Money:
        assert self.currency == other.currency
        return Money(self.nanos + other.nanos, self.currency)

    def __sub__(self, other: Money) -> Money:
        assert self.currency == other.currency
        return Money(self.nanos - other.nanos, self.currency)

    def share(self, ppm: int) -> Money:
        """Return `ppm` millionths of the amount, rounded down to a whole nano-unit."""
        return Money(self.nanos * ppm // 1_000_000, self.currency)


@made_quickly
@dataclass(frozen=True, slots=True, order=True)
class Rate:
    """A price in nano-units per GPU-hour."""

    nanos_per_gpu_hour: int
    currency: str = "USD"

    def __str__(self) -> str:
        """Return it as a person reads it in a refusal: `0.80 USD per GPU-hour`."""
        return f"{decimal_of(self.nanos_per_gpu_hour)} {self.currency} per GPU-hour"

    def charge(self, gpu_millis: int) -> Money:
        """Price a use of `gpu_millis` GPU-milliseconds.

        Rounds down to a whole nano-unit, in the consumer's favour. Rate totals, never ticks:
        what a lease owes so far is `charge(total so far)`, and a capture is the difference to
        what was captured before, so batching and order cannot change the sum.
        """
        assert gpu_millis >= 0
        return Money(self.nanos_per_gpu_hour * gpu_millis // MILLIS_PER_HOUR, self.currency)
