"""What is recorded of volumes: their terms, their versions by hash, who writes, how they end."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import AccountId, BidId, HostId, LeaseId, SubscriberId, TenantId, UserId

Because = Literal["consumer", "time", "unpaid"]
"""Why a volume ended: it was removed; its time was over; its price could not be paid."""


class VolumeCreated(Event, name="marketplace.volume-created"):
    """An organisation keeps a volume until `expires_at`.

    quota_bytes: what the files of one version may have. nanos_per_gib_month: its price, in
    nano-units of `currency`, for what is in its newest version; `account_id` pays.
    """

    volume_id: UUID
    tenant_id: TenantId
    subscriber_id: SubscriberId
    account_id: AccountId
    cost_centre: str
    volume: str
    quota_bytes: int
    nanos_per_gib_month: int
    currency: str
    expires_at: datetime
    user_id: UserId | None
    at: datetime


class VolumeResized(Event, name="marketplace.volume-resized"):
    """The files of a volume's next version may have so many bytes."""

    volume_id: UUID
    tenant_id: TenantId
    quota_bytes: int
    at: datetime


class VolumeExtended(Event, name="marketplace.volume-extended"):
    """A volume is kept for longer, from now on at this price."""

    volume_id: UUID
    tenant_id: TenantId
    expires_at: datetime
    nanos_per_gib_month: int
    at: datetime


class VolumeVersionKept(Event, name="marketplace.volume-version-kept"):
    """A volume has a next version, whose blobs are all there.

    lease_id, host_id: whose work left it; None: somebody brought it.
    """

    volume_id: UUID
    tenant_id: TenantId
    version: int
    manifest: str
    files: int
    size_bytes: int
    user_id: UserId | None
    lease_id: LeaseId | None
    host_id: HostId | None
    at: datetime


class VolumeClaimed(Event, name="marketplace.volume-claimed"):
    """The work of one bid writes to the volume, and nobody else does.

    after: the bid that it continues, whose last version may still come; None: none may.
    """

    volume_id: UUID
    tenant_id: TenantId
    bid_id: BidId
    after: BidId | None
    at: datetime


class VolumeReleased(Event, name="marketplace.volume-released"):
    """The work of a bid writes to the volume no more: its last version is there, or never comes."""

    volume_id: UUID
    tenant_id: TenantId
    bid_id: BidId
    at: datetime


class VolumeExpiryNoticed(Event, name="marketplace.volume-expiry-noticed"):
    """Its organisation was told that the volume expires at `expires_at`, and not before."""

    volume_id: UUID
    tenant_id: TenantId
    expires_at: datetime
    at: datetime


class VolumeUnpaid(Event, name="marketplace.volume-unpaid"):
    """The account could not pay for the volume. Unless it does, it is read-only at one moment and
    expires at another.
    """

    volume_id: UUID
    tenant_id: TenantId
    read_only_at: datetime
    expires_at: datetime
    at: datetime


class VolumePaid(Event, name="marketplace.volume-paid"):
    """What was owed for the volume is paid; it is as it was before."""

    volume_id: UUID
    tenant_id: TenantId
    at: datetime


class VolumeExpired(Event, name="marketplace.volume-expired"):
    """No new work has the volume. Its files go at `removed_at`, if nobody extends it."""

    volume_id: UUID
    tenant_id: TenantId
    because: Because
    removed_at: datetime
    at: datetime


class VolumeRemoved(Event, name="marketplace.volume-removed"):
    """A volume is kept no more; blobs that nothing else has go with it."""

    volume_id: UUID
    tenant_id: TenantId
    because: Because
    at: datetime


VolumeEvent = (
    VolumeCreated
    | VolumeResized
    | VolumeExtended
    | VolumeVersionKept
    | VolumeClaimed
    | VolumeReleased
    | VolumeExpiryNoticed
    | VolumeUnpaid
    | VolumePaid
    | VolumeExpired
    | VolumeRemoved
)
