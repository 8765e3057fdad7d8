"""Our record and the cloud's list, compared both ways; what differs is put right.

After a pass, the machines that a cloud runs under our tags are those on record that are not over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

import structlog

from bursting.clouds.port import CloudProvider, CloudUnavailable, Instance, InstanceNotVisible
from bursting.commands.records import instance_known, take_gone, take_launched
from bursting.commands.renting import is_gone, seen_of
from bursting.commands.spilling import Overflow
from bursting.domain.events import InstanceId
from bursting.domain.instances import BurstInstance
from bursting.queries import instances_not_over
from ledger.domain.ids import TenantId
from ledger.eventstore.port import EventStore, Meta, load

ORPHAN_GRACE = timedelta(minutes=10)
"""How old a machine must be before it is ended for want of a record."""
REAPER = Meta(actor="loop:burst-reaper")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """What one pass over one cloud found and did. Ids are the cloud's, but for `lost`."""

    kept: int = 0
    adopted: tuple[str, ...] = ()
    orphans_ended: tuple[str, ...] = ()
    orphans_left: tuple[str, ...] = ()
    """Too young to judge, or the cloud did not end them; the next pass looks again."""
    lost: tuple[InstanceId, ...] = ()


def run_once(store: EventStore, *, overflow: Overflow, now: datetime) -> int:
    """Reconcile every cloud; return how many differences were put right."""
    differences = 0
    for cloud in overflow.clouds.values():
        try:
            done = reconcile(
                store,
                cloud,
                owner_id=overflow.owner_id,
                instance_ids=instances_not_over(),
                by=REAPER,
                now=now,
            )
        except CloudUnavailable as trouble:
            log.warning("burst.cloud-unavailable", cloud=cloud.name, error=str(trouble))
            continue
        differences += len(done.adopted) + len(done.orphans_ended) + len(done.lost)
    return differences


def reconcile(
    store: EventStore,
    cloud: CloudProvider,
    *,
    owner_id: TenantId,
    instance_ids: Sequence[InstanceId],
    by: Meta,
    now: datetime,
) -> Reconciled:
    """Compare one cloud's list with our record.

    owner_id: whose tag to list by, so that two installations in one account leave each other be.
    instance_ids: those on record that may not be over; others are of no harm.

    Raises: CloudUnavailable: the list could not be read; nothing is concluded from that.
    """
    alive = [
        found
        for found in cloud.find(tags={"offpeak:owner": str(owner_id)})
        if found.state != "terminated"
    ]
    kept, adopted, ended, left = 0, [], [], []
    for found in alive:
        instance = load(store, BurstInstance, found.tags.get("offpeak:instance", ""))
        match _judge(instance, found):
            case "keep":
                kept += 1
            case "adopt":
                assert instance is not None
                instance_id = instance.intent.instance_id
                take_launched(store, instance_id=instance_id, found=found, by=by, now=now)
                adopted.append(found.instance_id)
            case "orphan" if _end_orphan(cloud, found, now):
                ended.append(found.instance_id)
            case "orphan":
                left.append(found.instance_id)
    shown = {found.instance_id for found in alive}
    return Reconciled(
        kept=kept,
        adopted=tuple(adopted),
        orphans_ended=tuple(ended),
        orphans_left=tuple(left),
        lost=_mark_missing(store, cloud, instance_ids, shown, by=by, now=now),
    )


def _judge(instance: BurstInstance | None, found: Instance) -> Literal["keep", "adopt", "orphan"]:
    """Tell what a machine in the cloud is to us. Rests on the instance's own stream."""
    if instance is None or instance.is_final:
        return "orphan"
    if instance.state == "intended":
        return "adopt" if found.token == instance.intent.token else "orphan"
    return "keep" if instance.cloud_ref == found.instance_id else "orphan"


def _end_orphan(cloud: CloudProvider, found: Instance, now: datetime) -> bool:
    if now < found.launched_at + ORPHAN_GRACE:
        return False
    log.warning("burst.orphan", cloud=cloud.name, ref=found.instance_id, tags=dict(found.tags))
    try:
        cloud.terminate(found.instance_id)
    except (CloudUnavailable, InstanceNotVisible) as trouble:
        log.warning("burst.orphan-not-ended", ref=found.instance_id, error=str(trouble))
        return False
    return True


def _mark_missing(
    store: EventStore,
    cloud: CloudProvider,
    instance_ids: Sequence[InstanceId],
    shown: set[str],
    *,
    by: Meta,
    now: datetime,
) -> tuple[InstanceId, ...]:
    """Take down which instances on record the cloud has no more; asks about each by its id."""
    lost = []
    for instance_id in instance_ids:
        instance = instance_known(store, instance_id)
        if (
            instance.intent.cloud != cloud.name
            or instance.cloud_ref is None
            or instance.is_final
            or instance.cloud_ref in shown
        ):
            continue
        if is_gone(instance, seen_of(instance, cloud), now):
            take_gone(store, instance_id=instance_id, by=by, now=now)
            lost.append(instance_id)
    return tuple(lost)
