"""What a payer's bank takes back of invoices that were paid."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from ledger.commands.receivables import bill_of
from ledger.domain import payments_taken_back as rules
from ledger.domain import returns
from ledger.domain.account_ids import cash_account
from ledger.domain.accounts import Account, AccountUnknown
from ledger.domain.event import Event
from ledger.domain.money import Money
from ledger.domain.receivables import Receivable
from ledger.eventstore.port import EventStore, Meta, Position
from ledger.eventstore.together import Part, record_together


def note_payment_taken_back(
    store: EventStore,
    invoice_id: UUID,
    *,
    dispute: str,
    intent: str,
    money: Money,
    reason: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Post what a bank took back of an invoice's payment, once: it is owed again.

    Raises: InvoiceUnknown, PaymentNotKnown, AmountNotPositive, CurrencyMismatch.
    """
    bill = bill_of(store, invoice_id)
    account_id, issued = bill.issued.account_id, bill.issued
    cash = cash_account(issued.issuer_id, issued.currency)

    def decide(known: Receivable | None) -> Sequence[Event]:
        return rules.take_payment_back(
            known, bill, dispute=dispute, reference=intent, money=money, reason=reason, now=now
        )

    def post(account: Account | None) -> Sequence[Event]:
        if account is None:
            raise AccountUnknown(account_id=account_id)
        return returns.take_back(
            account,
            dispute=dispute,
            corrects=returns.intent_entry(account_id, intent),
            money=money,
            cash=cash,
            now=now,
        )

    parts = [Part(Receivable, invoice_id, decide, by), Part(Account, account_id, post, by)]
    return record_together(store, parts, whole=True)[0]


def note_payment_decided(
    store: EventStore, invoice_id: UUID, *, dispute: str, won: bool, by: Meta, now: datetime
) -> Position:
    """Note what the bank decided, the first time; where it is for us, what it took is posted back.

    Raises: InvoiceUnknown, PaymentNotKnown.
    """
    bill = bill_of(store, invoice_id)
    account_id = bill.issued.account_id
    is_won = won

    def decide(known: Receivable | None) -> Sequence[Event]:
        nonlocal is_won
        made = rules.decide_taken_back(known, bill, dispute=dispute, won=won, now=now)
        if not made and known is not None:
            is_won = bool(known.taken_back[dispute].won)  # as it was heard first
        return made

    def undo(account: Account | None) -> Sequence[Event]:
        if account is None:
            raise AccountUnknown(account_id=account_id)
        if not is_won:
            return []
        entry_id = returns.dispute_entry(account_id, dispute)
        return returns.reverse(account, entry_id, reference=dispute, now=now)

    parts = [Part(Receivable, invoice_id, decide, by), Part(Account, account_id, undo, by)]
    return record_together(store, parts, whole=True)[0]
