"""What follows where a budget comes to a threshold: people are told, and work may be paused."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from ledger.commands.notices import give_notice
from ledger.domain.ids import LeaseId, SubscriberId, UserId
from ledger.domain.notices import To
from ledger.eventstore.port import EventStore, Meta, Recorded, load
from ledger.following import Policy, names_of
from marketplace.commands.leases import decide_on
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts.events import LeaseEvent
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.reclaim import interrupt
from marketplace.domain.leases.reclaim_schedule import least_notice
from marketplace.domain.spending.budget import PPM, Budget
from marketplace.domain.spending.budgets import Budgets
from marketplace.domain.spending.events import SpendingThresholdMet
from marketplace.domain.spending.periods import period_at
from marketplace.queries.spending import running_under

THEN = {
    "notify": "Nothing is refused by this threshold.",
    "block": "New bids, and steps of leases that go on by themselves, are refused from here on.",
    "pause": (
        "New bids are refused from here on. Running work that may be paused is, with the notice of"
        " its owners, and goes on by itself when the budget opens; other work runs to its end."
    ),
}


def tell_of_threshold(recorded: Recorded, store: EventStore) -> None:
    """Tell finance people, and the unit or person that it is of, what a budget came to; once."""
    met = recorded.event
    assert isinstance(met, SpendingThresholdMet)
    budget = _budget(store, met)
    part, opens_at = met.at_ppm * 100 // PPM, _opens_at(budget, met.period_starts_at)
    used = "are charged" if met.action != "block" else "are charged or set aside"
    give_notice(
        store,
        to=_to(budget),
        topic="budget",
        key=f"{met.budget_id}:{met.period_starts_at.date()}:{met.at_ppm}:{met.action}",
        title=f"Budget {budget.terms.title}: {part} % reached",
        body=(
            f"{met.used} of {met.limit} {used}. {THEN[met.action]}\n\n"
            f"The next period begins {opens_at:%Y-%m-%d %H:%M} UTC."
        ),
        link="/budgets",
        facts={
            "budget_id": str(met.budget_id),
            "percent": str(part),
            "action": met.action,
            "used_nanos": str(met.used.nanos),
            "limit_nanos": str(met.limit.nanos),
        },
        by=Meta.because(recorded, policy="tell-of-threshold"),
        now=met.at,
    )


def pause_when_reached(recorded: Recorded, store: EventStore) -> None:
    """Pause what runs under a budget and may be paused, with the notice of its owners.

    It is what the market does where other work needs the room; nobody owes anything. What follows
    waits until the budget has room again.
    """
    met = recorded.event
    assert isinstance(met, SpendingThresholdMet)
    if met.action != "pause":
        return
    for lease_id in running_under(met.budget_id):
        lease = load(store, Lease, lease_id)
        bid = None if lease is None else load(store, Bid, lease.terms.bid_id)
        if bid is None or not bid.terms.pausable:
            continue
        by = Meta.because(recorded, policy="pause-when-reached")
        decide_on(store, lease_id, lambda one: paused(one, met.at), by.step(f"pause:{lease_id}"))


def paused(lease: Lease, now: datetime) -> list[LeaseEvent]:
    """Pause a lease that runs, with the longest notice of its owners, if it lasts so long."""
    if lease.over or not lease.started:
        return []
    stop_at = now + max(least_notice(lease.terms.shares), lease.grace)
    if stop_at >= lease.ends_at:
        return []
    own = LeaseId(lease.terms.lease_id)
    return interrupt(lease, in_favour_of=own, stop_at=stop_at, now=now, pausing=True)


def _budget(store: EventStore, met: SpendingThresholdMet) -> Budget:
    budgets = load(store, Budgets, met.tenant_id)
    assert budgets is not None, "it came to a threshold"
    return budgets.budgets[met.budget_id]


def _opens_at(budget: Budget, period_starts_at: datetime) -> datetime:
    return period_at(budget.terms.period, period_starts_at).ends_at


def _to(budget: Budget) -> To:
    terms = budget.terms
    unit = SubscriberId(UUID(terms.subject)) if terms.scope == "unit" else None
    person = (UserId(UUID(terms.subject)),) if terms.scope == "person" else ()
    return To(
        tenant_id=terms.tenant_id,
        user_ids=person,
        subscriber_id=unit,
        roles=("finance", "operator"),
    )


POLICIES: tuple[Policy, ...] = (
    Policy(
        name="marketplace.tell-of-threshold",
        react=tell_of_threshold,
        on=names_of(SpendingThresholdMet),
    ),
    Policy(
        name="marketplace.pause-when-reached",
        react=pause_when_reached,
        on=names_of(SpendingThresholdMet),
    ),
)
