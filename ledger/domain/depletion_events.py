"""What the people of an account were told of its running out: stream account-watch-<account id>."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from ledger.domain.event import Event
from ledger.domain.ids import AccountId, TenantId
from ledger.domain.money import Money

Level = Literal[80, 95, 100]


class AccountRunsOut(Event, name="ledger.account-runs-out"):
    """So many percent of what was there when money last came in are charged or set aside.

    left: what can still be set aside. lasts_until: by what it is asked for; None: it lasts.
    """

    account_id: AccountId
    tenant_id: TenantId
    title: str
    level: Level
    left: Money
    there: Money
    lasts_until: datetime | None
    at: datetime


class AccountRefilled(Event, name="ledger.account-refilled"):
    """Less than the first level is used again: each is told anew."""

    account_id: AccountId
    at: datetime


class AccountDepletes(Event, name="ledger.account-depletes"):
    """What runs on the account will have nothing left from `lasts_until` on, within a day."""

    account_id: AccountId
    tenant_id: TenantId
    title: str
    left: Money
    lasts_until: datetime
    at: datetime


class AccountLasts(Event, name="ledger.account-lasts"):
    """The account lasts for longer than was told."""

    account_id: AccountId
    at: datetime


WatchEvent = AccountRunsOut | AccountRefilled | AccountDepletes | AccountLasts
