"""What is taken down of a rented instance; nothing here asks a cloud. Harmless when repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal

from bursting.clouds.port import Instance
from bursting.domain.budget import Budget, month_of
from bursting.domain.events import BudgetEvent, BurstEvent, InstanceId
from bursting.domain.instances import BurstInstance, InstanceUnknown, host_of
from ledger.commands import record_cost
from ledger.domain.money import Money
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from listings.commands import retire_host
from listings.domain.hosts import Host
from marketplace.domain.bids import Bid
from marketplace.domain.leases import Lease

Claim = Literal["waiting", "leased", "lease-closed", "came-home", "bid-closed"]
"""What a bid wants of the instance rented for it. came-home: it got local supply instead."""


def instance_known(store: EventStore, instance_id: InstanceId) -> BurstInstance:
    """Return an instance. Raises: InstanceUnknown."""
    instance = load(store, BurstInstance, instance_id)
    if instance is None:
        raise InstanceUnknown(instance_id=instance_id)
    return instance


def claim_on(store: EventStore, instance: BurstInstance) -> Claim:
    """Return what the bid of an instance wants of it now, by the bid's and the lease's streams."""
    bid = load(store, Bid, instance.intent.bid_id)
    if bid is None:
        return "bid-closed"
    if bid.state == "open":
        return "waiting"
    lease = lease_of(store, instance)
    if lease is None:
        return "bid-closed"
    if host_of(instance.intent.instance_id) not in lease.hosts:
        return "came-home"
    return "lease-closed" if lease.over else "leased"


def lease_of(store: EventStore, instance: BurstInstance) -> Lease | None:
    """Return the lease that the bid of an instance got, wherever it runs."""
    bid = load(store, Bid, instance.intent.bid_id)
    if bid is None or bid.lease_id is None:
        return None
    return load(store, Lease, bid.lease_id)


def take_launched(
    store: EventStore, *, instance_id: InstanceId, found: Instance, by: Meta, now: datetime
) -> Position:
    """Take down that the cloud runs an instance of which only the intent was known.

    Raises: InstanceUnknown, LaunchedTwice.
    """
    return decide_on(
        store,
        instance_id,
        lambda known: known.launch(found.instance_id, launched_at=found.launched_at, now=now),
        by=by,
    )


def take_refused(
    store: EventStore, *, instance_id: InstanceId, reason: str, by: Meta, now: datetime
) -> Position:
    """Take down that nothing was rented. Raises: InstanceUnknown."""
    return decide_on(store, instance_id, lambda known: known.refuse(reason, now=now), by=by)


def take_running(
    store: EventStore, *, instance_id: InstanceId, by: Meta, now: datetime
) -> Position:
    """Take down that an instance is up and listed. Raises: InstanceUnknown."""
    return decide_on(store, instance_id, lambda known: known.run(now=now), by=by)


def end_instance(
    store: EventStore, *, instance_id: InstanceId, reason: str, by: Meta, now: datetime
) -> Position:
    """Decide that an instance shall end; the loop that advances it sees to it.

    Raises: InstanceUnknown, InstanceNotLaunched.
    """
    return decide_on(store, instance_id, lambda known: known.end(reason, now=now), by=by)


def take_gone(store: EventStore, *, instance_id: InstanceId, by: Meta, now: datetime) -> Position:
    """Take down that the cloud has an instance no more: terminated if we asked, else lost.

    Raises: InstanceUnknown.
    """
    return decide_on(store, instance_id, lambda known: known.vanish(now=now), by=by)


def settle_instance(
    store: EventStore, *, instance_id: InstanceId, by: Meta, now: datetime
) -> Position:
    """Put an end to what an instance that is over leaves behind: host, offer, cost, budget.

    Raises: InstanceUnknown, AccountUnknown.
    """
    instance = instance_known(store, instance_id)
    assert instance.is_final
    intent = instance.intent
    retire(store, instance, by=by.step("retire"), now=now)
    cost = instance.cost or Money(0, intent.price.currency)
    if cost.nanos:
        record_cost(
            store,
            platform_id=intent.owner_id,
            money=cost,
            reference=f"burst:{instance_id}",
            by=by.step("cost"),
            now=now,
        )

    def decide(budget: Budget | None) -> Sequence[BudgetEvent]:
        return [] if budget is None else budget.settle(instance_id, cost, now=now)

    return record(store, Budget, month_of(intent.at), decide, by=by.step("budget"))


def retire(store: EventStore, instance: BurstInstance, *, by: Meta, now: datetime) -> None:
    """Take an instance off the market, if it ever was on it."""
    host_id = host_of(instance.intent.instance_id)
    if load(store, Host, host_id) is not None:
        retire_host(store, host_id=host_id, by=by, now=now)


def decide_on(
    store: EventStore,
    instance_id: InstanceId,
    rule: Callable[[BurstInstance], Sequence[BurstEvent]],
    *,
    by: Meta,
) -> Position:
    """Record what a rule decides on an instance that must exist. Raises: InstanceUnknown."""

    def decide(instance: BurstInstance | None) -> Sequence[BurstEvent]:
        if instance is None:
            raise InstanceUnknown(instance_id=instance_id)
        return rule(instance)

    return record(store, BurstInstance, instance_id, decide, by=by)
