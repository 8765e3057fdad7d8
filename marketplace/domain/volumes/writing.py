"""Who writes to a volume, and which version comes next."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from ledger.domain.ids import BidId, HostId, LeaseId, UserId
from marketplace.domain.volumes.events import VolumeClaimed, VolumeReleased, VolumeVersionKept
from marketplace.domain.volumes.volume import (
    Volume,
    VolumeConflict,
    VolumeFull,
    VolumeInUse,
    VolumeReadOnly,
    need_kept,
    need_readable,
    need_turn,
)


def claim(
    volume: Volume | None,
    *,
    name: str,
    bid_id: BidId,
    continues: BidId | None,
    over: Collection[BidId],
    now: datetime,
) -> list[VolumeClaimed]:
    """Decide that the work of a bid writes to a volume.

    continues: the bid before it in its chain. over: bids whose work writes no more.

    Raises: VolumeUnknown, VolumeOver, VolumeReadOnly, VolumeInUse.
    """
    kept = need_readable(volume, name=name)
    if kept.is_read_only(now):
        raise VolumeReadOnly(name=name)
    writer = kept.writer
    if writer is not None and writer.bid_id == bid_id:
        return []
    writing = [] if writer is None else [each for each in writer.bids if each not in over]
    goes_on = writer is not None and continues in writer.bids
    if writing and not goes_on:
        raise VolumeInUse(name=name, bids=[str(each) for each in writing], leases=[])
    # The last that has something: a bid between came to nothing, as one that work was to move to.
    after = writing[-1] if writing else None
    return [
        VolumeClaimed(
            volume_id=kept.volume_id,
            tenant_id=kept.created.tenant_id,
            bid_id=bid_id,
            after=after,
            at=now,
        )
    ]


def release(volume: Volume | None, *, bid_id: BidId, now: datetime) -> list[VolumeReleased]:
    """Take note that the work of a bid writes no more; again changes nothing."""
    if volume is None or volume.removed_at is not None or volume.writer is None:
        return []
    if bid_id not in (volume.writer.bid_id, volume.writer.before):
        return []
    return [
        VolumeReleased(
            volume_id=volume.volume_id,
            tenant_id=volume.created.tenant_id,
            bid_id=bid_id,
            at=now,
        )
    ]


def keep_version(
    volume: Volume | None,
    *,
    base: int,
    manifest: str,
    files: int,
    size_bytes: int,
    bid_id: BidId | None = None,
    over: Collection[BidId] = (),
    user_id: UserId | None = None,
    lease_id: LeaseId | None = None,
    host_id: HostId | None = None,
    now: datetime,
) -> list[VolumeVersionKept]:
    """Decide on the next version; files that are as in the newest are no other version.

    base: the version it goes on from; of a lease's own work any that it has made. bid_id: whose
    work left it; None: a person brought it. over: bids whose work writes no more. What work claimed
    when it began it may finish, also where the volume's time or money ended meanwhile.

    Raises: VolumeUnknown, VolumeConflict, VolumeFull; VolumeInUse for whom it is not to write;
        of a person VolumeOver and VolumeReadOnly.
    """
    kept = need_kept(volume)
    newest, name = kept.newest, kept.created.volume
    # An agent that was killed before it could note a version goes on from the one before.
    ours = newest is not None and newest.is_of(lease_id) and newest.base <= base <= kept.number
    again = newest is not None and base + 1 == kept.number and newest.lease_id == lease_id
    same = newest is not None and newest.manifest == manifest
    if same and (again or ours or base == kept.number):
        return []
    need_turn(kept, bid_id, over)
    if bid_id is None:
        need_readable(kept, name=name)
        if kept.is_read_only(now):
            raise VolumeReadOnly(name=name)
    if base != kept.number and not ours:
        raise VolumeConflict(version=kept.number, base=base)
    if size_bytes > kept.quota_bytes:
        raise VolumeFull(bytes=size_bytes, bytes_max=kept.quota_bytes)
    return [
        VolumeVersionKept(
            volume_id=kept.volume_id,
            tenant_id=kept.created.tenant_id,
            version=kept.number + 1,
            manifest=manifest,
            files=files,
            size_bytes=size_bytes,
            user_id=user_id,
            lease_id=lease_id,
            host_id=host_id,
            at=now,
        )
    ]
