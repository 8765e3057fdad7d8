"""Tables of the page, and how it writes a share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: str, rows: Iterable[Sequence[str]]) -> str:
    """Return a table. head: the names of the columns, with bars between them."""
    columns = head.count("|") + 1
    lines = [f"| {head} |", "|" + "---|" * columns]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def share(value: float) -> str:
    """Write a share of one in percent."""
    return f"{value * 100:.1f} %"


def went_on(shares: Sequence[float]) -> list[str]:
    """Write which shares of interrupted work went on within 5 minutes, 30 minutes, 24 hours."""
    return [share(each) for each in shares]
