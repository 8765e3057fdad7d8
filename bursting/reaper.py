"""Our record and the cloud's list, compared both ways; what differs is put right.

After a pass, the machines that a cloud runs under our tags are those on record that are not over,
and what ran outside the record is booked, to the end that the cloud tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, TypeVar
from uuid import UUID

import structlog

from bursting.clouds.port import CloudProvider, CloudUnavailable, Instance, InstanceNotVisible
from bursting.commands.records import (
    decide_on_stray,
    instance_known,
    take_gone,
    take_launched,
    told_by,
)
from bursting.commands.renting import VISIBLE_WITHIN, is_gone, seen_of
from bursting.commands.spilling import Overflow
from bursting.domain.events import InstanceId, StrayEnded, StrayFound, StrayId
from bursting.domain.handed_out import hourly_told
from bursting.domain.instances import BurstInstance
from bursting.domain.strays import Stray, stray_of
from bursting.queries import instances_not_over, strays_not_over
from ledger.domain.ids import BidId, TenantId
from ledger.domain.money import Money
from ledger.eventstore.port import EventStore, Meta, load
from ledger.turns import each_alone
from marketplace.domain.bids.bid import Bid

ORPHAN_GRACE = timedelta(minutes=10)
"""How old a machine must be before it is ended for want of a record."""
Done = Literal["ended", "left", "booked"]
KeyT = TypeVar("KeyT")
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
    booked: tuple[str, ...] = ()
    """Ran outside the record and have ended: their cost is known now."""
    lost: tuple[InstanceId, ...] = ()


def run_once(store: EventStore, *, overflow: Overflow, now: datetime) -> int:
    """Reconcile every cloud; return how many differences were put right."""

    def put_right(cloud: CloudProvider) -> int:
        try:
            done = reconcile(
                store,
                cloud,
                owner_id=overflow.owner_id,
                instance_ids=instances_not_over(),
                stray_ids=strays_not_over(),
                by=REAPER,
                now=now,
            )
        except CloudUnavailable as trouble:
            log.warning("burst.cloud-unavailable", cloud=cloud.name, error=str(trouble))
            return 0
        return len(done.adopted) + len(done.orphans_ended) + len(done.booked) + len(done.lost)

    return each_alone(
        overflow.clouds.values(),
        put_right,
        event="burst.not-reconciled",
        told=lambda cloud: {"cloud": cloud.name},
    )


def reconcile(
    store: EventStore,
    cloud: CloudProvider,
    *,
    owner_id: TenantId,
    instance_ids: Sequence[InstanceId],
    stray_ids: Sequence[StrayId] = (),
    by: Meta,
    now: datetime,
) -> Reconciled:
    """Compare one cloud's list with our record.

    owner_id: whose tag to list by, so that two installations in one account leave each other be.
    instance_ids, stray_ids: those on record that may not be over; others are of no harm.

    Raises: CloudUnavailable: the list could not be read; nothing is concluded from that.
    """
    mine = {"offpeak:owner": str(owner_id)}
    # A cloud that answers more than it was asked for must not have us end somebody else's machine.
    listed = [each for each in cloud.find(tags=mine) if mine.items() <= each.tags.items()]
    kept = 0
    adopted: list[str] = []
    heaps: dict[Done, list[str]] = {"ended": [], "left": [], "booked": []}

    def judge(found: Instance) -> int:
        nonlocal kept
        instance = load(store, BurstInstance, found.tags.get("offpeak:instance", ""))
        match _judge(instance, found):
            case "keep":
                kept += found.state != "terminated"
            case "adopt":
                assert instance is not None
                instance_id = instance.intent.instance_id
                take_launched(store, instance_id=instance_id, found=found, by=by, now=now)
                adopted.append(found.instance_id)
            case "orphan":
                done = _end_orphan(store, cloud, found, instance, owner_id, by=by, now=now)
                for each in done:
                    heaps[each].append(found.instance_id)
        return 1

    # One machine that cannot be judged must not let all others run on.
    _each(listed, judge)
    shown = {found.instance_id for found in listed if found.state != "terminated"}
    lost = _mark_missing(store, cloud, instance_ids, shown, by=by, now=now)
    seen = {found.instance_id for found in listed}
    heaps["booked"] += _book_missing(store, cloud, stray_ids, seen, by=by, now=now)
    return Reconciled(
        kept=kept,
        adopted=tuple(adopted),
        orphans_ended=tuple(heaps["ended"]),
        orphans_left=tuple(heaps["left"]),
        booked=tuple(heaps["booked"]),
        lost=lost,
    )


def _judge(instance: BurstInstance | None, found: Instance) -> Literal["keep", "adopt", "orphan"]:
    """Tell what a machine in the cloud is to us. Rests on the instance's own stream.

    A machine of an instance that is over is kept as it is where its end is known and its cost
    booked to that end; one that runs on, or ran longer or shorter than was booked, is an orphan.
    """
    if instance is None:
        return "orphan"
    if instance.state == "intended":
        return "adopt" if found.token == instance.intent.token else "orphan"
    if instance.cloud_ref != found.instance_id:
        return "orphan"
    if not instance.is_final:
        return "keep"
    if found.state != "terminated":
        return "orphan"
    return "keep" if found.ended_at in (None, instance.ended_at) else "orphan"


def _end_orphan(
    store: EventStore,
    cloud: CloudProvider,
    found: Instance,
    instance: BurstInstance | None,
    owner_id: TenantId,
    *,
    by: Meta,
    now: datetime,
) -> list[Done]:
    """End a machine outside the record, and book it once it has ended; return what was done."""
    stray_id = stray_of(cloud.name, found.instance_id)
    has_ended = found.state == "terminated"
    if not has_ended and now < found.launched_at + ORPHAN_GRACE:
        return ["left"]
    stray = load(store, Stray, stray_id)
    if stray is not None and stray.is_over and has_ended:
        return []
    if stray is None:
        log.warning("burst.orphan", cloud=cloud.name, ref=found.instance_id, tags=dict(found.tags))
        terms = _found(store, cloud, found, instance, owner_id, now)
        decide_on_stray(store, stray_id, lambda known: [] if known else [terms], by=by)
    done: list[Done] = []
    if not has_ended:
        try:
            cloud.terminate(found.instance_id)
            shown = cloud.describe([found.instance_id])
        except (CloudUnavailable, InstanceNotVisible) as trouble:
            log.warning("burst.orphan-not-ended", ref=found.instance_id, error=str(trouble))
            return ["left"]
        done.append("ended")
        now_seen = next((each for each in shown if each.instance_id == found.instance_id), found)
        if now_seen.state != "terminated":
            return done
        found = now_seen
    if _book(store, stray_id, ended_at=found.ended_at, by=by, now=now):
        done.append("booked")
    return done


def _found(
    store: EventStore,
    cloud: CloudProvider,
    found: Instance,
    instance: BurstInstance | None,
    owner_id: TenantId,
    now: datetime,
) -> StrayFound:
    """Return what is taken down of a machine outside the record, and whom its tags name."""
    told = told_by(found)
    booked = Money(0)
    bid_id = _read_bid(found.tags.get("offpeak:bid", ""))
    bid = load(store, Bid, bid_id) if bid_id else None
    tenant_id = bid.terms.tenant_id if bid else None
    since = found.launched_at
    if instance is not None:
        intent = instance.intent
        bid_id, tenant_id = intent.bid_id, intent.tenant_id
        is_same = instance.cloud_ref == found.instance_id
        hourly = instance.hourly if is_same else hourly_told(intent, told)
        told = replace(told, hourly=Money(hourly.nanos_per_instance_hour, hourly.currency))
        since = max(since, intent.at)
        if is_same:
            since = instance.launched_at or since
            booked = instance.cost or booked
    return StrayFound(
        stray_id=stray_of(cloud.name, found.instance_id),
        owner_id=owner_id,
        tenant_id=tenant_id,
        bid_id=bid_id if tenant_id else None,
        instance_id=None if instance is None else instance.intent.instance_id,
        cloud=cloud.name,
        cloud_ref=found.instance_id,
        told=told,
        launched_at=min(since, now),
        booked=booked,
        at=now,
    )


def _read_bid(text: str) -> BidId | None:
    """Return the bid that a tag names; anybody may have written there whatever they like."""
    try:
        return BidId(UUID(text))
    except ValueError:
        return None


def _book(
    store: EventStore, stray_id: StrayId, *, ended_at: datetime | None, by: Meta, now: datetime
) -> bool:
    """Take down that a machine outside the record has ended; a policy books it. Once."""

    def decide(stray: Stray | None) -> Sequence[StrayEnded]:
        assert stray is not None, "it is found before it ends"
        return stray.end(ended_at=ended_at, now=now)

    before = load(store, Stray, stray_id)
    decide_on_stray(store, stray_id, decide, by=by)
    return before is not None and not before.is_over


def _book_missing(
    store: EventStore,
    cloud: CloudProvider,
    stray_ids: Sequence[StrayId],
    seen: set[str],
    *,
    by: Meta,
    now: datetime,
) -> list[str]:
    """Book the machines outside the record that the cloud has forgotten before it told their end.

    They are booked to the moment at which they are missed: no earlier one is known.
    """
    booked: list[str] = []

    def look(stray_id: StrayId) -> int:
        stray = load(store, Stray, stray_id)
        if stray is None or stray.is_over or stray.found.cloud != cloud.name:
            return 0
        ref = stray.found.cloud_ref
        if ref in seen or now < stray.found.at + VISIBLE_WITHIN or cloud.describe([ref]):
            return 0
        if _book(store, stray_id, ended_at=None, by=by, now=now):
            booked.append(ref)
        return 1

    _each(stray_ids, look)
    return booked


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
    lost: list[InstanceId] = []

    def look(instance_id: InstanceId) -> int:
        instance = instance_known(store, instance_id)
        if (
            instance.intent.cloud != cloud.name
            or instance.cloud_ref is None
            or instance.is_final
            or instance.cloud_ref in shown
        ):
            return 0
        seen = seen_of(instance, cloud)
        if is_gone(instance, seen, now):
            take_gone(store, instance_id=instance_id, seen=seen, by=by, now=now)
            lost.append(instance_id)
        return 1

    _each(instance_ids, look)
    return tuple(lost)


def _each(keys: Iterable[KeyT], look: Callable[[KeyT], int]) -> None:
    """Look at each, whatever becomes of the others; where the cloud is away, at none further.

    Raises: CloudUnavailable.
    """
    each_alone(
        keys,
        look,
        event="burst.not-judged",
        told=lambda key: {"of": _named(key)},
        ends=(CloudUnavailable,),
    )


def _named(key: object) -> str:
    return key.instance_id if isinstance(key, Instance) else str(key)
