"""Notices of Stripe about owners' accounts and transfers; what happened is asked of Stripe itself.

They join the inbox of payments: each is kept by its id, in any order, and looked into by its loop.
"""

from __future__ import annotations

from datetime import datetime

from ledger.connect.comparing import KINDS, compare_transfer
from ledger.connect.settling import settle_account, settle_all_of, settle_bank_payout
from ledger.eventstore.port import EventStore, Meta
from ledger.funding import inbox, reconciling
from ledger.funding.inbox import Handler
from ledger.models import PaymentNotice
from ledger.payments.port import Payments

BY = Meta(actor="loop:payment-notices")


def listen() -> None:
    """Let notices about owners be looked into, and lines of transfers be compared."""
    inbox.install(HANDLERS)
    reconciling.install(dict.fromkeys(KINDS, compare_transfer))


def _account(store: EventStore, payments: Payments, row: PaymentNotice, now: datetime) -> None:
    name = row.account or row.about
    settle_account(store, payments.connected(name), by=BY, now=now)


def _transfer(store: EventStore, payments: Payments, row: PaymentNotice, now: datetime) -> None:
    settle_all_of(store, payments, row.about, by=BY, now=now)


def _payout(store: EventStore, payments: Payments, row: PaymentNotice, now: datetime) -> None:
    """Look into a payout of an owner's account to its bank. Our own are of no concern here."""
    if row.account:
        account = payments.connected(row.account)
        said = payments.bank_payout(row.account, row.about)
        settle_bank_payout(store, account, said, by=BY, now=now)


HANDLERS: dict[str, Handler] = {
    "account.": _account,
    "transfer.": _transfer,
    "payout.": _payout,
}
