"""Figures as people read them: percent, money with its currency, GPU-hours. JSON has them whole."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

PLACES = Decimal("0.0001")
MILLIS_PER_HOUR = 3_600_000
MILLIJOULES_PER_KWH = 3_600_000_000

Entry = Mapping[str, Any]


def money(value: Any, entry: Entry) -> str:
    """Return an amount with the currency of its entry: 2.15 USD."""
    if value is None or value == "":
        return "-"
    currency = entry.get("currency")
    return f"{rounded(str(value))} {currency}" if currency else rounded(str(value))


def rounded(amount: str) -> str:
    """Return an amount with two to four places; one that would round to nothing stays whole."""
    try:
        whole = Decimal(amount)
        near = whole.quantize(PLACES)
    except InvalidOperation:
        return amount
    if near == 0 and whole != 0:
        return amount
    digits = f"{near:f}"
    kept = digits.rstrip("0")
    return kept + "0" * (2 - len(kept.partition(".")[2]))


def percent(value: Any, entry: Entry) -> str:
    """Return millionths as percent: 936806 is 93.68 %."""
    if not isinstance(value, int) or isinstance(value, bool):
        return "-"
    digits = f"{Decimal(value) / 10_000:.2f}".rstrip("0").rstrip(".")
    return f"{digits} %"


def gpu_hours(value: Any, entry: Entry) -> str:
    """Return GPU-milliseconds as GPU-hours."""
    if not isinstance(value, int) or isinstance(value, bool):
        return "-"
    return f"{Decimal(value) / MILLIS_PER_HOUR:.4f}".rstrip("0").rstrip(".")


def kilowatt_hours(value: Any, entry: Entry) -> str:
    """Return millijoules as kilowatt-hours."""
    if not isinstance(value, int) or isinstance(value, bool):
        return "-"
    return f"{Decimal(value) / MILLIJOULES_PER_KWH:.4f}".rstrip("0").rstrip(".")


def gpu_hours_of_seconds(value: Any, entry: Entry) -> str:
    """Return GPU-seconds as GPU-hours."""
    return gpu_hours(value * 1_000, entry) if isinstance(value, int) else "-"
