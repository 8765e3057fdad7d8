"""What is recorded of folders: that they are kept, by their hashes. Never what is in them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import HostId, LeaseId, TenantId, UserId


class FolderKept(Event, name="marketplace.folder-kept"):
    """A folder is whole in storage: all blobs that its manifest names are there.

    manifest: the sha256 that names it. lease_id: of which it is the output; None: somebody
    brought it. exit_code: of the work that left it, None where it was stopped.
    """

    folder_id: UUID
    tenant_id: TenantId
    manifest: str
    title: str
    files: int
    size_bytes: int
    user_id: UserId | None = None
    lease_id: LeaseId | None = None
    host_id: HostId | None = None
    exit_code: int | None = None
    at: datetime


class FolderRemoved(Event, name="marketplace.folder-removed"):
    """A folder is not kept any more; blobs that no other folder has go with it."""

    folder_id: UUID
    tenant_id: TenantId
    manifest: str
    at: datetime


FolderEvent = FolderKept | FolderRemoved
