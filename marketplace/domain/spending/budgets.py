"""All spending budgets of an organisation, and the rules by which they are set, noted and granted.

One stream decides them, so two bids that are placed at once never both take what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import ClassVar, assert_never
from uuid import UUID
from zoneinfo import available_timezones

from ledger.domain.ids import BidId, TenantId, UserId
from ledger.domain.money import Money
from ledger.domain.refusal import Forbidden, Invalid, Refusal, Unknown
from marketplace.domain.spending.budget import PPM, Budget, Grant, Spender
from marketplace.domain.spending.events import (
    SpendingBudgetEnded,
    SpendingBudgetSet,
    SpendingDrawn,
    SpendingEvent,
    SpendingGrantAsked,
    SpendingGrantDecided,
    SpendingNoted,
    SpendingThresholdMet,
)
from marketplace.domain.spending.periods import period_at

BUDGETS_MAX = 1_000
THRESHOLDS_MAX = 8
TITLE_CHARS_MAX = 100
WHY_CHARS_MAX = 500
THRESHOLD_PPM_MAX = 2 * PPM
GRANTS_MAX = 500
"""Of one budget, in all its life."""
ALONE_PPM = 100_000
"""A grant of more than a tenth of the amount takes a second person."""
NOTED_AGAIN = timedelta(minutes=1)
"""What changes by less than a hundredth of the amount is noted at most so often."""


class SpendingBudgetUnknown(Unknown):
    """There is no such budget."""


class SpendingBudgetOver(Refusal):
    """That budget was ended.

    Make another one.
    """


class SpendingScopeFixed(Refusal):
    """What a budget counts and its currency cannot be changed.

    End it and make another one.
    """


class TooManyBudgets(Refusal):
    """There are as many budgets or grants as there may be."""


class SpendingBudgetUnclear(Invalid):
    """A budget needs a title, an amount above zero, and thresholds between 1 % and 200 %.

    Each threshold is given once, eight at most. At most all of the amount rolls over. Name whom a
    budget is for, unless it is for all of the organisation.
    """


class ZoneUnknown(Invalid):
    """A time zone is an IANA name such as Europe/Berlin."""


class GrantUnclear(Invalid):
    """A grant needs an amount above zero, a reason, and an end in the period in which it begins."""


class GrantUnknown(Unknown):
    """There is no such grant."""


class GrantDecided(Refusal):
    """That grant was decided already, or is over."""


class GrantIsYourOwn(Forbidden):
    """Nobody approves their own grant.

    Ask another of the organisation's finance people or operators.
    """


@dataclass(frozen=True, slots=True)
class Counted:
    """What the read model counts for one budget. by_period: spent, by the start of each period."""

    budget_id: UUID
    by_period: Mapping[datetime, int]
    held: int


@dataclass(frozen=True, slots=True)
class CountedUpTo:
    """Up to where it was counted: which draw, and which store position."""

    drawn: int
    through: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """What one stream of an organisation adds up to. drawn: number of its last draw."""

    STREAM: ClassVar[str] = "spending"

    budgets: Mapping[UUID, Budget] = field(default_factory=dict)
    drawn: int = 0

    @classmethod
    def evolve(cls, state: Budgets | None, event: SpendingEvent, /) -> Budgets:
        """Return the budgets after `event`."""
        now = state or cls()
        match event:
            case SpendingBudgetSet():
                known = now.budgets.get(event.budget_id)
                new = Budget(revisions=(event,))
                if known is not None:
                    new = replace(known, revisions=(*known.revisions, event))
                return now._with(event.budget_id, new)
            case SpendingBudgetEnded():
                return now._with(event.budget_id, replace(now.budgets[event.budget_id], ended=True))
            case SpendingDrawn():
                return now._drawn(event)
            case SpendingNoted():
                noted = now.budgets[event.budget_id].after_note(event)
                return now._with(event.budget_id, noted)
            case SpendingThresholdMet():
                met = now.budgets[event.budget_id].after_threshold(event)
                return now._with(event.budget_id, met)
            case SpendingGrantAsked():
                return now._granted(event, Grant(event, True if event.alone else None))
            case SpendingGrantDecided():
                asked = now.budgets[event.budget_id].grants[event.grant_id].asked
                return now._granted(asked, Grant(asked, event.approved))
            case _:
                assert_never(event)

    def _with(self, budget_id: UUID, budget: Budget) -> Budgets:
        return replace(self, budgets={**self.budgets, budget_id: budget})

    def _granted(self, asked: SpendingGrantAsked, grant: Grant) -> Budgets:
        budget = self.budgets[asked.budget_id]
        grants = {**budget.grants, asked.grant_id: grant}
        return self._with(asked.budget_id, replace(budget, grants=grants))

    def _drawn(self, drawn: SpendingDrawn) -> Budgets:
        budgets = dict(self.budgets)
        for budget_id in drawn.budget_ids:
            budget = budgets[budget_id]
            since = {**budget.drawn_since, (drawn.bid_id, drawn.step): drawn}
            budgets[budget_id] = replace(budget, drawn_since=since)
        return replace(self, budgets=budgets, drawn=drawn.number)

    def blocking(self, spender: Spender, currency: str) -> list[Budget]:
        """Return the budgets that may refuse a bid."""
        return [
            each
            for each in self.budgets.values()
            if not each.ended
            and each.blocks_at is not None
            and each.currency == currency
            and each.covers(spender)
        ]

    def named(self, budget_id: UUID) -> Budget:
        """Return one budget that counts.

        Raises: SpendingBudgetUnknown, SpendingBudgetOver.
        """
        found = self.budgets.get(budget_id)
        if found is None:
            raise SpendingBudgetUnknown(budget_id=budget_id)
        if found.ended:
            raise SpendingBudgetOver(budget_id=budget_id)
        return found


def set_budget(now: Budgets, terms: SpendingBudgetSet) -> list[SpendingBudgetSet]:
    """Decide whether a budget may be made or changed; the same again changes nothing.

    Raises: SpendingBudgetUnclear, ZoneUnknown, TooManyBudgets, SpendingScopeFixed,
        SpendingBudgetOver.
    """
    _check(terms)
    known = now.budgets.get(terms.budget_id)
    if known is None:
        if sum(not each.ended for each in now.budgets.values()) >= BUDGETS_MAX:
            raise TooManyBudgets(most=BUDGETS_MAX)
        return [terms]
    before = now.named(terms.budget_id).terms
    fixed = (terms.scope, terms.subject, terms.amount.currency)
    if fixed != (before.scope, before.subject, before.amount.currency):
        raise SpendingScopeFixed(budget_id=terms.budget_id)
    return [] if replace(before, at=terms.at, by=terms.by) == terms else [terms]


def _check(terms: SpendingBudgetSet) -> None:
    at = [(each.at_ppm, each.action) for each in terms.thresholds]
    fits = (
        0 < len(terms.title.strip()) <= TITLE_CHARS_MAX
        and terms.amount.nanos > 0
        and (terms.scope == "tenant") == (not terms.subject)
        and 0 <= terms.unused_ppm <= PPM
        and 0 < len(at) <= THRESHOLDS_MAX
        and len(set(at)) == len(at)
        and all(PPM // 100 <= part <= THRESHOLD_PPM_MAX for part, _ in at)
    )
    if not fits:
        raise SpendingBudgetUnclear()
    if terms.zone not in available_timezones():
        raise ZoneUnknown(given=terms.zone[:40])


def end_budget(
    now: Budgets, tenant_id: TenantId, budget_id: UUID, *, by: UserId | None, at: datetime
) -> list[SpendingBudgetEnded]:
    """End a budget; again changes nothing.

    Raises: SpendingBudgetUnknown.
    """
    known = now.budgets.get(budget_id)
    if known is None:
        raise SpendingBudgetUnknown(budget_id=budget_id)
    if known.ended:
        return []
    return [SpendingBudgetEnded(tenant_id=tenant_id, budget_id=budget_id, by=by, at=at)]


def draw(
    now: Budgets,
    tenant_id: TenantId,
    spender: Spender,
    money: Money,
    *,
    bid_id: BidId,
    step: str = "",
    at: datetime,
) -> list[SpendingDrawn]:
    """Decide whether a bid may cost so much more, and note that it may; once for each step.

    Nothing is written where no budget could have refused it.

    Raises: BudgetUsedUp, for the first budget that has no room.
    """
    covering = now.blocking(spender, money.currency)
    fresh = [each for each in covering if (bid_id, step) not in each.drawn_since]
    if money.nanos <= 0 or not fresh:
        return []
    for each in fresh:
        each.need_room(money, now=at)
    return [
        SpendingDrawn(
            tenant_id=tenant_id,
            number=now.drawn + 1,
            bid_id=bid_id,
            step=step,
            money=money,
            budget_ids=tuple(each.terms.budget_id for each in fresh),
            at=at,
        )
    ]


def note(
    now: Budgets,
    tenant_id: TenantId,
    counted: Iterable[Counted],
    up_to: CountedUpTo,
    *,
    at: datetime,
) -> list[SpendingNoted | SpendingThresholdMet]:
    """Note what the read model counts, and which thresholds are reached by it.

    What was counted before the last note, as while rows are rebuilt, says nothing. A note is
    written where a bid would be decided otherwise by it: a new period, a draw that it has by now,
    or another sum; what changes by less than a hundredth at most once a minute.
    """
    events: list[SpendingNoted | SpendingThresholdMet] = []
    for each in counted:
        budget = now.budgets.get(each.budget_id)
        if budget is None or budget.ended:
            continue
        before = budget.noted
        if before is not None and (up_to.drawn < before.drawn or up_to.through < before.through):
            continue
        events += _noted(budget, tenant_id, each, up_to, at)
    return events


def _noted(
    budget: Budget, tenant_id: TenantId, counted: Counted, up_to: CountedUpTo, at: datetime
) -> Sequence[SpendingNoted | SpendingThresholdMet]:
    period = period_at(budget.terms.period, at)
    carried = budget.carried_into(period, counted.by_period)
    spent = counted.by_period.get(period.starts_at, 0)
    events: list[SpendingNoted | SpendingThresholdMet] = []
    if _worth_noting(budget, period.starts_at, spent + counted.held, carried, up_to, at):
        events.append(
            SpendingNoted(
                tenant_id=tenant_id,
                budget_id=counted.budget_id,
                period_starts_at=period.starts_at,
                spent=Money(spent, budget.currency),
                held=Money(counted.held, budget.currency),
                carried=Money(carried, budget.currency),
                drawn=up_to.drawn,
                through=up_to.through,
                at=at,
            )
        )
    met = budget.newly_met(spent=spent, held=counted.held, carried=carried, now=at)
    for threshold, used, limit in met:
        events.append(
            SpendingThresholdMet(
                tenant_id=tenant_id,
                budget_id=counted.budget_id,
                period_starts_at=period.starts_at,
                at_ppm=threshold.at_ppm,
                action=threshold.action,
                used=Money(used, budget.currency),
                limit=Money(limit, budget.currency),
                at=at,
            )
        )
    return events


def _worth_noting(
    budget: Budget,
    period_starts_at: datetime,
    used: int,
    carried: int,
    up_to: CountedUpTo,
    at: datetime,
) -> bool:
    before = budget.noted
    if before is None or before.period_starts_at != period_starts_at:
        return before is not None or used > 0 or carried != 0
    if any(each.number <= up_to.drawn for each in budget.drawn_since.values()):
        return True
    change = abs(used - before.spent.nanos - before.held.nanos)
    change += abs(carried - before.carried.nanos)
    if not change:
        return False
    return change * 100 >= budget.terms.amount.nanos or at - before.at >= NOTED_AGAIN


def ask_grant(now: Budgets, asked: SpendingGrantAsked) -> list[SpendingGrantAsked]:
    """Decide whether a budget is to be higher for a while; a small grant counts at once.

    asked.alone: worked out here.

    Raises: SpendingBudgetUnknown, SpendingBudgetOver, GrantUnclear, SpendingScopeFixed for another
        currency, TooManyBudgets.
    """
    budget = now.named(asked.budget_id)
    if asked.grant_id in budget.grants:
        return []
    if asked.money.currency != budget.currency:
        raise SpendingScopeFixed(currency=budget.currency)
    period = period_at(budget.terms.period, asked.starts_at)
    fits = (
        asked.money.nanos > 0
        and 0 < len(asked.why.strip()) <= WHY_CHARS_MAX
        and asked.starts_at < asked.until <= period.ends_at
        and asked.until > asked.at
    )
    if not fits:
        raise GrantUnclear(period_ends_at=period.ends_at)
    if len(budget.grants) >= GRANTS_MAX:
        raise TooManyBudgets(most=GRANTS_MAX)
    alone = _granted_alone(budget, asked, period.starts_at) * PPM
    return [replace(asked, alone=alone <= budget.amount_in(period) * ALONE_PPM)]


def _granted_alone(budget: Budget, asked: SpendingGrantAsked, since: datetime) -> int:
    """Return what grants without a second person come to in a period: many small ones are large."""
    return asked.money.nanos + sum(
        each.asked.money.nanos
        for each in budget.grants.values()
        if each.asked.alone and each.asked.starts_at >= since
    )


def decide_grant(
    now: Budgets,
    tenant_id: TenantId,
    budget_id: UUID,
    grant_id: UUID,
    *,
    approved: bool,
    by: UserId,
    at: datetime,
) -> list[SpendingGrantDecided]:
    """Approve a grant that somebody else asked for, or decline it; the same again changes nothing.

    Raises: SpendingBudgetUnknown, SpendingBudgetOver, GrantUnknown, GrantDecided, GrantIsYourOwn.
    """
    grant = now.named(budget_id).grants.get(grant_id)
    if grant is None:
        raise GrantUnknown(grant_id=grant_id)
    if grant.asked.alone or grant.approved is not None or at >= grant.asked.until:
        if grant.approved is approved and not grant.asked.alone:
            return []
        raise GrantDecided(grant_id=grant_id)
    if approved and grant.asked.by == by:
        raise GrantIsYourOwn(grant_id=grant_id)
    return [
        SpendingGrantDecided(
            tenant_id=tenant_id,
            budget_id=budget_id,
            grant_id=grant_id,
            approved=approved,
            by=by,
            at=at,
        )
    ]
