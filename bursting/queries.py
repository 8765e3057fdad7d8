"""What can be asked about overflow. Reads rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Count, Q, QuerySet, Sum

from bursting.domain.events import InstanceId, StrayId
from bursting.domain.instances import FINAL, InstanceUnknown
from bursting.domain.spill import SpillRules
from bursting.models import BurstInstanceRow, BurstWaitRow, HomeMoveRow, StrayRow, WaitingBidRow
from ledger.access import Actor, visible
from ledger.domain.ids import BidId, LeaseId
from ledger.domain.span import Window


def burst_instances(
    actor: Actor, *, states: Sequence[str] = (), bid_id: UUID | None = None
) -> QuerySet[BurstInstanceRow]:
    """Return the instances rented for the actor's bids, for the platform all, newest first."""
    rows = visible(actor, BurstInstanceRow).order_by("-intended_at", "instance_id")
    if states:
        rows = rows.filter(state__in=states)
    if bid_id is not None:
        rows = rows.filter(bid_id=bid_id)
    return rows


def burst_instance(actor: Actor, instance_id: UUID) -> BurstInstanceRow:
    """Return one instance that `actor` may see. Raises: InstanceUnknown."""
    row = visible(actor, BurstInstanceRow).filter(instance_id=instance_id).first()
    if row is None:
        raise InstanceUnknown(instance_id=instance_id)
    return row


def instances_not_over() -> list[InstanceId]:
    """Return the instances that something may still happen to, oldest first."""
    rows = BurstInstanceRow.objects.exclude(state__in=FINAL).order_by("intended_at", "pk")
    return [InstanceId(key) for key in rows.values_list("pk", flat=True)]


def home_moves(
    actor: Actor, *, lease_id: UUID | None = None, moved: bool | None = None
) -> QuerySet[HomeMoveRow]:
    """Return the tries to move the actor's work home, for the platform all, newest first."""
    rows = visible(actor, HomeMoveRow).order_by("-asked_at", "bid_id")
    if lease_id is not None:
        rows = rows.filter(Q(lease_id=lease_id) | Q(home_lease_id=lease_id))
    return rows if moved is None else rows.filter(moved=moved)


@dataclass(frozen=True, slots=True)
class MovedHome:
    """What moved home over a time: how often, what that saves, and what the moves cost."""

    moves: int
    saved: int
    move_cost: int


def moved_home(actor: Actor, window: Window) -> MovedHome:
    """Return what of the actor's work moved home within a window, for the platform all. In nanos.

    saved: as if all of each place at home were used.
    """
    found = home_moves(actor, moved=True).filter(
        ended_at__gte=window.starts_at, ended_at__lt=window.ends_at
    )
    sums = found.aggregate(moves=Count("pk"), saved=Sum("saved_nanos"), cost=Sum("move_nanos"))
    return MovedHome(sums["moves"], sums["saved"] or 0, sums["cost"] or 0)


def home_moves_under_way() -> list[LeaseId]:
    """Return the leases whose work is on its way home, the oldest try first."""
    rows = HomeMoveRow.objects.filter(ended_at=None).order_by("asked_at", "pk")
    return [LeaseId(key) for key in rows.values_list("lease_id", flat=True)]


def instances_running() -> list[InstanceId]:
    """Return the instances that are listed, the one that has run for longest first."""
    rows = BurstInstanceRow.objects.filter(state="running").order_by("intended_at", "pk")
    return [InstanceId(key) for key in rows.values_list("pk", flat=True)]


def burst_wait(actor: Actor, bid_id: UUID) -> BurstWaitRow | None:
    """Return why a bid of the actor's is not served by a cloud, None where nothing is known."""
    return visible(actor, BurstWaitRow).filter(bid_id=bid_id).first()


def strays(actor: Actor, *, bid_id: UUID | None = None) -> QuerySet[StrayRow]:
    """Return the machines that ran outside the record: the actor's, for the platform all.

    Newest first.
    """
    rows = visible(actor, StrayRow).order_by("-found_at", "stray_id")
    return rows if bid_id is None else rows.filter(bid_id=bid_id)


def strays_not_over() -> list[StrayId]:
    """Return the machines outside the record whose end is not booked yet."""
    rows = StrayRow.objects.filter(over_at=None).order_by("found_at", "pk")
    return [StrayId(key) for key in rows.values_list("pk", flat=True)]


def machines_up() -> list[BurstInstanceRow]:
    """Return the instances that a cloud has launched and that nobody has given back yet."""
    rows = BurstInstanceRow.objects.filter(state__in=("provisioning", "running"))
    return list(rows.order_by("intended_at", "pk"))


def bids_maybe_due(*, rules: SpillRules, now: datetime, limit: int) -> list[BidId]:
    """Return open bids that allow bursting and may spill by `now`, longest waiting first.

    The same conditions as `spill.due_at`, in SQL; the rule itself decides.
    """
    boot = timedelta(seconds=rules.boot_seconds)
    risk = timedelta(seconds=rules.risk_seconds)
    waited = Q(
        placed_at__lte=now - timedelta(seconds=rules.wait_seconds), earliest_start__lte=now + boot
    )
    at_risk = Q(latest_start__lte=now + boot + risk)
    rows = WaitingBidRow.objects.filter(waited | at_risk, latest_start__gte=now + boot)
    keys = rows.order_by("placed_at", "pk").values_list("pk", flat=True)
    return [BidId(key) for key in keys[:limit]]
