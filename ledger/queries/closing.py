"""Which months there are, and how far each is closed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from django.db.models import Count

from ledger.domain.closing import Periods, State
from ledger.domain.closing_events import PeriodEvent
from ledger.domain.closings import Closing, closings_of
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.periods import Period, read_period
from ledger.eventstore.port import EventStore, stream_name
from ledger.models import ClosedThroughRow, JournalEntryRow, PeriodRow


@dataclass(frozen=True, slots=True)
class MonthSeen:
    """A month. row: what is known of its closing; None: nobody began, or it was closed with a
    later one."""

    period: Period
    state: State
    row: PeriodRow | None

    @property
    def reopening(self) -> bool:
        """Tell if somebody asked to open it again."""
        return self.row is not None and self.row.reopening_by is not None


def months(*, now: datetime) -> list[MonthSeen]:
    """Return all months from the first entry, or the first one closed, on; the newest first."""
    first = JournalEntryRow.objects.order_by("period").values_list("period", flat=True).first()
    newest, through, found = Period.of(now), _through(), list[MonthSeen]()
    rows = {row.period: row for row in PeriodRow.objects.all()}
    period = read_period(min([str(newest), first or str(newest), *rows]))
    while period <= newest:
        found.append(_seen(period, rows.get(str(period)), through))
        period = period.next
    return found[::-1]


def month(period: Period) -> MonthSeen:
    """Return one month."""
    return _seen(period, PeriodRow.objects.filter(period=str(period)).first(), _through())


def _through() -> str:
    return ClosedThroughRow.objects.values_list("period", flat=True).first() or ""


def _seen(period: Period, row: PeriodRow | None, through: str) -> MonthSeen:
    if row is None:
        return MonthSeen(period, "closed" if str(period) <= through else "open", None)
    state: State = "closed" if row.state == "closed" else "open"
    return MonthSeen(period, "soft-closed" if row.state == "soft-closed" else state, row)


@dataclass(frozen=True, slots=True)
class Came:
    """What was recorded of a month between two events: how many entries of one kind."""

    kind: str
    entries: int


def closings(store: EventStore, period: Period) -> list[Closing]:
    """Return each time that a month was closed, the oldest first."""
    stream = stream_name(Periods, PLATFORM_ID)
    events = ((each.position, each.event) for each in store.read_stream(stream))
    return closings_of(cast("Iterable[tuple[int, PeriodEvent]]", events), str(period))


def recorded_between(period: Period, after: int, until: int | None) -> list[Came]:
    """Return what entries of a month were recorded after a position and up to another one."""
    rows = JournalEntryRow.objects.filter(period=str(period), position__gt=after)
    if until is not None:
        rows = rows.filter(position__lte=until)
    counted = rows.values("kind").annotate(many=Count("*")).order_by("-many", "kind")
    return [Came(each["kind"], each["many"]) for each in counted]
