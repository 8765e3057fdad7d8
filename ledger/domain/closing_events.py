"""What happens to accounting periods: stream periods-<platform's tenant id>, one for all months."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ledger.domain.event import Event
from ledger.domain.ids import UserId


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenExport:
    """An export of a closed period, by what its manifest said. position: as of which event."""

    format: str
    version: str
    position: int
    rows: int
    bytes: int
    sha256: str


class PeriodSoftClosed(Event, name="ledger.period-soft-closed"):
    """A month is over and about to be closed. Late use of it still counts in it.

    period: as 2026-11.
    """

    period: str
    by_user: UserId
    at: datetime


class PeriodClosed(Event, name="ledger.period-closed"):
    """The month, and with the first one closed all before it, takes no entries any more.

    What is recorded later counts in the first month after it that is open. checked: the names of
    what was found in order.
    """

    period: str
    checked: tuple[str, ...]
    by_user: UserId
    at: datetime


class PeriodExportsFrozen(Event, name="ledger.period-exports-frozen"):
    """The exports of a closed month were written once; asked for again they are the same bytes."""

    period: str
    exports: tuple[FrozenExport, ...]
    at: datetime


class ReopeningAsked(Event, name="ledger.reopening-asked"):
    """Somebody asked to open a closed month again; somebody else has to agree."""

    period: str
    reason: str
    asked_by: UserId
    at: datetime


class ReopeningDeclined(Event, name="ledger.reopening-declined"):
    """The month stays closed: somebody declined, or who asked took it back."""

    period: str
    declined_by: UserId
    at: datetime


class PeriodReopened(Event, name="ledger.period-reopened"):
    """The month takes entries again until it is closed once more."""

    period: str
    reason: str
    asked_by: UserId
    approved_by: UserId
    at: datetime


PeriodEvent = (
    PeriodSoftClosed
    | PeriodClosed
    | PeriodExportsFrozen
    | ReopeningAsked
    | ReopeningDeclined
    | PeriodReopened
)
