"""A machine outside the record: found under our tags, ended, and booked like any other.

It comes about where a launch took effect after we had given up on it, where a machine shows up that
was thought lost, or where somebody launched one under our tags by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, assert_never
from uuid import UUID, uuid5

from bursting.domain.capacity import InstancePrice
from bursting.domain.events import StrayEnded, StrayEvent, StrayFound, StrayId
from ledger.domain.money import Money

STRAYS = UUID("5d0f7c1e-6a43-5f0b-9b7a-3c1f6f1f9a55")


def stray_of(cloud: str, cloud_ref: str) -> StrayId:
    """Return the id of a machine outside the record: the same whoever finds it."""
    return StrayId(uuid5(STRAYS, f"{cloud}\n{cloud_ref}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """What one such machine's stream adds up to."""

    STREAM: ClassVar[str] = "burst-stray"

    found: StrayFound
    ended: StrayEnded | None = None

    @property
    def is_over(self) -> bool:
        """Test if it has ended and its cost is known."""
        return self.ended is not None

    def end(self, *, ended_at: datetime | None, now: datetime) -> list[StrayEnded]:
        """Take down that it has ended, once; `ended_at` as the cloud tells, None for unknown."""
        if self.is_over:
            return []
        found = self.found
        since = min(found.launched_at, found.at)
        until = now if ended_at is None else min(max(ended_at, since), now)
        hourly = found.told.hourly or Money(0, found.booked.currency)
        cost = Money(0, hourly.currency)
        if hourly.nanos:
            cost = InstancePrice(hourly.nanos, hourly.currency).cost(until - since)
        # What was booked in another currency cannot be set off against this.
        if found.booked.currency == cost.currency:
            cost -= found.booked
        return [StrayEnded(stray_id=found.stray_id, cost=cost, ended_at=ended_at, at=now)]

    @classmethod
    def evolve(cls, state: Stray | None, event: StrayEvent, /) -> Stray:
        """Return the machine after `event`."""
        match event:
            case StrayFound():
                assert state is None
                return cls(found=event)
            case StrayEnded():
                assert state is not None
                return replace(state, ended=event)
            case _:
                assert_never(event)
