"""The forms of an offer by demand, as its page shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from listings.models import OfferRow

SHARES = {"mps": "shares by MPS", "timeslice": "time slices"}


@dataclass(frozen=True, slots=True)
class Way:
    """One form. floor: nano-units per hour of what is leased. is_current: the offer is in it."""

    text: str
    floor: int
    is_current: bool


def ways_of(row: OfferRow) -> list[Way]:
    """Return the forms that an offer's owner allows, in order; empty: it has one form for good."""
    by_demand = row.by_demand or {"forms": []}
    return [
        Way(
            text_of(form["division"]),
            form["floor"]["nanos_per_gpu_hour"],
            form["division"] == row.division,
        )
        for form in by_demand["forms"]
    ]


def text_of(division: Mapping[str, Any] | None) -> str:
    """Return how a card is leased, in words."""
    if division is None:
        return "whole"
    if division["kind"] == "mig":
        counted = Counter(division["profiles"])
        return "MIG: " + ", ".join(
            f"{times} × {name}" if times > 1 else name for name, times in counted.items()
        )
    parts = len(division["parts"]) or division["count"]
    return f"{parts} {SHARES[division['kind']]}"
