"""From blobs to folders: which are missing, when a folder is whole, what nobody needs any more.

An upload asks which blobs are missing, sends those, and names the folder last: so one that was cut
goes on by asking again, and until the end there is nothing to be seen of it. What is there is known
from `BlobRow`, and storage is only asked about blobs that were asked for and not seen since. All
that changes an organisation's blobs happens one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from hashlib import sha256 as sha256_of
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Sum

from ledger.domain.ids import HostId, LeaseId, TenantId, UserId
from ledger.eventstore.port import EventStore, Meta, Position, load
from marketplace.commands import folders as commands
from marketplace.domain.files.folder import (
    ASKED_MAX,
    UNUSED_FOR_MAX,
    BlobsMissing,
    Folder,
    FolderUnknown,
    TooManyBlobs,
    need_room,
    need_sizes,
    need_unused,
)
from marketplace.domain.files.manifest import (
    BLOB_BYTES_MAX,
    Manifest,
    ManifestUnreadable,
    need_blobs,
    read_manifest,
)
from marketplace.models.folders import BlobRow, BlobUseRow, FolderRow
from marketplace.queries.folders import bringing
from marketplace.storage.port import BlobKey, Link, Storage

TOLD_MAX = 20
"""So many missing blobs a refusal names."""
SWEPT_MAX = 1_000
"""So many blobs a pass of the loop removes."""

SETTLED_AFTER = timedelta(hours=1)
"""So long after a removal every bid of before it is known to those who look."""

_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('blobs ' || %s, 0))"


def ask_missing(
    storage: Storage,
    tenant_id: TenantId,
    sizes: Mapping[str, int],
    *,
    quota: int,
    now: datetime,
    of_volumes: bool = False,
) -> dict[str, Link]:
    """Return where to send those blobs that are not there; room for them is kept for a day.

    of_volumes: the quota is that of folders and volumes together; else what only volumes have
    takes none of it.

    Raises: TooManyBlobs, ManifestUnreadable, BlobSizeWrong, QuotaUsedUp, StorageAway.
    """
    if len(sizes) > ASKED_MAX:
        raise TooManyBlobs(blobs=len(sizes), blobs_max=ASKED_MAX)
    need_blobs(sizes.items())
    _note_stored(storage, tenant_id, list(sizes), now)
    with transaction.atomic():
        _alone(tenant_id)
        ours = BlobRow.objects.filter(tenant_id=tenant_id)
        asked = ours.filter(sha256__in=sizes)
        asked.update(asked_at=now)  # before they are read: from here on none is swept
        known = {row.sha256: row for row in asked}
        need_sizes(sizes, {sha256: row.size_bytes for sha256, row in known.items()})
        new = sizes.keys() - known.keys()
        used = used_bytes(tenant_id, of_volumes=of_volumes)
        need_room(used=used, more=sum(sizes[each] for each in new), quota=quota)
        BlobRow.objects.bulk_create(
            BlobRow(tenant_id=tenant_id, sha256=each, size_bytes=sizes[each], asked_at=now)
            for each in sorted(new)
        )
    lacking = [each for each in sizes if each in new or known[each].stored_at is None]
    return {each: storage.put_link(BlobKey(tenant_id, each), sizes[each]) for each in lacking}


def used_bytes(tenant_id: UUID, *, of_volumes: bool = False) -> int:
    """Return how many bytes an organisation has in storage, or room kept for.

    of_volumes: also those that only its volumes have.
    """
    ours = BlobRow.objects.filter(tenant_id=tenant_id)
    if not of_volumes:
        uses = BlobUseRow.objects.filter(blob_id=OuterRef("id"))
        in_volumes = Exists(uses.filter(volume_id__isnull=False))
        ours = ours.filter(~in_volumes | Exists(uses.filter(volume_id__isnull=True)))
    return int(ours.aggregate(used=Sum("size_bytes"))["used"] or 0)


def keep_folder(
    store: EventStore,
    storage: Storage,
    tenant_id: TenantId,
    sha256: str,
    *,
    title: str,
    by: Meta,
    now: datetime,
    user_id: UserId | None = None,
    lease_id: LeaseId | None = None,
    host_id: HostId | None = None,
    exit_code: int | None = None,
) -> tuple[UUID, Position]:
    """Keep the folder whose manifest is the blob of this name, once all its blobs are there.

    The folder and what it uses become visible together, or not at all.

    Raises: BlobsMissing, StorageAway, what `read_manifest` raises, FolderTitleTooLong.
    """
    with whole(storage, tenant_id, sha256, now=now) as (manifest, blobs):
        folder_id, position = commands.keep_folder(
            store,
            tenant_id=tenant_id,
            sha256=sha256,
            manifest=manifest,
            title=title,
            by=by,
            now=now,
            user_id=user_id,
            lease_id=lease_id,
            host_id=host_id,
            exit_code=exit_code,
        )
        BlobUseRow.objects.bulk_create(
            [BlobUseRow(folder_id=folder_id, blob_id=row.id) for row in blobs],
            ignore_conflicts=True,
        )
    return folder_id, position


@contextmanager
def whole(
    storage: Storage, tenant_id: TenantId, sha256: str, *, now: datetime
) -> Iterator[tuple[Manifest, list[BlobRow]]]:
    """Give a manifest with the blobs that it needs, itself included, once all are there.

    What is written meanwhile commits together, and nobody else changes this organisation's blobs.

    Raises: BlobsMissing, BlobSizeWrong, StorageAway, what `read_manifest` raises.
    """
    manifest = manifest_of(storage, tenant_id, sha256)
    sizes = {**dict(manifest.blobs), sha256: 0}
    _note_stored(storage, tenant_id, list(sizes), now)
    with transaction.atomic():
        _alone(tenant_id)
        rows = BlobRow.objects.filter(
            tenant_id=tenant_id, sha256__in=sizes, stored_at__isnull=False
        )
        rows.update(asked_at=now)  # before they are read: from here on none is swept
        there = {row.sha256: row for row in rows}
        missing = sorted(sizes.keys() - there.keys())
        if missing:
            raise BlobsMissing(missing=len(missing), blobs=missing[:TOLD_MAX])
        need_sizes(dict(manifest.blobs), {each: row.size_bytes for each, row in there.items()})
        yield manifest, list(there.values())


def remove_folder(store: EventStore, folder_id: UUID, *, by: Meta, now: datetime) -> Position:
    """Keep a folder no longer; blobs that no other folder has go a while later.

    Its own blobs stay until it is certain that no bid brings them: `let_go_removed`.

    Raises: FolderUnknown, FolderInUse.
    """
    bids, leases = bringing(folder_id)
    need_unused(folder_id, bids=bids, leases=leases)
    return commands.remove_folder(store, folder_id=folder_id, by=by, now=now)


def let_go_removed(store: EventStore, *, now: datetime) -> int:
    """Let go of the blobs of folders that were removed and no work brings; return how many did.

    A bid that was accepted just before its folder was removed counts, though whoever removed it
    could not see it yet: it is looked again after SETTLED_AFTER, and until its lease is over.
    """
    known = FolderRow.objects.filter(folder_id=OuterRef("folder_id"))
    left = BlobUseRow.objects.filter(~Exists(known), volume_id__isnull=True)
    folder_ids = left.values_list("folder_id", flat=True).distinct()[:SWEPT_MAX]
    gone = 0
    for folder_id in list(folder_ids):
        folder = load(store, Folder, folder_id)
        if folder is None or not folder.is_over(now - SETTLED_AFTER) or any(bringing(folder_id)):
            continue
        with transaction.atomic():
            _alone(folder.kept.tenant_id)
            again = load(store, Folder, folder_id)  # it may be kept anew since
            if again is not None and again.removed_at == folder.removed_at:
                BlobUseRow.objects.filter(folder_id=folder_id, volume_id__isnull=True).delete()
                gone += 1
    return gone


def manifest_for_work(store: EventStore, tenant_id: UUID, folder_id: UUID) -> str:
    """Return the name of the manifest of a folder that a lease's work finds.

    Also of one that was removed when its bid had just been accepted.

    Raises: FolderUnknown.
    """
    folder = load(store, Folder, folder_id)
    if folder is None or folder.kept.tenant_id != tenant_id:
        raise FolderUnknown(folder_id=folder_id)
    return folder.kept.manifest


def manifest_of(storage: Storage, tenant_id: UUID, sha256: str) -> Manifest:
    """Read a manifest from storage, and check that it is what its name says.

    Raises: BlobsMissing, StorageAway, what `read_manifest` raises.
    """
    need_blobs([(sha256, BLOB_BYTES_MAX)])
    body = storage.read(BlobKey(tenant_id, sha256))
    if body is None:
        raise BlobsMissing(missing=1, blobs=[sha256])
    if sha256_of(body).hexdigest() != sha256:
        raise ManifestUnreadable(detail="it is not what its name says")
    return read_manifest(body)


def links_to(
    storage: Storage, tenant_id: UUID, folder_id: UUID, sha256s: Sequence[str]
) -> dict[str, Link]:
    """Return where to read these blobs of a folder.

    Raises: TooManyBlobs; FolderUnknown for a blob that is none of the folder's.
    """
    if len(sha256s) > ASKED_MAX:
        raise TooManyBlobs(blobs=len(sha256s), blobs_max=ASKED_MAX)
    if not all_used(tenant_id, sha256s, folder_id=folder_id):
        raise FolderUnknown(folder_id=folder_id)
    return {each: storage.get_link(BlobKey(tenant_id, each)) for each in sha256s}


def all_used(tenant_id: UUID, sha256s: Sequence[str], **by: UUID) -> bool:
    """Tell if all these blobs of an organisation are used by a folder, or by a volume.

    by: `folder_id` or `volume_id`.
    """
    used = BlobUseRow.objects.filter(blob_id=OuterRef("id"), **by)
    rows = BlobRow.objects.filter(Exists(used), tenant_id=tenant_id, sha256__in=sha256s)
    return not set(sha256s) - set(rows.values_list("sha256", flat=True))


def forget_unused(storage: Storage, *, now: datetime) -> int:
    """Remove blobs that no folder has and nobody has asked for in a day; return how many."""
    storage.sweep(older_than_seconds=UNUSED_FOR_MAX.total_seconds())
    used = BlobUseRow.objects.filter(blob_id=OuterRef("id"))
    with transaction.atomic():
        # Who asks for one of them meanwhile waits, and then finds it missing.
        rows = list(
            BlobRow.objects.select_for_update(skip_locked=True, of=("self",))
            .filter(~Exists(used), asked_at__lt=now - UNUSED_FOR_MAX)
            .order_by("id")[:SWEPT_MAX]
        )
        storage.delete([BlobKey(row.tenant_id, row.sha256) for row in rows])
        BlobRow.objects.filter(id__in=[row.id for row in rows]).delete()
    return len(rows)


def _note_stored(
    storage: Storage, tenant_id: TenantId, sha256s: Sequence[str], now: datetime
) -> None:
    """Note which of those blobs that were asked for have come. Asks storage, so in no transaction.

    One that is there with another size is none of ours, and stays missing.
    """
    waited = BlobRow.objects.filter(tenant_id=tenant_id, sha256__in=sha256s, stored_at__isnull=True)
    wanted = {BlobKey(tenant_id, row.sha256): row for row in waited}
    if not wanted:
        return
    sizes = storage.sizes(list(wanted))
    come = [row.id for key, row in wanted.items() if sizes.get(key) == row.size_bytes]
    BlobRow.objects.filter(id__in=come).update(stored_at=now)


def _alone(tenant_id: UUID) -> None:
    """Let nobody else change this organisation's blobs until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute(_ALONE, [str(tenant_id)])
