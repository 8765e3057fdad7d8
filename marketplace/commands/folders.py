"""What may be asked about folders: to keep one whose blobs are there, and to keep it no longer."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from ledger.domain.ids import HostId, LeaseId, TenantId, UserId
from ledger.eventstore.port import EventStore, Meta, Position, record
from marketplace.domain.files.folder import Folder, folder_id_of, keep, remove
from marketplace.domain.files.manifest import Manifest


def keep_folder(
    store: EventStore,
    *,
    tenant_id: TenantId,
    sha256: str,
    manifest: Manifest,
    title: str,
    by: Meta,
    now: datetime,
    user_id: UserId | None = None,
    lease_id: LeaseId | None = None,
    host_id: HostId | None = None,
    exit_code: int | None = None,
) -> tuple[UUID, Position]:
    """Take note that a folder is whole; the same again changes nothing.

    Raises: FolderTitleTooLong.
    """
    folder_id = folder_id_of(tenant_id, sha256, lease_id, host_id)
    position = record(
        store,
        Folder,
        folder_id,
        lambda folder: keep(
            folder,
            tenant_id=tenant_id,
            sha256=sha256,
            manifest=manifest,
            title=title,
            now=now,
            user_id=user_id,
            lease_id=lease_id,
            host_id=host_id,
            exit_code=exit_code,
        ),
        by=by,
    )
    return folder_id, position


def remove_folder(store: EventStore, *, folder_id: UUID, by: Meta, now: datetime) -> Position:
    """Keep a folder no longer; doing it again changes nothing.

    Raises: FolderUnknown.
    """
    return record(store, Folder, folder_id, lambda folder: remove(folder, now=now), by=by)
