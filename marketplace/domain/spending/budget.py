"""One spending budget: its limit in a period, what of it is used, and what it refuses.

limit = amount + what rolled over + grants that count now. Used = spent (charged for use in the
period) + held (still set aside for what runs or waits, at its worst). A bid is refused that would
take used beyond the lowest threshold that blocks. Each threshold to notify or pause looks at what
is spent alone: nobody is warned of money that may come back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from ledger.domain.ids import BidId, SubscriberId, UserId
from ledger.domain.money import Money
from ledger.domain.refusal import Refusal
from ledger.domain.span import Window
from marketplace.domain.spending.events import (
    SpendingBudgetSet,
    SpendingDrawn,
    SpendingGrantAsked,
    SpendingNoted,
    SpendingThresholdMet,
    Threshold,
)
from marketplace.domain.spending.periods import period_at, periods_from

PPM = 1_000_000
BLOCKING = ("block", "pause")
"""Work that a budget pauses is not begun anew in the same period, so pausing blocks, too."""


class BudgetUsedUp(Refusal):
    """This would go beyond a budget that blocks new bids.

    Ask for less, have a grant made for it, or wait until the budget opens again.
    """

    @property
    def budget(self) -> str:
        """Return the title of the budget."""
        return str(self.details["budget"])

    @property
    def opens_at(self) -> datetime:
        """Return when its next period begins."""
        found = self.details["opens_at"]
        assert isinstance(found, datetime)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Spender:
    """Whose a bid is, as far as budgets ask. project: empty: of none."""

    subscriber_id: SubscriberId
    user_id: UserId | None
    project: str
    kind: str


@dataclass(frozen=True, slots=True)
class Grant:
    """What is granted beside the amount. approved: None: a second person has not decided yet."""

    asked: SpendingGrantAsked
    approved: bool | None

    def counts(self, now: datetime) -> bool:
        """Tell if it raises the limit now."""
        return bool(self.approved) and self.asked.starts_at <= now < self.asked.until


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One budget as its stream tells it.

    revisions: every time it was set, the last one in force. drawn_since: what was drawn since the
    last note, by bid and step. met: thresholds of the period `met_in` that were reached.
    """

    revisions: tuple[SpendingBudgetSet, ...]
    ended: bool = False
    noted: SpendingNoted | None = None
    drawn_since: Mapping[tuple[BidId, str], SpendingDrawn] = field(default_factory=dict)
    grants: Mapping[UUID, Grant] = field(default_factory=dict)
    met_in: datetime | None = None
    met: frozenset[Threshold] = frozenset()

    @property
    def terms(self) -> SpendingBudgetSet:
        """Return it as it was last set."""
        return self.revisions[-1]

    @property
    def currency(self) -> str:
        """Return the currency in which it counts; other money is none of its business."""
        return self.terms.amount.currency

    def covers(self, spender: Spender) -> bool:
        """Tell if a bid counts in it."""
        match self.terms.scope:
            case "tenant":
                return True
            case "unit":
                return self.terms.subject == str(spender.subscriber_id)
            case "person":
                return self.terms.subject == str(spender.user_id)
            case "project":
                return self.terms.subject == spender.project
            case "kind":
                return self.terms.subject == spender.kind

    @property
    def blocks_at(self) -> int | None:
        """Return at which part of the limit it blocks, in millionths; None: it never does."""
        return min(
            (each.at_ppm for each in self.terms.thresholds if each.action in BLOCKING),
            default=None,
        )

    def amount_in(self, period: Window) -> int:
        """Return the amount of a period: as last set before its end."""
        before = [each for each in self.revisions if each.at < period.ends_at]
        return (before[-1] if before else self.revisions[0]).amount.nanos

    def granted(self, now: datetime) -> int:
        """Return what grants add to the limit at a moment."""
        return sum(each.asked.money.nanos for each in self.grants.values() if each.counts(now))

    def granted_in(self, period: Window) -> int:
        """Return what grants added in a period, to tell what was overspent."""
        return sum(
            each.asked.money.nanos
            for each in self.grants.values()
            if each.approved and period.starts_at <= each.asked.starts_at < period.ends_at
        )

    def rolled(self, period: Window, *, carried: int, spent: int) -> int:
        """Return what rolls over from a period into the next.

        carried: what had rolled into it. A grant that was not used is over; what was spent beyond
        it is overspent.
        """
        terms, amount = self.terms, self.amount_in(period)
        unused = max(0, amount + carried - spent)
        overspent = max(0, spent - amount - carried - self.granted_in(period))
        rolled = 0
        if terms.roll_over in ("unused", "both"):
            rolled += min(unused, amount * terms.unused_ppm // PPM)
        if terms.roll_over in ("overspent", "both"):
            rolled -= overspent
        return rolled

    def carried_into(self, period: Window, spent: Mapping[datetime, int]) -> int:
        """Return what rolled over into a period, from all that was spent since it was set.

        spent: by the start of each period. It begins anew where the kind of period was changed.
        """
        if self.terms.roll_over == "none":
            return 0
        since = self.terms.at
        for each in reversed(self.revisions):
            if each.period != self.terms.period:
                break
            since = each.at
        carried = 0
        for past in periods_from(self.terms.period, since, period.starts_at):
            if past.starts_at >= period.starts_at:
                break
            carried = self.rolled(past, carried=carried, spent=spent.get(past.starts_at, 0))
        return carried

    def limit_at(self, now: datetime, *, carried: int) -> int:
        """Return what may be spent in the period of `now`; never below zero."""
        period = period_at(self.terms.period, now)
        return max(0, self.amount_in(period) + carried + self.granted(now))

    def known_at(self, now: datetime) -> tuple[int, int]:
        """Return what had rolled over into the period of `now` and what is used of it, by notes.

        Where the last note is of an earlier period, what it said is spent has rolled on since, and
        what it said is held is held still: the next note says it exactly.
        """
        drawn = sum(each.money.nanos for each in self.drawn_since.values())
        if self.noted is None:
            return 0, drawn
        period, noted = period_at(self.terms.period, now), self.noted
        carried, spent = noted.carried.nanos, noted.spent.nanos
        if noted.period_starts_at != period.starts_at:
            since = noted.period_starts_at
            for past in periods_from(self.terms.period, since, period.starts_at):
                if past.starts_at >= period.starts_at:
                    break
                carried, spent = self.rolled(past, carried=carried, spent=spent), 0
        return carried, spent + noted.held.nanos + drawn

    def need_room(self, money: Money, *, now: datetime) -> None:
        """Refuse what would take it beyond where it blocks. money: in its currency.

        Raises: BudgetUsedUp.
        """
        at_ppm = self.blocks_at
        if at_ppm is None or money.nanos <= 0:
            return
        carried, used = self.known_at(now)
        limit = self.limit_at(now, carried=carried)
        most = limit * at_ppm // PPM
        if used + money.nanos > most:
            raise BudgetUsedUp(
                budget=self.terms.title,
                budget_id=self.terms.budget_id,
                limit=Money(limit, self.currency),
                blocks_at=Money(most, self.currency),
                used=Money(used, self.currency),
                needed=money,
                opens_at=period_at(self.terms.period, now).ends_at,
            )

    def after_note(self, noted: SpendingNoted) -> Budget:
        """Return it with what the read model counts; draws that are in there count no more."""
        left = {key: one for key, one in self.drawn_since.items() if one.number > noted.drawn}
        return replace(self, noted=noted, drawn_since=left)

    def after_threshold(self, met: SpendingThresholdMet) -> Budget:
        """Return it with a threshold that was reached."""
        known = self.met if self.met_in == met.period_starts_at else frozenset()
        reached = known | {Threshold(met.at_ppm, met.action)}
        return replace(self, met_in=met.period_starts_at, met=reached)

    def newly_met(
        self, *, spent: int, held: int, carried: int, now: datetime
    ) -> list[tuple[Threshold, int, int]]:
        """Return the thresholds reached just now, with what is used and the limit."""
        period = period_at(self.terms.period, now)
        known = self.met if self.met_in == period.starts_at else frozenset()
        limit = self.limit_at(now, carried=carried)
        found = []
        for each in sorted(self.terms.thresholds, key=lambda one: (one.at_ppm, one.action)):
            used = spent + held if each.action == "block" else spent
            if each not in known and used > 0 and used >= limit * each.at_ppm // PPM:
                found.append((each, used, limit))
        return found
