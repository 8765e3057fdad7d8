"""The price at which use is charged to a hold changes only where both sides of its lease agreed."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.accounts import Account, CurrencyMismatch
from ledger.domain.agreed_rates import HoldRepriced
from ledger.domain.holds import HoldClosed, HoldUnknown, UsageTermsChanged
from ledger.domain.ids import HoldId
from ledger.domain.money import Rate
from ledger.domain.refusal import Refusal


class UseChargedAlready(Refusal):
    """Use after that moment was charged already, at the price that held.

    A price changes from a moment to come on.
    """


def reprice_hold(
    account: Account, *, hold_id: HoldId, before: Rate, price: Rate, since: datetime, now: datetime
) -> list[HoldRepriced]:
    """Decide that use from `since` on is charged to a hold at another price; once.

    before: what it was charged at by then, as the lease knows it.

    Raises: HoldUnknown, HoldClosed, CurrencyMismatch, UsageTermsChanged, UseChargedAlready.
    """
    hold = account.holds.get(hold_id)
    if hold is None:
        raise HoldUnknown(hold_id=hold_id)
    if hold.repriced and (hold.repriced[-1].since, hold.repriced[-1].price) == (since, price):
        return []
    if hold.released:
        raise HoldClosed(hold_id=hold_id)
    currency = account.opened.currency
    if {before.currency, price.currency} != {currency}:
        raise CurrencyMismatch(currency=currency)
    later = hold.repriced and hold.repriced[-1].since >= since
    if later or hold.price_at(since) not in (None, before):
        raise UsageTermsChanged(hold_id=hold_id)
    if any(window.ends_at > since for window in hold.windows):
        raise UseChargedAlready(since=since)
    return [
        HoldRepriced(
            account_id=account.opened.account_id,
            hold_id=hold_id,
            before=before,
            price=price,
            since=since,
            at=now,
        )
    ]
