"""What is taken down of a rented instance; nothing here asks a cloud. Harmless when repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal

from bursting.clouds.port import Instance
from bursting.domain.budget import Budget, month_of
from bursting.domain.events import BudgetEvent, BurstEvent, InstanceId, StrayEvent, StrayId, Told
from bursting.domain.instances import BurstInstance, InstanceUnknown, host_of
from bursting.domain.strays import Stray
from ledger.commands import record_cost
from ledger.domain.money import Money
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from listings.commands import retire_host
from listings.domain.hosts import Host
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts.close_reasons import MOVED
from marketplace.domain.leases.lease import Lease

Claim = Literal["waiting", "leased", "lease-closed", "moved-home", "came-home", "bid-closed"]
"""What a bid wants of the instance rented for it. came-home: it got local supply instead;
moved-home: its work ran there and went on at home."""
OVER: tuple[Claim, ...] = ("lease-closed", "moved-home")
"""Its lease is over; its agent may still have something to send."""


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
    if not lease.over:
        return "leased"
    return "moved-home" if lease.ending_reason == MOVED else "lease-closed"


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

    Where it is another one than was intended, its end is decided in the same breath.

    Raises: InstanceUnknown, LaunchedTwice.
    """
    told = told_by(found)
    return decide_on(
        store,
        instance_id,
        lambda known: known.launch(
            found.instance_id, launched_at=found.launched_at, told=told, now=now
        ),
        by=by,
    )


def told_by(found: Instance) -> Told:
    """Return what a cloud says that a machine is."""
    price = found.price
    return Told(
        instance_type=found.spec.instance_type,
        zone=found.spec.zone,
        spot=found.spec.spot,
        gpus=found.gpus,
        gpu_model=found.gpu_model,
        hourly=None if price is None else Money(price.nanos_per_instance_hour, price.currency),
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
    store: EventStore,
    *,
    instance_id: InstanceId,
    reason: str,
    detail: str = "",
    by: Meta,
    now: datetime,
) -> Position:
    """Decide that an instance shall end; the loop that advances it sees to it.

    Raises: InstanceUnknown, InstanceNotLaunched.
    """
    return decide_on(
        store, instance_id, lambda known: known.end(reason, detail=detail, now=now), by=by
    )


def take_gone(
    store: EventStore,
    *,
    instance_id: InstanceId,
    seen: Instance | None,
    by: Meta,
    now: datetime,
) -> Position:
    """Take down that the cloud has an instance no more: terminated if we asked, else lost.

    seen: as the cloud still tells it, with when it ended; None where it shows nothing.

    Raises: InstanceUnknown.
    """
    ended_at = None if seen is None else seen.ended_at
    return decide_on(
        store, instance_id, lambda known: known.vanish(now=now, ended_at=ended_at), by=by
    )


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


def book_stray(store: EventStore, *, stray_id: StrayId, by: Meta, now: datetime) -> None:
    """Book what a machine outside the record did cost, on the platform and on the month's budget.

    Raises: AccountUnknown.
    """
    stray = load(store, Stray, stray_id)
    assert stray is not None and stray.ended is not None
    found, cost = stray.found, stray.ended.cost
    if not cost.nanos:
        return
    record_cost(
        store,
        platform_id=found.owner_id,
        money=cost,
        reference=f"burst:stray:{stray_id}",
        by=by.step("cost"),
        now=now,
    )
    month = month_of(found.launched_at)

    def decide(budget: Budget | None) -> Sequence[BudgetEvent]:
        return (budget or Budget(month=month)).spend(stray_id, cost, now=now)

    record(store, Budget, month, decide, by=by.step("budget"))


def decide_on_stray(
    store: EventStore,
    stray_id: StrayId,
    rule: Callable[[Stray | None], Sequence[StrayEvent]],
    *,
    by: Meta,
) -> Position:
    """Record what a rule decides on a machine outside the record."""
    return record(store, Stray, stray_id, rule, by=by)


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
