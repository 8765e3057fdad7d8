"""Whole numbers on the command line: digits and nothing else that Python takes for a number."""

from __future__ import annotations

from collections.abc import Callable

import typer

from .spoken import NotUnderstood, gib_of, whole_of

SHOWN_MAX = 40


def gib(text: str) -> int:
    """Read a size of at least a GiB, as `gib_of` does."""
    try:
        size = gib_of(str(text))
    except NotUnderstood as wrong:
        raise typer.BadParameter(f"{wrong}.") from None
    if size < 1:
        raise typer.BadParameter(f"{str(text)[:SHOWN_MAX]!r} is no room: write at least 1 (GiB).")
    return size


def whole(least: int | None = None, most: int | None = None) -> Callable[[str], int]:
    """Return what reads a whole number between two bounds.

    `1_000`, digits of other scripts and thousands of digits are refused, as the API does.
    """

    def number(text: str) -> int:
        try:
            value = whole_of(str(text))
        except ValueError:
            raise typer.BadParameter(f"{str(text)[:SHOWN_MAX]!r} is no whole number.") from None
        if (least is not None and value < least) or (most is not None and value > most):
            bounds = f"at least {least}" if most is None else f"between {least} and {most}"
            raise typer.BadParameter(f"{value} is not {bounds}.")
        return value

    number.__name__ = "number"
    return number
