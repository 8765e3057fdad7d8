"""What happens to the spending budgets of an organisation: streams spending-<tenant_id>.

A spending budget is neither a bid's own budget (the most one lease may cost) nor an account's
overdraft limit: it counts what many leases come to in a period.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import BidId, TenantId, UserId
from ledger.domain.money import Money, Rate

BudgetScope = Literal["tenant", "unit", "person", "project", "kind"]
"""Whose leases count: all of the organisation, or those of one unit, person, project or kind."""
SpendingPeriod = Literal["week", "month", "quarter", "year"]
RollOver = Literal["none", "unused", "overspent", "both"]
BudgetAction = Literal["notify", "block", "pause"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """What happens where a part of the limit is reached. at_ppm: in millionths of the limit."""

    at_ppm: int
    action: BudgetAction


class SpendingBudgetSet(Event, name="marketplace.spending-budget-set"):
    """From now on a part of the organisation is to spend no more than this in each period.

    subject: which unit or person (its id), project or kind of work; empty for all. unused_ppm: the
    most that rolls over of what was not used, in millionths of the amount. zone: in which people
    are shown when its periods begin; the periods themselves are of UTC. by: who set it.
    """

    tenant_id: TenantId
    budget_id: UUID
    title: str
    scope: BudgetScope
    subject: str
    amount: Money
    period: SpendingPeriod
    roll_over: RollOver
    unused_ppm: int
    thresholds: tuple[Threshold, ...]
    zone: str
    by: UserId | None
    at: datetime


class SpendingBudgetEnded(Event, name="marketplace.spending-budget-ended"):
    """A budget counts no more, and blocks nothing."""

    tenant_id: TenantId
    budget_id: UUID
    by: UserId | None
    at: datetime


class SpendingDrawn(Event, name="marketplace.spending-drawn"):
    """A bid may cost so much more, and one budget at least that may block covers it.

    number: counts up in the organisation. bid_id, step: what it is for, so that the same is drawn
    once; step is empty for the bid itself, else what its hold grew for.
    """

    tenant_id: TenantId
    number: int
    bid_id: BidId
    step: str
    money: Money
    budget_ids: tuple[UUID, ...]
    at: datetime


class SpendingNoted(Event, name="marketplace.spending-noted"):
    """What the read model counts for a budget, so that bids are decided by the stream alone.

    period_starts_at: of which period. spent: charged for use in it. held: what is still set aside
    for what runs and waits. carried: rolled over into it; below zero for overspending. drawn: up
    to which draw `held` has all. through: up to which store position it was counted.
    """

    tenant_id: TenantId
    budget_id: UUID
    period_starts_at: datetime
    spent: Money
    held: Money
    carried: Money
    drawn: int
    through: int
    at: datetime


class SpendingThresholdMet(Event, name="marketplace.spending-threshold-met"):
    """A budget came to one of its thresholds; once for each in a period.

    used: what was charged, and for a threshold that blocks also what is set aside.
    """

    tenant_id: TenantId
    budget_id: UUID
    period_starts_at: datetime
    at_ppm: int
    action: BudgetAction
    used: Money
    limit: Money
    at: datetime


class SpendingGrantAsked(Event, name="marketplace.spending-grant-asked"):
    """A budget is to be higher between two moments of one of its periods.

    alone: it is so small that it counts without a second person.
    """

    tenant_id: TenantId
    budget_id: UUID
    grant_id: UUID
    money: Money
    starts_at: datetime
    until: datetime
    why: str
    alone: bool
    by: UserId
    at: datetime


class SpendingGrantDecided(Event, name="marketplace.spending-grant-decided"):
    """A second person approved a grant, or declined it."""

    tenant_id: TenantId
    budget_id: UUID
    grant_id: UUID
    approved: bool
    by: UserId
    at: datetime


class ComparisonSet(Event, name="marketplace.comparison-set"):
    """What GPUs of a model cost elsewhere, by which the platform tells what pooling saved.

    cloud: the list price of a cloud. purchase: of one GPU with its part of the machine, used
    `years` years for `utilisation_ppm` of the time. running: power, space and staff for each hour
    of use. None: not said. source: where the figures come from.
    """

    gpu_model: str
    currency: str
    cloud: Rate | None
    purchase: Money | None
    years: int
    utilisation_ppm: int
    running: Rate | None
    source: str
    by: UserId | None
    at: datetime


SpendingEvent = (
    SpendingBudgetSet
    | SpendingBudgetEnded
    | SpendingDrawn
    | SpendingNoted
    | SpendingThresholdMet
    | SpendingGrantAsked
    | SpendingGrantDecided
)
