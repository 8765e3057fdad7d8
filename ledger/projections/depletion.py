"""How rows of accounts that are watched come about; part of the projection of money."""

from __future__ import annotations

from typing import get_args

from ledger.domain.depletion_events import (
    AccountDepletes,
    AccountLasts,
    AccountRefilled,
    AccountRunsOut,
    WatchEvent,
)
from ledger.domain.ids import AccountId
from ledger.following import names_of
from ledger.models import AccountRow, AccountWatchRow
from ledger.rows import Rows

TABLES = (AccountWatchRow,)
ON = names_of(*get_args(WatchEvent))


def begin_anew(account_id: AccountId, rows: Rows) -> None:
    """Note what is there from here on: money came in, or the limit was set."""
    account = rows.get(AccountRow, account_id)
    if rows.find(AccountWatchRow, account_id) is None:
        rows.make(AccountWatchRow, account_id=account_id, there_nanos=0)
    rows.change(
        AccountWatchRow,
        account_id,
        tenant_id=account.tenant_id,
        there_nanos=account.available_nanos + (account.overdraft_nanos or 0),
    )


def project_watch(event: WatchEvent, rows: Rows) -> None:
    """Note what the people of an account were told."""
    if rows.find(AccountWatchRow, event.account_id) is None:
        begin_anew(event.account_id, rows)
    match event:
        case AccountRunsOut():
            rows.change(AccountWatchRow, event.account_id, level=event.level, told_at=event.at)
        case AccountRefilled():
            rows.change(AccountWatchRow, event.account_id, level=0, told_at=None)
        case AccountDepletes():
            rows.change(AccountWatchRow, event.account_id, depletes=True)
        case AccountLasts():
            rows.change(AccountWatchRow, event.account_id, depletes=False)
