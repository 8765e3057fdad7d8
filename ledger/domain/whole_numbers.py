"""Whole numbers that came as text: in an address, a header, a cookie, a form."""

from __future__ import annotations

import re

DIGITS_MAX = 40
_WHOLE = re.compile(r"[0-9]{1,40}")


def whole_number(text: str, *, least: int, most: int) -> int:
    """Read a whole number between two bounds, both of which it may be.

    Digits 0 to 9 and nothing else: no sign, no blank, no underscore, no digit of another script,
    all of which `int` takes. The bounds hold for the number as read: leading zeros change nothing.

    Raises: ValueError.
    """
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(f"no whole number: {text[:DIGITS_MAX]!r}")
    number = int(text)
    if not least <= number <= most:
        raise ValueError(f"not between {least} and {most}: {number}")
    return number
