"""From the intent to a listed machine: launch it, wait until it is up, put it on the market."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from bursting.clouds.port import (
    CapacityUnavailable,
    CloudProvider,
    CloudTrouble,
    CloudUnavailable,
    Instance,
    LaunchRefused,
    PriceAboveCap,
    QuotaExceeded,
    TokenReused,
)
from bursting.commands.records import (
    claim_on,
    decide_on,
    end_instance,
    take_gone,
    take_launched,
    take_refused,
    take_running,
    told_by,
)
from bursting.commands.spilling import Overflow
from bursting.domain.budget import Budget, BudgetExhausted, month_of
from bursting.domain.events import BudgetEvent, BurstIntended
from bursting.domain.handed_out import gpu_differences
from bursting.domain.instances import NOT_AS_PLANNED, BurstInstance, host_of, offer_of
from bursting.domain.spill import NOTICE_SECONDS, offered_labels
from ledger.domain.span import Window
from ledger.eventstore.port import EventStore, Meta, load, record
from listings.commands import finish_listing, publish_offer, register_host
from listings.domain.hosts import Host
from listings.domain.terms import GRACE_SECONDS, OfferTerms
from marketplace.domain.bids.bid import Bid

VISIBLE_WITHIN = timedelta(minutes=10)
"""An instance that a cloud does not show for so long after its launch is not there."""
TIME_UP_BEFORE = timedelta(minutes=1)
"""We end an instance so long before the cloud's own timer would."""

REFUSED: dict[type[CloudTrouble], str] = {
    CapacityUnavailable: "capacity",
    QuotaExceeded: "quota",
    PriceAboveCap: "price",
    LaunchRefused: "refused",
}
"""Why an instance was refused, as the spill rule reads it (`spill.ZONE_REASONS` and others)."""


def tags_of(intent: BurstIntended) -> dict[str, str]:
    """Return the tags that an instance bears from its first moment."""
    return {
        "offpeak:owner": str(intent.owner_id),
        "offpeak:market": intent.market,
        "offpeak:bid": str(intent.bid_id),
        "offpeak:instance": str(intent.instance_id),
    }


def launch(
    store: EventStore,
    instance: BurstInstance,
    cloud: CloudProvider,
    overflow: Overflow,
    *,
    by: Meta,
    now: datetime,
) -> None:
    """Launch what was intended, or take down why not.

    Raises: CloudUnavailable: ask again; the token makes it the same launch.
    """
    intent = instance.intent
    if claim_on(store, instance) != "waiting":
        _resolve(store, instance, cloud, reason="bid-closed", by=by, now=now)
        return
    refused = None
    try:
        _set_money_aside(store, intent, overflow, by=by, now=now)
        started = cloud.launch(
            instance.spec,
            token=intent.token,
            tags=tags_of(intent),
            ttl=timedelta(seconds=intent.ttl_seconds),
            max_price=instance.price_cap,
            environment=overflow.environment_of(intent.instance_id),
        )
        if started.token not in (None, intent.token):
            # Somebody else's machine: whether ours runs is not known from this.
            raise CloudUnavailable(
                f"{started.instance_id} is of another launch", retryable=True, outcome_unknown=True
            )
    except BudgetExhausted:
        refused = "budget"
    except (CapacityUnavailable, QuotaExceeded, PriceAboveCap, LaunchRefused) as trouble:
        refused = REFUSED[type(trouble)]
    except TokenReused:
        # It ran under this token and has ended, or the terms differ: the cloud tells which.
        _resolve(store, instance, cloud, reason="token", by=by, now=now)
    except CloudUnavailable as trouble:
        patience = timedelta(seconds=overflow.rules.boot_seconds)
        if trouble.retryable and now < intent.at + patience:
            raise
        # What may run all the same bears our tags, and the reaper ends what no record wants.
        refused = "unavailable"
    else:
        take_launched(store, instance_id=intent.instance_id, found=started, by=by, now=now)
    if refused is not None:
        take_refused(store, instance_id=intent.instance_id, reason=refused, by=by, now=now)


