"""What can be asked about folders. Whoever governs the platform sees no others' than its own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from ledger.access import Actor, visible
from ledger.domain.refusal import Invalid
from marketplace.domain.files.folder import FolderUnknown
from marketplace.models.bids import BidRow
from marketplace.models.folders import FolderRow
from marketplace.models.leases import LeaseRow

NAMED_MAX = 20
"""So many bids and leases a refusal names."""
OUTPUTS_MAX = 100


class FolderFilterUnreadable(Invalid):
    """Folders can be listed by `lease_id`, which is the id of a lease."""


def folders(actor: Actor, *, lease_id: UUID | str | None = None) -> QuerySet[FolderRow]:
    """Return the folders of `actor`'s organisation, newest first; of a lease: what it left.

    Raises: FolderFilterUnreadable.
    """
    rows = visible(actor, FolderRow).filter(tenant_id=actor.tenant_id)
    if lease_id is not None:
        try:
            rows = rows.filter(lease_id=UUID(str(lease_id)))
        except ValueError:
            raise FolderFilterUnreadable(lease_id=str(lease_id)[:40]) from None
    return rows.order_by("-kept_at", "folder_id")


def folder(actor: Actor, folder_id: UUID) -> FolderRow:
    """Return one folder.

    Raises: FolderUnknown, also for one of others.
    """
    row = folders(actor).filter(folder_id=folder_id).first()
    if row is None:
        raise FolderUnknown(folder_id=folder_id)
    return row


def bringing(folder_id: UUID) -> tuple[list[UUID], list[UUID]]:
    """Return the first open bids and the first leases not over whose inputs a folder is.

    Of a bid that was just filled the lease may not be known here yet: then the bid is named.
    """
    bids = BidRow.objects.filter(inputs=folder_id)
    known = LeaseRow.objects.filter(lease_id=OuterRef("lease_id"))
    waiting = bids.filter(Q(state="open") | Q(state="filled") & ~Exists(known))
    leases = LeaseRow.objects.filter(inputs=folder_id, closed_at__isnull=True)
    return (
        list(waiting.values_list("bid_id", flat=True)[:NAMED_MAX]),
        list(leases.values_list("lease_id", flat=True)[:NAMED_MAX]),
    )


@dataclass(frozen=True, slots=True)
class Output:
    """A folder that the work of a lease left, and the number of its bid among those in a chain."""

    folder_id: UUID
    host_id: UUID | None
    attempt: int
    exit_code: int | None
    files: int
    size_bytes: int
    kept_at: datetime


@dataclass(frozen=True, slots=True)
class OutputFailed:
    """What of it a host could not keep. final: it is not tried again. volume: of which volume."""

    host_id: UUID
    reason: str
    final: bool
    at: datetime
    volume: str = ""


@dataclass(frozen=True, slots=True)
class Left:
    """What the work of a lease left: the newest folders, and what could not be kept."""

    folders: list[Output]
    failed: list[OutputFailed]


NOTHING_LEFT = Left([], [])


def left_by(actor: Actor, lease: LeaseRow) -> Left:
    """Return what a lease left, as far as `actor` may see its files.

    What a host said before it kept a folder after all is left out.
    """
    if lease.tenant_id != actor.tenant_id or not actor.may("files:read"):
        return NOTHING_LEFT
    rows = list(folders(actor, lease_id=lease.lease_id)[:OUTPUTS_MAX])
    bid = BidRow.objects.filter(bid_id=lease.bid_id).first()
    attempt = 1 if bid is None else bid.chain_number
    said = [
        OutputFailed(
            UUID(place.partition(" ")[0]),
            each["reason"],
            each["final"],
            datetime.fromisoformat(each["at"]),
            place.partition(" ")[2],
        )
        for place, each in lease.outputs_failed.items()
    ]
    return Left(
        [
            Output(
                row.folder_id,
                row.host_id,
                attempt,
                row.exit_code,
                row.files,
                row.size_bytes,
                row.kept_at,
            )
            for row in rows
        ],
        [
            each
            for each in said
            if each.final or each.volume or not any(row.host_id == each.host_id for row in rows)
        ],
    )
