"""How a volume ends by the clock: a notice, then the expiry, then the end of its files.

It never ends without a notice that is NOTICE old, whenever anybody looked: where the market was
away, the expiry is later. For want of money the notice is the first unpaid charge.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from marketplace.domain.volumes.events import (
    Because,
    VolumeExpired,
    VolumeExpiryNoticed,
    VolumePaid,
    VolumeUnpaid,
)
from marketplace.domain.volumes.volume import Volume

NOTICE = timedelta(days=7)
"""So long before it expires its organisation is told, at least."""
GRACE = timedelta(days=14)
"""So long its files stay after it expired; until then it can be extended, and costs as before."""
UNPAID_READ_ONLY = timedelta(days=3)
UNPAID_EXPIRES = timedelta(days=14)

ClockEvent = VolumeExpiryNoticed | VolumeExpired


def tick(volume: Volume | None, *, now: datetime) -> list[ClockEvent]:
    """Return what time alone has brought about by `now`."""
    if volume is None or volume.removed_at is not None or volume.expired is not None:
        return []
    events: list[ClockEvent] = []
    noticed = volume.noticed
    if noticed is None and now >= volume.expires_at - NOTICE:
        noticed = VolumeExpiryNoticed(
            volume_id=volume.volume_id,
            tenant_id=volume.created.tenant_id,
            expires_at=max(volume.expires_at, now + NOTICE),
            at=now,
        )
        events.append(noticed)
    unpaid = volume.unpaid
    if noticed is not None and now >= noticed.expires_at:
        events.append(_expired(volume, "time", now))
    elif unpaid is not None and now >= unpaid.expires_at:
        events.append(_expired(volume, "unpaid", now))
    return events


def _expired(volume: Volume, because: Because, now: datetime) -> VolumeExpired:
    return VolumeExpired(
        volume_id=volume.volume_id,
        tenant_id=volume.created.tenant_id,
        because=because,
        removed_at=now + GRACE,
        at=now,
    )


def is_due_to_go(volume: Volume | None, *, now: datetime) -> bool:
    """Tell if the files of an expired volume have been kept as long as was said."""
    if volume is None or volume.removed_at is not None or volume.expired is None:
        return False
    return now >= volume.expired.removed_at


def unpaid(volume: Volume | None, *, now: datetime) -> list[VolumeUnpaid]:
    """Take note that its account could not pay; again changes nothing."""
    if volume is None or volume.removed_at is not None or volume.unpaid is not None:
        return []
    return [
        VolumeUnpaid(
            volume_id=volume.volume_id,
            tenant_id=volume.created.tenant_id,
            read_only_at=now + UNPAID_READ_ONLY,
            expires_at=now + UNPAID_EXPIRES,
            at=now,
        )
    ]


def paid(volume: Volume | None, *, now: datetime) -> list[VolumePaid]:
    """Take note that all that was owed is paid; again changes nothing."""
    if volume is None or volume.removed_at is not None or volume.unpaid is None:
        return []
    return [VolumePaid(volume_id=volume.volume_id, tenant_id=volume.created.tenant_id, at=now)]
