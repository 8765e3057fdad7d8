"""What may be asked about what is kept in volumes: to charge it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ledger.domain.accounts import Account, AccountUnknown
from ledger.domain.events import StorageCharged
from ledger.domain.ids import AccountId, TenantId
from ledger.domain.storage_charges import Kept, charge_storage
from ledger.eventstore.port import EventStore, Meta, Position, record


def charge_volume(
    store: EventStore,
    *,
    account_id: AccountId,
    pieces: Sequence[Kept],
    platform_id: TenantId,
    by: Meta,
    now: datetime,
) -> Position:
    """Charge an account for what was kept in a volume, each moment once.

    pieces: of one volume, in the order of time.

    Raises: AccountUnknown, and what `charge_storage` raises.
    """

    def decide(account: Account | None) -> Sequence[StorageCharged]:
        if account is None:
            raise AccountUnknown(account_id=account_id)
        return charge_storage(account, pieces, platform_id=platform_id, now=now)

    return record(store, Account, account_id, decide, by=by)
