"""Payments from outside: each is credited once, by the reference that people know it by.

A request may be sent twice, with one key, two keys or none; a payment was made once. So the
reference names the entry, not the request.
"""

from __future__ import annotations

from datetime import datetime

from ledger.domain.accounts import Account
from ledger.domain.events import FundsAdded
from ledger.domain.ids import AccountId, EntryId
from ledger.domain.journal import payment_entry, reference_name
from ledger.domain.money import Money
from ledger.domain.refusal import Invalid, Refusal


class PaymentUnnamed(Invalid):
    """A payment needs a reference, such as the number of an invoice or of a transfer."""


class PaymentRecorded(Refusal):
    """A payment with this reference was credited to the account before, at `recorded_at`.

    If it is another payment, give it a reference of its own, such as the month beside the name.
    If it is the same, nothing is left to do: `amount` is on the account.
    """


def credit(
    account: Account, *, money: Money, reference: str, cash: AccountId, now: datetime
) -> list[FundsAdded]:
    """Decide what a payment does: it is credited, once for its reference on this account.

    Raises: PaymentUnnamed, PaymentRecorded, and what `Account.add_funds` raises.
    """
    name = reference_name(reference)
    if not name:
        raise PaymentUnnamed()
    entry_id = payment_entry(account.opened.account_id, reference)
    before = _credited(account, entry_id, name)
    if before is not None:
        raise PaymentRecorded(
            entry_id=before.entry_id,
            reference=before.reference,
            amount=before.money,
            recorded_at=before.at,
        )
    return account.add_funds(
        entry_id=entry_id, money=money, reference=reference, cash=cash, now=now
    )


def _credited(account: Account, entry_id: EntryId, name: str) -> FundsAdded | None:
    """Return the first entry that added funds for a reference."""
    # Also one that was not named by its reference, such as those of before payments were.
    ids = [entry_id, account.credited.get(name)]
    found = [account.entries.get(each) for each in ids if each is not None]
    added = [each for each in found if isinstance(each, FundsAdded)]
    return min(added, key=lambda each: each.at, default=None)
