"""What may be asked about accounting periods: to close a month, and to open it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from ledger.domain.closing import Check, Periods
from ledger.domain.closing_events import FrozenExport, PeriodEvent
from ledger.domain.ids import UserId
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.periods import Period
from ledger.eventstore.port import EventStore, Meta, Position, record


def soft_close_period(
    store: EventStore, period: Period, *, user_id: UserId, by: Meta, now: datetime
) -> Position:
    """Say that a month that is over is about to be closed.

    Raises: PeriodNotOver, EarlierPeriodOpen, PeriodStateOtherwise.
    """
    return _record(store, lambda all_: all_.soft_close(period, by=user_id, now=now), by)


def close_period(
    store: EventStore,
    period: Period,
    *,
    checks: Sequence[Check],
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Close a month: nothing counts in it any more. checks: what was found of it just now.

    Raises: PeriodStateOtherwise, EarlierPeriodOpen, PeriodNotReady.
    """
    return _record(store, lambda all_: all_.close(period, checks=checks, by=user_id, now=now), by)


def freeze_exports(
    store: EventStore,
    period: Period,
    *,
    exports: Sequence[FrozenExport],
    by: Meta,
    now: datetime,
) -> Position:
    """Note what the exports of a closed month are, once for each time that it was closed."""
    return _record(store, lambda all_: all_.freeze(period, exports=exports, now=now), by)


def ask_to_reopen_period(
    store: EventStore, period: Period, *, reason: str, user_id: UserId, by: Meta, now: datetime
) -> Position:
    """Ask to open a closed month again. Nothing changes before somebody else approves.

    Raises: ReasonMissing, TextUnreadable, PeriodStateOtherwise, ReopeningAskedBefore.
    """

    def decide(periods: Periods) -> Sequence[PeriodEvent]:
        return periods.ask_to_reopen(period, reason=reason, by=user_id, now=now)

    return _record(store, decide, by)


def approve_reopening(
    store: EventStore, period: Period, *, user_id: UserId, by: Meta, now: datetime
) -> Position:
    """Open a month again that somebody else asked for.

    Raises: ReopeningNotAsked, SecondPersonNeeded.
    """
    return _record(store, lambda all_: all_.approve(period, by=user_id, now=now), by)


def decline_reopening(
    store: EventStore, period: Period, *, user_id: UserId, by: Meta, now: datetime
) -> Position:
    """Leave a month closed that somebody asked to open again.

    Raises: ReopeningNotAsked.
    """
    return _record(store, lambda all_: all_.decline(period, by=user_id, now=now), by)


def _record(
    store: EventStore, decide: Callable[[Periods], Sequence[PeriodEvent]], by: Meta
) -> Position:
    return record(store, Periods, PLATFORM_ID, lambda known: decide(known or Periods()), by=by)
