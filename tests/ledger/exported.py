"""Reading what was exported."""

from __future__ import annotations

import csv
import io


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def nanos(text: str) -> int:
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    whole, _, fraction = digits.partition(".")
    return sign * (int(whole) * 10**9 + int(fraction.ljust(9, "0")))
