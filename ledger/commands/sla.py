"""Credit a consumer for a lease that missed what its offer promised."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ledger.domain.accounts import Account, AccountUnknown
from ledger.domain.events import SlaCredited
from ledger.domain.ids import AccountId
from ledger.domain.sla_credits import SlaMiss, credit_sla
from ledger.eventstore.port import EventStore, Meta, Position, record


def credit_missed_sla(
    store: EventStore, *, account_id: AccountId, miss: SlaMiss, by: Meta, now: datetime
) -> Position:
    """Credit an account for one owner's miss, once. The owner's earnings may fall below zero by it.

    Raises: AccountUnknown, and what `credit_sla` raises.
    """

    def decide(account: Account | None) -> Sequence[SlaCredited]:
        if account is None:
            raise AccountUnknown(account_id=account_id)
        return credit_sla(account, miss, now=now)

    return record(store, Account, account_id, decide, by=by.step(f"sla:{miss}"))
