"""What overflow may cost in a calendar month, all instances together.

Set aside before the launch is what an instance can cost at most; settled at its end is what it
did cost. So the cap holds whatever happens in between, even if nobody is there to end it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import ClassVar, assert_never
from uuid import UUID

from bursting.domain.events import BudgetEvent, BudgetReserved, BudgetSettled, InstanceId
from ledger.domain.money import Money
from ledger.domain.refusal import Refusal


class BudgetExhausted(Refusal):
    """The month's budget for rented capacity does not cover this instance.

    Raise OFFPEAK_BURST_BUDGET, or wait for the next month.
    """


def month_of(at: datetime) -> str:
    """Return the calendar month in UTC, such as `2026-01`."""
    return at.astimezone(UTC).strftime("%Y-%m")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one month's stream adds up to. set_aside: by instances that are not over yet."""

    STREAM: ClassVar[str] = "burst-budget"

    month: str
    set_aside: Mapping[InstanceId, Money] = field(default_factory=dict)
    spent: Mapping[InstanceId, Money] = field(default_factory=dict)

    def committed_nanos(self) -> int:
        """Return what is spent and what may still be."""
        both = (*self.set_aside.values(), *self.spent.values())
        return sum(money.nanos for money in both)

    def reserve(
        self, instance_id: InstanceId, worst: Money, *, cap: Money, now: datetime
    ) -> list[BudgetReserved]:
        """Set aside what an instance may cost; nothing to do if it has its part already.

        Raises: BudgetExhausted.
        """
        if instance_id in self.set_aside or instance_id in self.spent:
            return []
        assert worst.nanos >= 0
        left = cap.nanos - self.committed_nanos()
        if worst.currency != cap.currency or worst.nanos > left:
            raise BudgetExhausted(month=self.month, left=Money(left, cap.currency), needed=worst)
        return [BudgetReserved(month=self.month, instance_id=instance_id, money=worst, at=now)]

    def settle(self, instance_id: InstanceId, cost: Money, *, now: datetime) -> list[BudgetSettled]:
        """Replace an instance's part by what it did cost; once, and only if it has a part."""
        if instance_id not in self.set_aside:
            return []
        return [BudgetSettled(month=self.month, instance_id=instance_id, money=cost, at=now)]

    def spend(self, key: UUID, cost: Money, *, now: datetime) -> list[BudgetSettled]:
        """Count what a machine outside the record did cost, once; nothing was set aside for it."""
        if InstanceId(key) in self.spent or not cost.nanos:
            return []
        return [BudgetSettled(month=self.month, instance_id=InstanceId(key), money=cost, at=now)]

    @classmethod
    def evolve(cls, state: Budget | None, event: BudgetEvent, /) -> Budget:
        """Return the budget after `event`."""
        budget = state or cls(month=event.month)
        match event:
            case BudgetReserved():
                parts = {**budget.set_aside, event.instance_id: event.money}
                return replace(budget, set_aside=parts)
            case BudgetSettled():
                parts = {k: v for k, v in budget.set_aside.items() if k != event.instance_id}
                spent = {**budget.spent, event.instance_id: event.money}
                return replace(budget, set_aside=parts, spent=spent)
            case _:
                assert_never(event)
