"""Tells when a card's memory is not to be trusted or its clocks are held down, and when no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .gpus.port import Wear

WORN_LOOK_MS = 30_000
ALL_WELL = Wear()
Told = tuple[Literal["memory-fault", "memory-well", "slowed", "steady"], str]


@dataclass(slots=True)
class Worn:
    """What was told of one card, and when it was asked last."""

    told: Wear = ALL_WELL
    asked_ms: int | None = None

    def is_due(self, now_ms: int) -> bool:
        """Tell if the card is to be asked; at once at first."""
        if self.asked_ms is not None and now_ms - self.asked_ms < WORN_LOOK_MS:
            return False
        self.asked_ms = now_ms
        return True

    def news(self, wear: Wear) -> list[Told]:
        """Return what has changed since it was told last."""
        before, self.told = self.told, wear
        found: list[Told] = []
        if wear.memory and not before.memory:
            found.append(("memory-fault", wear.memory))
        elif before.memory and not wear.memory:
            found.append(("memory-well", f"no longer: {before.memory}"))
        if wear.slowed and not before.slowed:
            found.append(("slowed", f"its clocks are held down: {wear.slowed}"))
        elif before.slowed and not wear.slowed:
            found.append(("steady", f"no longer: {before.slowed}"))
        return found
