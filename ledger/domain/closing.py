"""How months are closed, and to which month an entry counts.

A month goes from open to soft-closed to closed, in order: the first one that is closed closes all
before it, and after that one follows the other. So there is always one line between what is closed
and what is open, but for months that two people opened again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, Literal, assert_never

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
from ledger.domain.holds import TEXT_LENGTH_MAX, need_text
from ledger.domain.ids import UserId
from ledger.domain.periods import Period, read_period
from ledger.domain.refusal import Forbidden, Invalid, Refusal

State = Literal["open", "soft-closed", "closed"]


class PeriodNotOver(Refusal):
    """That month is not over yet, in UTC.

    Close it once it is.
    """


class PeriodStateOtherwise(Refusal):
    """The month is not in the state that this takes.

    A month is soft-closed first, then closed; only a closed one can be opened again.
    """


class EarlierPeriodOpen(Refusal):
    """An earlier month is open still, and months are closed in order.

    Close that one first.
    """


class PeriodNotReady(Refusal):
    """Not everything that counts in the month is in order yet.

    The checks that are not met say what is left to do, or to wait for.
    """


class ReopeningAskedBefore(Refusal):
    """Somebody asked to open this month again already.

    It has to be approved or declined first.
    """


class ReopeningNotAsked(Refusal):
    """Nobody asked to open this month again.

    Ask first, with a reason; somebody else approves.
    """


class SecondPersonNeeded(Forbidden):
    """Whoever asked cannot approve it as well.

    Another person with the platform's finance or operator role has to.
    """


class ReasonMissing(Invalid):
    """A month is opened again for a reason, in words for whoever approves it."""


@dataclass(frozen=True, slots=True)
class Point:
    """One open point of a check. what, key: what it is about, such as a lease, and its id."""

    words: str
    what: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of a month's checklist. words: what was found, or is left to do.

    left: how many open points there are. points: the first of them, for whoever mends them.
    """

    name: str
    title: str
    passed: bool
    words: str
    left: int = 0
    points: tuple[Point, ...] = ()


@dataclass(frozen=True, slots=True)
class Month:
    """One month that somebody began to close."""

    state: State = "open"
    reopening: ReopeningAsked | None = None
    frozen: tuple[FrozenExport, ...] = ()


OPEN = Month()


def first_open(period: Period, is_closed: Callable[[Period], bool]) -> Period:
    """Return the first month from `period` on that is not closed: there its entries count."""
    while is_closed(period):
        period = period.next
    return period


