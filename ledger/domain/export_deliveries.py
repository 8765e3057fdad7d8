"""Exports of closed months that are brought to finance by themselves, once for each closing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, assert_never

from ledger.domain.event import Event

WORDS_LENGTH_MAX = 300


class ExportsDelivered(Event, name="ledger.exports-delivered"):
    """A closed month's exports and their manifest are at the target, whole.

    Stream exportdelivery-<period>. position: of the event that closed it. formats: their names.
    target: the folder or bucket.
    """

    period: str
    position: int
    target: str
    formats: tuple[str, ...]
    at: datetime


class ExportsNotDelivered(Event, name="ledger.exports-not-delivered"):
    """They could not be brought there; it is tried again. words: why, said once as long as it is
    the same."""

    period: str
    position: int
    target: str
    words: str
    at: datetime


DeliveryEvent = ExportsDelivered | ExportsNotDelivered


@dataclass(frozen=True, slots=True)
class ExportDelivery:
    """How far a month's delivery is. position, target: of the last one. words: why it failed."""

    STREAM: ClassVar[str] = "exportdelivery"

    position: int = 0
    target: str = ""
    words: str = ""

    @classmethod
    def evolve(cls, state: ExportDelivery | None, event: DeliveryEvent, /) -> ExportDelivery:
        """Return the delivery after `event`."""
        state = state or cls()
        match event:
            case ExportsDelivered():
                return cls(event.position, event.target)
            case ExportsNotDelivered():
                return cls(state.position, state.target, event.words)
            case _:
                assert_never(event)

    def deliver(
        self, period: str, *, position: int, target: str, formats: Sequence[str], now: datetime
    ) -> Sequence[DeliveryEvent]:
        """Note that a closing's exports are there, once for each target."""
        if (self.position, self.target) == (position, target):
            return []
        told = tuple(sorted(formats))
        return [
            ExportsDelivered(period=period, position=position, target=target, formats=told, at=now)
        ]

    def fail(
        self, period: str, *, position: int, target: str, words: str, now: datetime
    ) -> Sequence[DeliveryEvent]:
        """Note why they are not, as often as the reason is another one."""
        words = words[:WORDS_LENGTH_MAX]
        if words == self.words:
            return []
        return [
            ExportsNotDelivered(
                period=period, position=position, target=target, words=words, at=now
            )
        ]
