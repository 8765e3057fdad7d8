"""That a volume is kept: made, grown, kept for longer, removed."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from ledger.domain.ids import AccountId, BidId, SubscriberId, TenantId, UserId
from marketplace.domain.volumes.events import (
    Because,
    VolumeCreated,
    VolumeExtended,
    VolumeRemoved,
    VolumeResized,
)
from marketplace.domain.volumes.terms import need_name, need_quota, need_time
from marketplace.domain.volumes.volume import (
    Volume,
    VolumeEndsSooner,
    VolumeExists,
    VolumeTooSmall,
    need_kept,
    need_turn,
)


def create(
    volume: Volume | None,
    *,
    volume_id: UUID,
    tenant_id: TenantId,
    subscriber_id: SubscriberId,
    account_id: AccountId,
    cost_centre: str,
    name: str,
    quota_bytes: int,
    nanos_per_gib_month: int,
    currency: str,
    expires_at: datetime,
    user_id: UserId | None,
    now: datetime,
) -> list[VolumeCreated]:
    """Decide to keep a volume.

    Raises: VolumeNameUnfit, VolumeSizeOutOfBounds, VolumeTimeOutOfBounds, VolumeExists.
    """
    need_name(name)
    need_quota(quota_bytes)
    need_time(expires_at, now)
    if volume is not None and volume.removed_at is None:
        raise VolumeExists(name=name)
    return [
        VolumeCreated(
            volume_id=volume_id,
            tenant_id=tenant_id,
            subscriber_id=subscriber_id,
            account_id=account_id,
            cost_centre=cost_centre,
            volume=name,
            quota_bytes=quota_bytes,
            nanos_per_gib_month=nanos_per_gib_month,
            currency=currency,
            expires_at=expires_at,
            user_id=user_id,
            at=now,
        )
    ]


def resize(volume: Volume | None, *, quota_bytes: int, now: datetime) -> list[VolumeResized]:
    """Decide on another size; the same again changes nothing.

    Raises: VolumeUnknown, VolumeSizeOutOfBounds, VolumeTooSmall.
    """
    kept = need_kept(volume)
    need_quota(quota_bytes)
    if quota_bytes < kept.size_bytes:
        raise VolumeTooSmall(bytes_kept=kept.size_bytes, bytes=quota_bytes)
    if quota_bytes == kept.quota_bytes:
        return []
    return [
        VolumeResized(
            volume_id=kept.volume_id,
            tenant_id=kept.created.tenant_id,
            quota_bytes=quota_bytes,
            at=now,
        )
    ]


def extend(
    volume: Volume | None, *, expires_at: datetime, nanos_per_gib_month: int, now: datetime
) -> list[VolumeExtended]:
    """Decide to keep a volume for longer, at the price of today. Also one that has expired.

    Raises: VolumeUnknown, VolumeTimeOutOfBounds, VolumeEndsSooner.
    """
    kept = need_kept(volume)
    if expires_at == kept.expires_at:
        return []
    need_time(expires_at, now)
    if expires_at < kept.expires_at:
        raise VolumeEndsSooner(expires_at=kept.expires_at)
    return [
        VolumeExtended(
            volume_id=kept.volume_id,
            tenant_id=kept.created.tenant_id,
            expires_at=expires_at,
            nanos_per_gib_month=nanos_per_gib_month,
            at=now,
        )
    ]


def remove(
    volume: Volume | None, *, over: Collection[BidId], because: Because, now: datetime
) -> list[VolumeRemoved]:
    """Decide to keep a volume no more. over: bids whose work writes no more.

    Raises: VolumeUnknown, VolumeInUse.
    """
    kept = need_kept(volume)
    if kept.writer is not None:
        need_turn(kept, None, over)
    return [
        VolumeRemoved(
            volume_id=kept.volume_id, tenant_id=kept.created.tenant_id, because=because, at=now
        )
    ]
