"""The times that a month was closed, from its events, and how its exports differ between two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from ledger.domain.closing_events import (
    FrozenExport,
    PeriodClosed,
    PeriodEvent,
    PeriodExportsFrozen,
    PeriodReopened,
    PeriodSoftClosed,
    ReopeningAsked,
    ReopeningDeclined,
)
from ledger.domain.ids import UserId


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """One time that a month was closed. position: of the event that closed it. reopened: how that
    ended; None: the month is closed since."""

    position: int
    by_user: UserId
    at: datetime
    exports: tuple[FrozenExport, ...] = ()
    reopened: PeriodReopened | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One export before and after. None: it was not made then."""

    format: str
    before: FrozenExport | None
    after: FrozenExport | None

    @property
    def is_same(self) -> bool:
        """Tell if it is byte for byte what it was."""
        if self.before is None or self.after is None:
            return False
        return self.before.sha256 == self.after.sha256


def closings_of(events: Iterable[tuple[int, PeriodEvent]], period: str) -> list[Closing]:
    """Return each time that a month was closed, the oldest first.

    events: of all months, each with its position, in their order.
    """
    found = list[Closing]()
    for position, event in events:
        if event.period != period:
            continue
        match event:
            case PeriodClosed():
                found.append(Closing(position=position, by_user=event.by_user, at=event.at))
            case PeriodExportsFrozen():
                found[-1] = replace(found[-1], exports=event.exports)
            case PeriodReopened():
                found[-1] = replace(found[-1], reopened=event)
            case PeriodSoftClosed() | ReopeningAsked() | ReopeningDeclined():
                continue
            case _:
                assert_never(event)
    return found


def differences(before: Closing, after: Closing) -> list[Difference]:
    """Return every export of both, in the order in which they were written."""
    was = _by_format(before)
    now = _by_format(after)
    return [Difference(name, was.get(name), now.get(name)) for name in dict.fromkeys([*now, *was])]


def _by_format(closing: Closing) -> Mapping[str, FrozenExport]:
    return {each.format: each for each in closing.exports}
