"""Payments from outside: each is credited once, by the reference that people know it by.

A request may be sent twice, with one key, two keys or none; a payment was made once. So the
reference names the entry, not the request.
"""

from __future__ import annotations

from datetime import datetime
from unicodedata import normalize
from uuid import uuid5

from ledger.domain.accounts import Account
from ledger.domain.events import FundsAdded
from ledger.domain.ids import AccountId, EntryId
from ledger.domain.money import Money
from ledger.domain.refusal import Invalid, Refusal


class PaymentUnnamed(Invalid):
    """A payment needs a reference, such as the number of an invoice or of a transfer."""


class PaymentRecorded(Refusal):
    """A payment with this reference was credited to the account before, at `recorded_at`.

    If it is another payment, give it a reference of its own, such as the month beside the name.
    If it is the same, nothing is left to do: `amount` is on the account.
    """


def payment_entry(account_id: AccountId, reference: str) -> EntryId:
    """Return the entry of a payment to an account."""
    return EntryId(uuid5(account_id, f"payment:{_name(reference)}"))


def credit(
    account: Account, *, money: Money, reference: str, cash: AccountId, now: datetime
) -> list[FundsAdded]:
    """Decide what a payment does: it is credited, once for its reference on this account.

    Raises: PaymentUnnamed, PaymentRecorded, and what `Account.add_funds` raises.
    """
    name = _name(reference)
    if not name:
        raise PaymentUnnamed()
    # Also those of before payments named their entries.
    for entry in account.entries.values():
        if isinstance(entry, FundsAdded) and _name(entry.reference) == name:
            raise PaymentRecorded(
                entry_id=entry.entry_id,
                reference=entry.reference,
                amount=entry.money,
                recorded_at=entry.at,
            )
    entry_id = payment_entry(account.opened.account_id, reference)
    return account.add_funds(
        entry_id=entry_id, money=money, reference=reference, cash=cash, now=now
    )


def _name(reference: str) -> str:
    """Return a reference without what people write differently: case, blanks, forms of letters."""
    return " ".join(normalize("NFKC", reference).casefold().split())
