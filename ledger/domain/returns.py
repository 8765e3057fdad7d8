"""Money that goes back: refunds, what a payer's bank takes back, and what undoes either.

Each is an entry that names the one it corrects, and each is made once.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TypeVar
from uuid import uuid5

from ledger.domain import journal
from ledger.domain.accounts import (
    Account,
    AmountNotPositive,
    CurrencyMismatch,
    EntryRecordedOtherwise,
)
from ledger.domain.event import Event
from ledger.domain.events import HoldReleased, HoldResized, Posting
from ledger.domain.ids import AccountId, EntryId, HoldId, RefundId
from ledger.domain.money import Money
from ledger.domain.refusal import Refusal, Unknown
from ledger.domain.return_events import (
    EntryReversed,
    FundsDisputed,
    FundsReturned,
    ProcessingFeePaid,
)

EntryT = TypeVar("EntryT", FundsReturned, FundsDisputed, EntryReversed, ProcessingFeePaid)


class EntryUnknown(Unknown):
    """This account has no such journal entry."""


class NotUnused(Refusal):
    """So much of the wallet is not unused: only what is available goes back.

    What is set aside in holds is spoken for, credit is not the wallet's own, and what came as
    compensation or for a missed promise is for use.
    """


class WalletShort(Refusal):
    """A payer's bank took back more than the wallet had, so nothing goes back from it.

    Decline the refund, or wait until what is missing was paid in.
    """


def refund_hold(refund_id: RefundId) -> HoldId:
    """Return the hold that keeps a refund's money until it went back."""
    return HoldId(uuid5(refund_id, "hold"))


def refund_entry(refund_id: RefundId, number: int) -> EntryId:
    """Return the entry of one part of a refund."""
    return EntryId(uuid5(refund_id, f"part:{number}"))


def intent_entry(account_id: AccountId, intent: str) -> EntryId:
    """Return the entry of a payment that a payment service took: one for each, for ever."""
    return EntryId(uuid5(account_id, f"intent:{intent}"))


def dispute_entry(account_id: AccountId, dispute: str) -> EntryId:
    """Return the entry of what a bank took back."""
    return EntryId(uuid5(account_id, f"dispute:{dispute}"))


def reversal_of(entry_id: EntryId) -> EntryId:
    """Return the entry that undoes another one."""
    return EntryId(uuid5(entry_id, "reversal"))


def need_unused(account: Account, money: Money) -> None:
    """Refuse to give back more than is available, credit and what is for use only left aside.

    Raises: NotUnused.
    """
    unused = Money(account.available.nanos - account.for_use_nanos, money.currency)
    if money.nanos > unused.nanos:
        raise NotUnused(asked=money, available=unused)


def need_covered(account: Account) -> None:
    """Refuse to let money go back from an account that is below what it may be.

    What is set aside for a refund may not be there any more, once a bank took a payment back.
    Raises: WalletShort.
    """
    overdraft = account.overdraft_nanos
    if overdraft is not None and account.available.nanos + overdraft < 0:
        raise WalletShort(available=account.available)


def return_funds(
    account: Account,
    *,
    refund_id: RefundId,
    number: int,
    corrects: EntryId,
    money: Money,
    reference: str,
    left: Money,
    cash: AccountId,
    now: datetime,
) -> list[Event]:
    """Decide what happens when a part of a refund went out: it leaves the account and its hold.

    left: what of the refund is still to go out.
    """
    entry = FundsReturned(
        account_id=account.opened.account_id,
        entry_id=refund_entry(refund_id, number),
        corrects=corrects,
        money=_payable(account, money),
        reference=reference,
        postings=journal.transfer(source=account.opened.account_id, target=cash, money=money),
        at=now,
    )
    return [*_once(account, entry), *let_go(account, refund_id=refund_id, left=left, now=now)]


def let_go(account: Account, *, refund_id: RefundId, left: Money, now: datetime) -> list[Event]:
    """Decide that a refund's hold sets aside what is still to go out, and no more than it does."""
    hold = account.holds[refund_hold(refund_id)]
    if hold.released or hold.remaining <= left:
        return []
    own = account.opened.account_id
    if left.nanos > 0:
        return [HoldResized(account_id=own, hold_id=hold.hold_id, money=left, at=now)]
    return [HoldReleased(account_id=own, hold_id=hold.hold_id, money=hold.remaining, at=now)]


def take_back(
    account: Account,
    *,
    dispute: str,
    corrects: EntryId,
    money: Money,
    cash: AccountId,
    now: datetime,
) -> list[FundsDisputed]:
    """Decide what a chargeback does: the amount leaves the account, whatever is available.

    Raises: AmountNotPositive, CurrencyMismatch.
    """
    own = account.opened.account_id
    entry = FundsDisputed(
        account_id=own,
        entry_id=dispute_entry(own, dispute),
        corrects=corrects,
        money=_payable(account, money),
        reference=dispute,
        postings=journal.transfer(source=own, target=cash, money=money),
        at=now,
    )
    return _once(account, entry)


def reverse(
    account: Account, entry_id: EntryId, *, reference: str, now: datetime
) -> list[EntryReversed]:
    """Decide what undoes an entry: the same the other way, once.

    Raises: EntryUnknown, where there is none of this id that can be undone.
    """
    before = account.entries.get(entry_id)
    if not isinstance(before, FundsReturned | FundsDisputed):
        raise EntryUnknown(entry_id=entry_id)
    entry = EntryReversed(
        account_id=account.opened.account_id,
        entry_id=reversal_of(entry_id),
        corrects=entry_id,
        money=before.money,
        reference=reference,
        postings=tuple(Posting(line.account_id, -line.nanos) for line in before.postings),
        at=now,
    )
    return _once(account, entry)


def pay_fee(
    account: Account, *, money: Money, reference: str, cash: AccountId, now: datetime
) -> list[ProcessingFeePaid]:
    """Decide what a fee does: it is counted once for its reference."""
    own = account.opened.account_id
    entry = ProcessingFeePaid(
        account_id=own,
        entry_id=EntryId(uuid5(own, f"fee:{reference}")),
        money=money,
        reference=reference,
        postings=journal.transfer(source=own, target=cash, money=money),
        at=now,
    )
    return _once(account, entry)


def _payable(account: Account, money: Money) -> Money:
    if money.currency != account.opened.currency:
        raise CurrencyMismatch(currency=account.opened.currency)
    if money.nanos <= 0:
        raise AmountNotPositive()
    return money


def _once(account: Account, entry: EntryT) -> list[EntryT]:
    before = account.entries.get(entry.entry_id)
    if before is None:
        return [entry]
    if replace(before, at=entry.at) != entry:
        raise EntryRecordedOtherwise(entry_id=entry.entry_id)
    return []
