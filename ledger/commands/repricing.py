"""Set aside what a lease costs at another price, from when on both sides agreed to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ledger.domain.accounts import Account, AccountUnknown
from ledger.domain.event import Event
from ledger.domain.ids import AccountId, HoldId
from ledger.domain.money import Money, Rate
from ledger.domain.repricing import reprice_hold
from ledger.eventstore.port import Meta
from ledger.eventstore.together import Part


def repricing_hold(
    *,
    account_id: AccountId,
    hold_id: HoldId,
    before: Rate,
    price: Rate,
    since: datetime,
    money: Money,
    by: Meta,
    now: datetime,
) -> Part:
    """Return the part by which a hold sets `money` aside in all, with another price from `since`.

    It raises: AccountUnknown, FundsInsufficient (growth only), and what `reprice_hold` raises.
    """

    def decide(account: Account | None) -> Sequence[Event]:
        if account is None:
            raise AccountUnknown(account_id=account_id)
        resized = account.resize_hold(hold_id=hold_id, money=money, now=now)
        repriced = reprice_hold(
            account, hold_id=hold_id, before=before, price=price, since=since, now=now
        )
        return [*resized, *repriced]

    asked = f"reprice:{hold_id}:{price}:{since.isoformat()}:{money}"
    return Part(Account, account_id, decide, by.step(asked))
