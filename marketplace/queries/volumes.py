"""What can be asked about volumes. Whoever governs the platform sees its own alone."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from ledger.access import Actor, visible
from ledger.turns import behind
from marketplace.domain.volumes.terms import VolumeUnknown
from marketplace.models.bids import BidRow
from marketplace.models.leases import LeaseRow
from marketplace.models.volumes import VolumeRow

NAMED_MAX = 20
"""So many bids and leases a refusal names."""


def volumes(actor: Actor) -> QuerySet[VolumeRow]:
    """Return the volumes of `actor`'s organisation, by name."""
    rows = visible(actor, VolumeRow).filter(tenant_id=actor.tenant_id, is_removed=False)
    return rows.order_by("name", "volume_id")


def volume(actor: Actor, name: str) -> VolumeRow:
    """Return one volume.

    Raises: VolumeUnknown, also for one of others.
    """
    row = volumes(actor).filter(name=name).first()
    if row is None:
        raise VolumeUnknown(name=name[:64])
    return row


def mounted(tenant_id: UUID, name: str, *, writable: bool = False) -> tuple[list[UUID], list[UUID]]:
    """Return the first open bids and the first leases not over whose work finds a volume.

    writable: only those that write to it. Of a bid that was just filled the lease may not be known
    here yet: then the bid is named.
    """
    said = {"name": name, "writable": True} if writable else {"name": name}
    bids = BidRow.objects.filter(tenant_id=tenant_id, volumes__contains=[said])
    known = LeaseRow.objects.filter(lease_id=OuterRef("lease_id"))
    waiting = bids.filter(Q(state="open") | Q(state="filled") & ~Exists(known))
    leases = LeaseRow.objects.filter(
        tenant_id=tenant_id, volumes__contains=[said], closed_at__isnull=True
    )
    return (
        list(waiting.values_list("bid_id", flat=True)[:NAMED_MAX]),
        list(leases.values_list("lease_id", flat=True)[:NAMED_MAX]),
    )


def quotas_of(tenant_id: UUID, *, but: UUID | None = None) -> list[int]:
    """Return the sizes of all volumes of an organisation; but: without this one."""
    rows = VolumeRow.objects.filter(tenant_id=tenant_id, is_removed=False)
    others = rows if but is None else rows.exclude(volume_id=but)
    return list(others.values_list("quota_bytes", flat=True))


def to_see_to(after: tuple[UUID] | None, limit: int, *, since: datetime) -> list[tuple[UUID]]:
    """Return volumes that are kept, or were until after they were charged last.

    since: those that ended before it are charged, or never will be.
    """
    unsettled = Q(is_removed=True, removed_at__gt=since)
    rows = VolumeRow.objects.filter(Q(is_removed=False) | unsettled)
    keys = rows.filter(behind(after, "volume_id")).order_by("volume_id")
    return [(each,) for each in keys.values_list("volume_id", flat=True)[:limit]]
