"""What can be asked about folders. Whoever governs the platform sees no others' than its own."""

from __future__ import annotations

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