def bring_up(
    store: EventStore,
    instance: BurstInstance,
    cloud: CloudProvider,
    overflow: Overflow,
    *,
    by: Meta,
    now: datetime,
) -> None:
    """List an instance once it runs and its agent has reported the GPUs; end it if it never does.

    Raises: CloudUnavailable, and what `publish_offer` raises.
    """
    instance_id = instance.intent.instance_id
    assert instance.launched_at is not None
    seen = seen_of(instance, cloud)
    if is_gone(instance, seen, now):
        take_gone(store, instance_id=instance_id, seen=seen, by=by, now=now)
        return
    if seen is not None and not is_as_planned(store, instance, seen, by=by, now=now):
        return
    host = load(store, Host, host_of(instance_id))
    found = [] if host is None else list(host.gpus.values())
    wrong = gpu_differences(instance.intent, found)
    claim = claim_on(store, instance)
    reason: str | None = None
    detail = ""
    if claim not in ("waiting", "leased"):
        reason = claim
    elif seen is not None and seen.state == "terminating":
        reason = "stopped"
    elif wrong:
        reason, detail = NOT_AS_PLANNED, ", ".join(wrong)
    elif now >= instance.launched_at + timedelta(seconds=overflow.rules.boot_seconds):
        reason = "never-came-up"
        if found:
            detail = f"its agent found {len(found)} of {instance.intent.gpus} GPUs"
    if reason is not None:
        end_instance(store, instance_id=instance_id, reason=reason, detail=detail, by=by, now=now)
    elif seen is not None and seen.state == "running":
        host = _register(store, instance.intent, by=by, now=now)
        if len(host.gpus) == instance.intent.gpus:
            _list(store, instance, host, by=by, now=now)
            take_running(store, instance_id=instance_id, by=by, now=now)


def is_as_planned(
    store: EventStore, instance: BurstInstance, seen: Instance, *, by: Meta, now: datetime
) -> bool:
    """Test if the cloud tells the instance that was intended; one that it does not is ended."""
    told, instance_id = told_by(seen), instance.intent.instance_id
    if not instance.check(told, now=now):
        return True
    decide_on(store, instance_id, lambda known: known.check(told, now=now), by=by)
    return False


def seen_of(instance: BurstInstance, cloud: CloudProvider) -> Instance | None:
    """Return an instance as its cloud shows it now, None where it shows none."""
    shown = cloud.describe([instance.cloud_ref or ""])
    return next((each for each in shown if each.instance_id == instance.cloud_ref), None)


def is_gone(instance: BurstInstance, seen: Instance | None, now: datetime) -> bool:
    """Test if the cloud has it no more. What it does not show soon after launch may still come."""
    assert instance.launched_at is not None
    if seen is not None:
        return seen.state == "terminated"
    return now >= instance.launched_at + VISIBLE_WITHIN


def _resolve(
    store: EventStore,
    instance: BurstInstance,
    cloud: CloudProvider,
    *,
    reason: str,
    by: Meta,
    now: datetime,
) -> None:
    """Find out whether an intent took effect, without launching anything."""
    intent = instance.intent
    for found in cloud.find(token=intent.token):
        if found.token != intent.token:
            continue  # a list is no echo of what was asked either
        take_launched(store, instance_id=intent.instance_id, found=found, by=by, now=now)
        return
    take_refused(store, instance_id=intent.instance_id, reason=reason, by=by, now=now)


def _set_money_aside(
    store: EventStore, intent: BurstIntended, overflow: Overflow, *, by: Meta, now: datetime
) -> None:
    month = month_of(intent.at)

    def decide(budget: Budget | None) -> Sequence[BudgetEvent]:
        known = budget or Budget(month=month)
        return known.reserve(intent.instance_id, intent.worst, cap=overflow.budget, now=now)

    record(store, Budget, month, decide, by=by)


def _register(store: EventStore, intent: BurstIntended, *, by: Meta, now: datetime) -> Host:
    """Make the instance known as a host; its agent then reports the GPUs like any other."""
    host_id = host_of(intent.instance_id)
    register_host(
        store,
        host_id=host_id,
        tenant_id=intent.owner_id,
        title=f"{intent.cloud} {intent.instance_type} {intent.zone}",
        market=intent.market,
        region=intent.region,
        labels=offered_labels(intent.cloud, intent.instance_type, intent.zone),
        source="burst",
        by=by,
        now=now,
    )
    host = load(store, Host, host_id)
    assert host is not None
    return host


def _list(
    store: EventStore, instance: BurstInstance, host: Host, *, by: Meta, now: datetime
) -> None:
    """Offer all GPUs of the instance to its bid, from now until its time is up."""
    offer_id = offer_of(instance.intent.instance_id)
    if offer_id in host.listed:
        # Listed by a pass that died before it was done; the windows are those of then.
        finish_listing(store, host_id=host.host_id, offer_id=offer_id, by=by, now=now)
        return
    ends_at = (instance.ends_at - TIME_UP_BEFORE).replace(microsecond=0)
    bid = load(store, Bid, instance.intent.bid_id)
    assert bid is not None, "an instance is rented for a bid"
    asked = bid.terms.request.grace_seconds_min or 0
    terms = OfferTerms(
        gpu_uuids=tuple(sorted(host.gpus)),
        windows=(Window(now.replace(microsecond=0), ends_at),),
        floor=instance.intent.floor,
        lease_min_seconds=1,
        notice_seconds=NOTICE_SECONDS,
        grace_seconds=max(GRACE_SECONDS, asked),
        reserved_for=instance.intent.bid_id,
    )
    publish_offer(store, offer_id=offer_id, host_id=host.host_id, terms=terms, by=by, now=now)
