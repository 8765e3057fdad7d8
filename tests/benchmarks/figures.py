"""A measured figure, and how a table of them is printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement. `limit` is what the bare machine did at the same thing, if that exists."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    limit_name: str = ""
    goal: str = ""
    digits: int = 1

    def line(self) -> str:
        """Return one line of the table."""
        ratio = (
            f"{self.value / self.limit:6.0%} of {self.limit:,.0f} ({self.limit_name})"
            if (self.limit)
            else ""
        )
        goal = f"   goal {self.goal}" if self.goal else ""
        return f"  {self.name:<52} {self.value:>12,.{self.digits}f} {self.unit:<10} {ratio}{goal}"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
