"""Amounts as a payment service counts them: whole minor units of a currency, such as cents.

Source: Stripe, "Supported currencies": zero-decimal and three-decimal currencies.
"""

from __future__ import annotations

from ledger.domain.money import NANOS_PER_UNIT, Money
from ledger.domain.refusal import Invalid

WHOLE = frozenset(
    "BIF CLP DJF GNF JPY KMF KRW MGA PYG RWF VND VUV XAF XOF XPF".split()  # noqa: SIM905
)
THOUSANDTHS = frozenset(("BHD", "JOD", "KWD", "OMR", "TND"))
MINOR_MAX = 99_999_999
"""The most that one payment may come to; Stripe's own bound for most currencies."""
MINOR_MIN = 100
"""The least: what is paid in smaller pieces is mostly fees."""


class AmountNotPayable(Invalid):
    """A payment is a whole number of cents, at least 1.00 and at most 999,999.99.

    Write it with at most two places.
    """


def unit_of(currency: str) -> int:
    """Return how many nano-units a minor unit of a currency has."""
    if currency in WHOLE:
        return NANOS_PER_UNIT
    return NANOS_PER_UNIT // (1_000 if currency in THOUSANDTHS else 100)


def money_of(minor: int, currency: str) -> Money:
    """Return an amount that a payment service names in minor units."""
    return Money(minor * unit_of(currency), currency)


def minor_of(money: Money) -> int:
    """Return an amount in minor units.

    Raises: AmountNotPayable, where it has smaller parts or is out of bounds.
    """
    minor, rest = divmod(money.nanos, unit_of(money.currency))
    if rest or not MINOR_MIN <= minor <= MINOR_MAX:
        raise AmountNotPayable(amount=money)
    return minor


def minor_rounded_down(money: Money) -> int:
    """Return the whole minor units in an amount; nothing for one below zero."""
    return max(0, money.nanos // unit_of(money.currency))