@dataclass(frozen=True, slots=True, kw_only=True)
class Periods:
    """The months of one book of record. through: the last month of those that are closed in order;
    None: none was ever."""

    STREAM: ClassVar[str] = "periods"

    through: Period | None = None
    months: Mapping[Period, Month] = field(default_factory=dict)

    @classmethod
    def evolve(cls, state: Periods | None, event: PeriodEvent, /) -> Periods:
        """Return the months after `event`."""
        state = state or cls()
        period = read_period(event.period)
        match event:
            case PeriodSoftClosed():
                return state._with(period, state="soft-closed")
            case PeriodClosed():
                through = period if state.through is None else max(period, state.through)
                closed = state._with(period, state="closed", frozen=())
                return replace(closed, through=through)
            case PeriodExportsFrozen(exports=exports):
                return state._with(period, frozen=exports)
            case ReopeningAsked():
                return state._with(period, reopening=event)
            case ReopeningDeclined():
                return state._with(period, reopening=None)
            case PeriodReopened():
                return state._with(period, state="open", reopening=None, frozen=())
            case _:
                assert_never(event)

    def _with(self, period: Period, **fields: object) -> Periods:
        month = replace(self.month(period), **fields)  # type: ignore[arg-type]  # by name
        return replace(self, months={**self.months, period: month})

    def month(self, period: Period) -> Month:
        """Return a month; one before all that were closed is closed with them."""
        known = self.months.get(period)
        if known is not None:
            return known
        return Month("closed") if self.through is not None and period <= self.through else OPEN

    def counts_in(self, period: Period) -> Period:
        """Return the month in which an entry counts that belongs to `period`."""
        return first_open(period, lambda each: self.month(each).state == "closed")

    # --- closing ---------------------------------------------------------------------------

    def soft_close(self, period: Period, *, by: UserId, now: datetime) -> Sequence[PeriodEvent]:
        """Say that a month is about to be closed.

        Raises: PeriodNotOver, EarlierPeriodOpen, PeriodStateOtherwise.
        """
        if now < period.window.ends_at:
            raise PeriodNotOver(period=str(period), ends_at=period.window.ends_at.isoformat())
        self._need(period, "open")
        self._need_order(period)
        return [PeriodSoftClosed(period=str(period), by_user=by, at=now)]

    def close(
        self, period: Period, *, checks: Sequence[Check], by: UserId, now: datetime
    ) -> Sequence[PeriodEvent]:
        """Close a month whose checks are all met.

        Raises: PeriodStateOtherwise, EarlierPeriodOpen, PeriodNotReady.
        """
        self._need(period, "soft-closed")
        self._need_order(period)
        failed = [each for each in checks if not each.passed]
        if failed:
            raise PeriodNotReady(checks=[f"{each.title}: {each.words}" for each in failed])
        checked = tuple(each.name for each in checks)
        return [PeriodClosed(period=str(period), checked=checked, by_user=by, at=now)]

    def freeze(
        self, period: Period, *, exports: Sequence[FrozenExport], now: datetime
    ) -> Sequence[PeriodEvent]:
        """Note the exports of a closed month, once."""
        month = self.month(period)
        if month.state != "closed" or month.frozen:
            return []
        return [PeriodExportsFrozen(period=str(period), exports=tuple(exports), at=now)]

    def _need(self, period: Period, state: State) -> None:
        found = self.month(period).state
        if found != state:
            raise PeriodStateOtherwise(period=str(period), state=found, needed=state)

    def _need_order(self, period: Period) -> None:
        """Refuse a month while one before it is open that follows the last closed, or is begun.

        Begun: soft-closed, or opened again.
        """
        begun = (each for each in self.months if self.month(each).state != "closed")
        after = () if self.through is None else (self.through.next,)
        earlier = min((each for each in (*begun, *after) if each < period), default=None)
        if earlier is not None:
            raise EarlierPeriodOpen(period=str(period), open=str(earlier))

    # --- opening again ---------------------------------------------------------------------

    def ask_to_reopen(
        self, period: Period, *, reason: str, by: UserId, now: datetime
    ) -> Sequence[PeriodEvent]:
        """Ask to open a closed month again, for a reason.

        Raises: ReasonMissing, TextUnreadable, PeriodStateOtherwise, ReopeningAskedBefore.
        """
        if not reason.strip():
            raise ReasonMissing()
        need_text(reason, length_max=TEXT_LENGTH_MAX)
        self._need(period, "closed")
        asked = self.month(period).reopening
        if asked is not None:
            if (asked.reason, asked.asked_by) == (reason, by):
                return []
            raise ReopeningAskedBefore(period=str(period), reason=asked.reason)
        return [ReopeningAsked(period=str(period), reason=reason, asked_by=by, at=now)]

    def approve(self, period: Period, *, by: UserId, now: datetime) -> Sequence[PeriodEvent]:
        """Open a month again that somebody else asked for.

        Raises: ReopeningNotAsked, SecondPersonNeeded.
        """
        asked = self._asked(period)
        if asked.asked_by == by:
            raise SecondPersonNeeded(period=str(period))
        return [
            PeriodReopened(
                period=str(period),
                reason=asked.reason,
                asked_by=asked.asked_by,
                approved_by=by,
                at=now,
            )
        ]

    def decline(self, period: Period, *, by: UserId, now: datetime) -> Sequence[PeriodEvent]:
        """Leave a month closed that somebody asked to open again.

        Raises: ReopeningNotAsked.
        """
        self._asked(period)
        return [ReopeningDeclined(period=str(period), declined_by=by, at=now)]

    def _asked(self, period: Period) -> ReopeningAsked:
        asked = self.month(period).reopening
        if asked is None:
            raise ReopeningNotAsked(period=str(period))
        return asked
