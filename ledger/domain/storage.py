"""What is kept in volumes, priced by the running total, so that no batching changes a sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid5

from ledger.domain.events import StorageCharged
from ledger.domain.ids import AccountId, EntryId

GIB = 2**30
MONTH_SECONDS = 730 * 3_600
"""A month of a price, as clouds count it."""
GIB_MONTH = GIB * MONTH_SECONDS
"""In byte-seconds."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What of a volume an account was charged. until: up to when.

    nano_byte_seconds: bytes × seconds × price of all of it; charged_nanos: what that came to.
    """

    until: datetime
    nano_byte_seconds: int
    charged_nanos: int


def owed_nanos(nano_byte_seconds: int) -> int:
    """Return what so much costs, rounded down to a whole nano-unit."""
    return nano_byte_seconds // GIB_MONTH


def stored_after(stored: Mapping[UUID, Stored], charged: StorageCharged) -> Mapping[UUID, Stored]:
    """Return what an account was charged by volume, after one more charge."""
    before = stored.get(charged.volume_id)
    priced = charged.byte_seconds * charged.nanos_per_gib_month + charged.carried
    after = Stored(
        until=charged.window.ends_at,
        nano_byte_seconds=priced + (before.nano_byte_seconds if before else 0),
        charged_nanos=charged.charged.nanos + (before.charged_nanos if before else 0),
    )
    return {**stored, charged.volume_id: after}


def storage_entry(account_id: AccountId, volume_id: UUID, starts_at: datetime) -> EntryId:
    """Return the id of the entry that charges a volume from a moment on: always the same."""
    return EntryId(uuid5(volume_id, f"storage:{account_id}:{starts_at.isoformat()}"))
