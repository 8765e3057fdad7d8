"""One prepaid account, empty, and the platform that stands behind it."""

from __future__ import annotations

from uuid import UUID

from ledger.commands.money import open_account
from ledger.domain.ids import AccountId, TenantId
from ledger.eventstore.port import EventStore
from tests.conftest import NOON, SOMEBODY

ACCOUNT = AccountId(UUID(int=1))
PLATFORM = TenantId(UUID(int=2))


def open_wallet(store: EventStore) -> None:
    """Open the account, which must cover every hold."""
    open_account(
        store,
        account_id=ACCOUNT,
        tenant_id=PLATFORM,
        subscriber_id=None,
        kind="prepaid",
        title="Wallet",
        currency="USD",
        overdraft_nanos=0,
        by=SOMEBODY,
        now=NOON,
    )
