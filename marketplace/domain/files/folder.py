"""A folder that an organisation keeps, how much of it may be kept, and when that ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, assert_never
from uuid import UUID, uuid5

from ledger.domain.ids import BidId, HostId, LeaseId, TenantId, UserId
from ledger.domain.refusal import Invalid, Refusal, Unknown
from marketplace.domain.files.events import FolderEvent, FolderKept, FolderRemoved
from marketplace.domain.files.manifest import Manifest

TITLE_LENGTH_MAX = 120
ASKED_MAX = 1_000
"""Blobs asked for at once."""
UNUSED_FOR_MAX = timedelta(hours=24)
"""How long a blob is kept that no folder has: what an upload may take, with its breaks."""
GIB = 2**30


class FolderUnknown(Unknown):
    """Your organisation keeps no such folder."""


class InputsUnknown(Invalid):
    """Your organisation keeps no folder of that id for the work to find.

    Bring it first: `offpeak files up` prints its id.
    """


class FolderInUse(Refusal):
    """That folder is the inputs of work that is asked for or runs.

    Withdraw those bids or end those leases first, or remove it when they are over.
    """


class FolderTitleTooLong(Invalid):
    """The title of a folder has at most 120 characters."""


class BlobsMissing(Refusal):
    """Some blobs of that folder are not there.

    Ask which are missing, send them, and ask again. `blobs` names the first of them.
    """


class BlobSizeWrong(Invalid):
    """That blob is known with another number of bytes: one of the two is not its own."""


class TooManyBlobs(Invalid):
    """So many blobs cannot be asked for at once.

    Ask for up to a thousand at a time.
    """


class QuotaUsedUp(Refusal):
    """Your organisation has no room for that many bytes.

    Remove folders that nobody needs any more (`offpeak files rm`); their room is free after a day.
    """

    status = 413


def folder_id_of(
    tenant_id: TenantId,
    manifest: str,
    lease_id: LeaseId | None = None,
    host_id: HostId | None = None,
) -> UUID:
    """Return the id of a folder: what somebody else has, or a lease left, has an id of its own."""
    return uuid5(tenant_id, manifest if lease_id is None else f"{manifest} {lease_id} {host_id}")


def need_room(*, used: int, more: int, quota: int) -> None:
    """Refuse bytes for which there is no room.

    Raises: QuotaUsedUp.
    """
    if more and used + more > quota:
        raise QuotaUsedUp(bytes_used=used, bytes_more=more, bytes_max=quota)


def need_sizes(asked: Mapping[str, int], known: Mapping[str, int]) -> None:
    """Refuse a blob that is known with another size.

    Raises: BlobSizeWrong.
    """
    for sha256 in asked.keys() & known.keys():
        if asked[sha256] != known[sha256]:
            raise BlobSizeWrong(blob=sha256, bytes=asked[sha256])


def need_unused(
    folder_id: UUID, *, bids: Sequence[BidId | UUID], leases: Sequence[LeaseId | UUID]
) -> None:
    """Refuse to remove what these bids and leases bring.

    Raises: FolderInUse.
    """
    if bids or leases:
        raise FolderInUse(
            folder_id=folder_id,
            bids=[str(each) for each in bids],
            leases=[str(each) for each in leases],
        )


def need_inputs(folder: Folder | None, *, folder_id: UUID, tenant_id: TenantId) -> None:
    """Refuse as inputs what is not kept, or is another organisation's: nobody learns which.

    Raises: InputsUnknown.
    """
    kept = folder is not None and folder.removed_at is None
    if folder is None or not kept or folder.kept.tenant_id != tenant_id:
        raise InputsUnknown(inputs=folder_id)


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder as its stream tells it."""

    STREAM: ClassVar[str] = "folder"

    kept: FolderKept
    removed_at: datetime | None = None

    def is_over(self, by: datetime) -> bool:
        """Tell if it was removed, by then at the latest."""
        return self.removed_at is not None and self.removed_at <= by

    @classmethod
    def evolve(cls, state: Folder | None, event: FolderEvent, /) -> Folder:
        """Return the folder after `event`."""
        match event:
            case FolderKept():
                return cls(event)
            case FolderRemoved():
                assert state is not None
                return replace(state, removed_at=event.at)
            case _:
                assert_never(event)


def keep(
    folder: Folder | None,
    *,
    tenant_id: TenantId,
    sha256: str,
    manifest: Manifest,
    title: str,
    now: datetime,
    user_id: UserId | None = None,
    lease_id: LeaseId | None = None,
    host_id: HostId | None = None,
    exit_code: int | None = None,
) -> list[FolderKept]:
    """Decide to keep a folder whose blobs are there; one that is kept already stays as it is.

    Raises: FolderTitleTooLong.
    """
    if len(title) > TITLE_LENGTH_MAX:
        raise FolderTitleTooLong()
    if folder is not None and folder.removed_at is None:
        return []
    return [
        FolderKept(
            folder_id=folder_id_of(tenant_id, sha256, lease_id, host_id),
            tenant_id=tenant_id,
            manifest=sha256,
            title=title,
            files=manifest.entries,
            size_bytes=manifest.size_bytes,
            user_id=user_id,
            lease_id=lease_id,
            host_id=host_id,
            exit_code=exit_code,
            at=now,
        )
    ]


def remove(folder: Folder | None, *, now: datetime) -> list[FolderRemoved]:
    """Decide to keep a folder no longer.

    Raises: FolderUnknown.
    """
    if folder is None:
        raise FolderUnknown()
    if folder.removed_at is not None:
        return []
    kept = folder.kept
    return [
        FolderRemoved(
            folder_id=kept.folder_id, tenant_id=kept.tenant_id, manifest=kept.manifest, at=now
        )
    ]
