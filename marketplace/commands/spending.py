"""What can be asked of an organisation's spending budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from ledger.domain.ids import TenantId, UserId
from ledger.domain.money import Money
from ledger.eventstore.folds import Fold
from ledger.eventstore.port import EventStore, Meta, Position, record
from ledger.eventstore.together import Part
from marketplace.domain.facts.bid_events import BidPlaced
from marketplace.domain.spending import budgets as rules
from marketplace.domain.spending import savings
from marketplace.domain.spending.budget import Spender
from marketplace.domain.spending.budgets import Budgets, Counted, CountedUpTo
from marketplace.domain.spending.events import (
    ComparisonSet,
    SpendingBudgetSet,
    SpendingEvent,
    SpendingGrantAsked,
)
from marketplace.domain.spending.savings import Comparisons


def set_spending_budget(
    store: EventStore, *, terms: SpendingBudgetSet, changes: bool = False, by: Meta
) -> Position:
    """Make a budget, or change one. changes: it must be there already.

    Raises: the refusals of `budgets.set_budget`; SpendingBudgetUnknown.
    """

    def rule(now: Budgets) -> Sequence[SpendingEvent]:
        if changes:
            now.named(terms.budget_id)
        return rules.set_budget(now, terms)

    return _record(store, terms.tenant_id, rule, by)


def end_spending_budget(
    store: EventStore,
    *,
    tenant_id: TenantId,
    budget_id: UUID,
    user_id: UserId | None,
    by: Meta,
    now: datetime,
) -> Position:
    """End a budget.

    Raises: SpendingBudgetUnknown.
    """
    return _record(
        store,
        tenant_id,
        lambda known: rules.end_budget(known, tenant_id, budget_id, by=user_id, at=now),
        by,
    )


def ask_spending_grant(store: EventStore, *, asked: SpendingGrantAsked, by: Meta) -> Position:
    """Raise a budget's limit for a while; a second person decides on a large grant.

    Raises: the refusals of `budgets.ask_grant`.
    """
    return _record(store, asked.tenant_id, lambda now: rules.ask_grant(now, asked), by)


def decide_spending_grant(
    store: EventStore,
    *,
    tenant_id: TenantId,
    budget_id: UUID,
    grant_id: UUID,
    approved: bool,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Approve or decline a grant that somebody else asked for.

    Raises: the refusals of `budgets.decide_grant`.
    """
    return _record(
        store,
        tenant_id,
        lambda known: rules.decide_grant(
            known, tenant_id, budget_id, grant_id, approved=approved, by=user_id, at=now
        ),
        by,
    )


def note_spending(
    store: EventStore,
    *,
    tenant_id: TenantId,
    counted: Sequence[Counted],
    up_to: CountedUpTo,
    by: Meta,
    now: datetime,
) -> Position:
    """Tell the stream what was counted, so that bids are decided by it; see `budgets.note`."""
    return _record(
        store,
        tenant_id,
        lambda known: rules.note(known, tenant_id, counted, up_to, at=now),
        by,
    )


def set_comparison(store: EventStore, *, terms: ComparisonSet, by: Meta) -> Position:
    """Say what GPUs of a model cost elsewhere.

    Raises: ComparisonUnclear.
    """
    return record(
        store,
        Comparisons,
        "platform",
        lambda known: savings.compare(known or Comparisons(), terms),
        by=by,
    )


def spender_of(placed: BidPlaced) -> Spender:
    """Return whose a bid is, as far as budgets ask."""
    return Spender(
        subscriber_id=placed.subscriber_id,
        user_id=placed.user_id,
        project=placed.workload.project,
        kind=placed.workload.kind,
    )


def drawing(
    placed: BidPlaced, money: Money, *, step: str = "", seen: Fold, by: Meta, now: datetime
) -> list[Part]:
    """Return what draws on the budgets that cover a bid; nothing where none could refuse it.

    seen: the organisation's stream as it was just read. A budget that is set at this very moment
    counts from the next bid on.
    """
    spender, known = spender_of(placed), seen.state
    if known is None or not known.blocking(spender, money.currency):
        return []

    def decide(now_known: Budgets) -> Sequence[SpendingEvent]:
        return rules.draw(
            now_known,
            placed.tenant_id,
            spender,
            money,
            bid_id=placed.bid_id,
            step=step,
            at=now,
        )

    asked = f"draw:{placed.bid_id}:{step}:{money}"
    return [Part(Budgets, placed.tenant_id, decide, by.step(asked), seen=seen)]


def _record(
    store: EventStore,
    tenant_id: TenantId,
    rule: Callable[[Budgets], Sequence[SpendingEvent]],
    by: Meta,
) -> Position:
    return record(store, Budgets, tenant_id, lambda known: rule(known or Budgets()), by=by)
