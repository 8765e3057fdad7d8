"""From a listed machine to one that is gone: watch it, heed warnings, terminate until it is so."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from bursting.clouds.port import CloudProvider, Instance, InstanceNotVisible
from bursting.commands.records import (
    OVER,
    claim_on,
    end_instance,
    instance_known,
    lease_of,
    retire,
    take_gone,
)
from bursting.commands.renting import TIME_UP_BEFORE, is_as_planned, is_gone, seen_of
from bursting.commands.spilling import Overflow
from bursting.domain.events import InstanceId
from bursting.domain.instances import BurstInstance
from bursting.domain.spill import NOTICE_SECONDS
from ledger.eventstore.port import EventStore, Meta, load
from listings.domain.terms import GRACE_SECONDS
from marketplace.commands.leases import take_rented_back
from marketplace.commands.volumes import is_awaited
from marketplace.domain.bids.bid import Bid
from marketplace.domain.leases.actions import LeaseOver

SENDS_BEFORE = timedelta(seconds=30)
"""So long before a cloud takes a machine back its work has ended, so that its last version is
kept."""


def watch(
    store: EventStore,
    instance: BurstInstance,
    cloud: CloudProvider,
    overflow: Overflow,
    *,
    by: Meta,
    now: datetime,
) -> None:
    """Decide the end of a listed instance once nobody needs it or it cannot go on.

    Raises: CloudUnavailable.
    """
    instance_id = instance.intent.instance_id
    seen = seen_of(instance, cloud)
    if is_gone(instance, seen, now):
        take_gone(store, instance_id=instance_id, seen=seen, by=by, now=now)
        return
    if seen is not None and not is_as_planned(store, instance, seen, by=by, now=now):
        return
    reason = _why_end(store, instance, seen, overflow, now)
    if reason is not None:
        end_instance(store, instance_id=instance_id, reason=reason, by=by, now=now)


def give_back(
    store: EventStore,
    instance: BurstInstance,
    cloud: CloudProvider,
    overflow: Overflow,
    *,
    by: Meta,
    now: datetime,
) -> None:
    """Withdraw, terminate, and believe only what the cloud says of it afterwards.

    Raises: CloudUnavailable: ask again.
    """
    assert instance.cloud_ref is not None
    retire(store, instance, by=by, now=now)
    seen = seen_of(instance, cloud)
    if not is_gone(instance, seen, now):
        try:
            cloud.terminate(instance.cloud_ref)
        except InstanceNotVisible:
            return
        seen = seen_of(instance, cloud)
    if is_gone(instance, seen, now):
        take_gone(store, instance_id=instance.intent.instance_id, seen=seen, by=by, now=now)


def warned_by(
    store: EventStore,
    cloud: CloudProvider,
    *,
    instance_ids: Sequence[InstanceId],
    now: datetime,
) -> list[tuple[BurstInstance, datetime]]:
    """Return the instances that a cloud says it will take back, and when.

    A warning long before its time waits: a machine that is to retire next week still works.

    Raises: InstanceUnknown, CloudUnavailable.
    """
    lead = timedelta(seconds=NOTICE_SECONDS)
    warned = {
        notice.instance_id: notice.at for notice in cloud.interruptions() if notice.at <= now + lead
    }
    if not warned:
        return []
    known = (instance_known(store, instance_id) for instance_id in instance_ids)
    return [
        (each, warned[each.cloud_ref])
        for each in known
        if each.intent.cloud == cloud.name and each.cloud_ref in warned
    ]


def pass_warning_on(
    store: EventStore, instance: BurstInstance, *, gone_at: datetime, by: Meta, now: datetime
) -> int:
    """Pass a cloud's warning on: the lease is told that its machine goes, and saves itself.

    gone_at: when it goes, by the cloud's word; a little is kept to send the last of it.

    Returns: 1 where something was to be told.
    """
    if instance.state not in ("provisioning", "running"):
        return 0
    instance_id = instance.intent.instance_id
    if claim_on(store, instance) != "leased":
        end_instance(store, instance_id=instance_id, reason="interrupted", by=by, now=now)
        return 1
    lease = lease_of(store, instance)
    assert lease is not None
    lease_id, owner_id = lease.terms.lease_id, instance.intent.owner_id
    gone_at -= SENDS_BEFORE
    with suppress(LeaseOver):
        take_rented_back(
            store, lease_id=lease_id, owner_id=owner_id, gone_at=gone_at, by=by, now=now
        )
    return 1


def _why_end(
    store: EventStore,
    instance: BurstInstance,
    seen: Instance | None,
    overflow: Overflow,
    now: datetime,
) -> str | None:
    assert instance.listed_at is not None
    if seen is not None and seen.state == "terminating":
        return "stopped"
    if now >= instance.ends_at - TIME_UP_BEFORE:
        return "time-up"
    claim = claim_on(store, instance)
    if claim == "waiting":
        idle_max = timedelta(seconds=overflow.rules.idle_seconds_max)
        bid = load(store, Bid, instance.intent.bid_id)
        assert bid is not None
        idle_since = max(instance.listed_at, bid.terms.earliest_start)
        return "idle" if now >= idle_since + idle_max else None
    if claim in OVER and _has_to_send(store, instance, overflow, now):
        return None
    return None if claim == "leased" else claim


def _has_to_send(
    store: EventStore, instance: BurstInstance, overflow: Overflow, now: datetime
) -> bool:
    """Tell if the agent of an instance may still have something to send of its lease.

    The last of its use, for a while in any case; and as long as a volume that its work writes to
    waits for its last version, longer.
    """
    drained_at = _drained_at(store, instance, overflow)
    if now < drained_at:
        return True
    if now >= drained_at + timedelta(seconds=overflow.rules.keep_seconds_max):
        return False
    lease = lease_of(store, instance)
    assert lease is not None
    return bool(lease.started) and any(
        is_awaited(store, lease.terms.tenant_id, each.name, bid_id=lease.terms.bid_id)
        for each in lease.terms.workload.volumes
        if each.writable
    )


def _drained_at(store: EventStore, instance: BurstInstance, overflow: Overflow) -> datetime:
    """Return until when the agent of an instance may still send what its lease used.

    That is the drain, which counts on the usual grace, and what the lease has of it besides.
    """
    lease = lease_of(store, instance)
    assert lease is not None
    longer = max(lease.grace - timedelta(seconds=GRACE_SECONDS), timedelta())
    drain = timedelta(seconds=overflow.rules.drain_seconds) + longer
    return (lease.ending_at or lease.ends_at) + drain
