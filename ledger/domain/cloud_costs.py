"""What clouds cost the platform: each cost is counted once, by the cloud's reference for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from ledger.domain import journal
from ledger.domain.accounts import (
    Account,
    AmountNotPositive,
    CurrencyMismatch,
    EntryRecordedOtherwise,
)
from ledger.domain.events import CostRecorded
from ledger.domain.holds import TEXT_LENGTH_MAX, need_text
from ledger.domain.ids import AccountId
from ledger.domain.money import NANOS_MAX, AmountTooLarge, Money


def record_cost(
    account: Account, *, money: Money, reference: str, cash: AccountId, now: datetime
) -> list[CostRecorded]:
    """Decide what a cloud's charge does: it is counted once per `reference`.

    money: below zero where the cloud charged less than was counted before.
    Raises: CurrencyMismatch, AmountNotPositive, AmountTooLarge, TextUnreadable,
        EntryRecordedOtherwise.
    """
    if money.currency != account.opened.currency:
        raise CurrencyMismatch(currency=account.opened.currency)
    if money.nanos == 0:
        raise AmountNotPositive()
    if abs(money.nanos) > NANOS_MAX:
        raise AmountTooLarge(most=Money(NANOS_MAX, account.opened.currency))
    need_text(reference, length_max=TEXT_LENGTH_MAX)
    own = account.opened.account_id
    entry = CostRecorded(
        account_id=own,
        entry_id=journal.cost_entry(own, reference),
        money=money,
        reference=reference,
        postings=journal.transfer(source=own, target=cash, money=money),
        at=now,
    )
    before = account.entries.get(entry.entry_id)
    if before is None:
        return [entry]
    if not isinstance(before, CostRecorded) or replace(before, at=entry.at) != entry:
        raise EntryRecordedOtherwise(entry_id=entry.entry_id)
    return []
