"""How amounts, use and lengths of time are written for people. Whole numbers in, text out."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.utils import timezone

from ledger.domain.rounding import digits_of, half_even, unit_of

NANOS = 1_000_000_000
MS_PER_HOUR = 3_600_000
MJ_PER_WH = 3_600_000
SIGNS = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥"}
UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def amount_text(nanos: int, currency: str, *, exact: bool = False) -> str:
    """Write an amount with its currency. Rounded half to even at the coin, unless `exact`.

    An amount that is not nothing never reads as nothing: below half a coin it says "<$0.01".
    """
    digits = digits_of(currency)
    sign = "\N{MINUS SIGN}" if nanos < 0 else ""
    size = abs(nanos)
    mark = SIGNS.get(currency, f"{currency} ")
    if exact:
        whole, rest = divmod(size, NANOS)
        fraction = f"{rest:09d}".rstrip("0").ljust(digits, "0")
        return f"{sign}{mark}{whole:,}{'.' if fraction else ''}{fraction}"
    coins = half_even(size, unit_of(currency))
    if size and not coins:
        least = f"{mark}0.{'1'.rjust(digits, '0')}" if digits else f"{mark}1"
        return f"{sign}<{least}"
    whole, part = divmod(coins, 10**digits)
    return f"{sign}{mark}{whole:,}" + (f".{part:0{digits}d}" if digits else "")


def places_of(amounts: Iterable[int], currency: str) -> int:
    """Return how many decimals write all of these nano-units exactly: those of the coin at least.

    A column of money has one number of decimals, or it cannot be added up by eye.
    """
    most = digits_of(currency)
    for nanos in amounts:
        fraction = f"{abs(nanos) % NANOS:09d}".rstrip("0")
        most = max(most, len(fraction))
    return most


def aligned_text(nanos: int, currency: str, places: int) -> tuple[str, str]:
    """Write an amount to so many decimals, in two parts: to the coin, and what is beyond it.

    places: as `places_of` gave them, so nothing is rounded.
    """
    digits = digits_of(currency)
    sign = "\N{MINUS SIGN}" if nanos < 0 else ""
    whole, rest = divmod(abs(nanos), NANOS)
    fraction = f"{rest:09d}"[:places]
    mark = SIGNS.get(currency, f"{currency} ")
    point = "." if fraction else ""
    if not digits:
        return f"{sign}{mark}{whole:,}", f"{point}{fraction}"
    return f"{sign}{mark}{whole:,}{point}{fraction[:digits]}", fraction[digits:]


def gpu_hours_text(gpu_ms: int) -> str:
    """GPU-milliseconds as GPU-hours, rounded to hundredths half up."""
    hundredths = (gpu_ms * 100 * 2 + MS_PER_HOUR) // (MS_PER_HOUR * 2)
    return f"{hundredths // 100:,}.{hundredths % 100:02d}"


def energy_text(millijoules: int) -> str:
    """Millijoules as kilowatt-hours from one on, else as whole watt-hours, rounded half up."""
    if millijoules < MJ_PER_WH * 1_000:
        return f"{(2 * millijoules + MJ_PER_WH) // (2 * MJ_PER_WH)} Wh"
    hundredths = (2 * millijoules + 10 * MJ_PER_WH) // (20 * MJ_PER_WH)
    return f"{hundredths // 100:,}.{hundredths % 100:02d} kWh"


def about_gpu_hours_text(gpu_ms: int) -> str:
    """GPU-milliseconds as an estimate of supply: whole hours from ten on, else to a tenth."""
    tenths = (gpu_ms * 10 * 2 + MS_PER_HOUR) // (MS_PER_HOUR * 2)
    if tenths >= 100 or tenths % 10 == 0:
        whole = (tenths + 5) // 10
        return f"{whole:,} GPU-hour{'' if whole == 1 else 's'}"
    return f"{tenths // 10}.{tenths % 10} GPU-hours"


def count_text(count: int, one: str) -> str:
    """A number of things: 1 file, 1,200 files."""
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def size_text(size_bytes: int) -> str:
    """Bytes in the largest unit of which there is one, to a tenth: 12.4 MiB."""
    size, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    if unit == "B":
        return f"{size_bytes:,} {'byte' if size_bytes == 1 else 'bytes'}"
    return f"{size:.0f} {unit}" if size >= 100 else f"{size:.1f} {unit}"


def duration_text(length: timedelta) -> str:
    """The two largest units of a length of time that are not zero; "0 s" for none."""
    seconds = abs(int(length.total_seconds()))
    parts = []
    for unit, size in UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts) or "0 s"


def since_text(passed: timedelta) -> str:
    """How long ago, or in how long for a negative length; the largest unit only."""
    seconds = int(abs(passed).total_seconds())
    if seconds < 10:
        return "just now"
    for unit, size in UNITS:
        if seconds >= size:
            text = f"{seconds // size} {unit}"
            return f"{text} ago" if passed > timedelta(0) else f"in {text}"
    raise AssertionError("ten seconds are at least one second")


def local(moment: datetime) -> str:
    """Wall time in the reader's zone, with the zone: Sat 28 Nov 22:00 GMT."""
    return f"{timezone.localtime(moment):%a %-d %b %H:%M %Z}"


def percent_ppm(ppm: int) -> str:
    """Parts per million as a percentage with one decimal."""
    tenths = (ppm + 500) // 1000
    return f"{tenths // 10}.{tenths % 10}%"
