"""Payments of invoices that a payer's bank took back: owed again unless the bank decides for us."""

from __future__ import annotations

from datetime import datetime

from ledger.domain import returns
from ledger.domain.holds import TEXT_LENGTH_MAX
from ledger.domain.journal import reference_name
from ledger.domain.money import Money
from ledger.domain.receivable_events import InvoicePaymentDecided, InvoicePaymentTakenBack
from ledger.domain.receivables import Bill, Receivable
from ledger.domain.refunds import PaymentNotKnown


def take_payment_back(
    state: Receivable | None,
    bill: Bill,
    *,
    dispute: str,
    reference: str,
    money: Money,
    reason: str,
    now: datetime,
) -> list[InvoicePaymentTakenBack]:
    """Note that a bank took back a payment of an invoice, once for each dispute.

    Raises: PaymentNotKnown.
    """
    if state is None or reference_name(reference) not in state.paid:
        raise PaymentNotKnown(intent=reference[:60])
    if dispute in state.taken_back:
        return []
    issued = bill.issued
    return [
        InvoicePaymentTakenBack(
            invoice_id=issued.invoice_id,
            account_id=issued.account_id,
            number=issued.number,
            dispute=dispute,
            reference=reference,
            entry_id=returns.dispute_entry(issued.account_id, dispute),
            money=money,
            reason=reason[:TEXT_LENGTH_MAX],
            at=now,
        )
    ]


def decide_taken_back(
    state: Receivable | None, bill: Bill, *, dispute: str, won: bool, now: datetime
) -> list[InvoicePaymentDecided]:
    """Note what the bank decided, the first time that it is heard.

    Raises: PaymentNotKnown.
    """
    if state is None or dispute not in state.taken_back:
        raise PaymentNotKnown(dispute=dispute[:60])
    taken = state.taken_back[dispute]
    if taken.won is not None:
        return []
    issued = bill.issued
    return [
        InvoicePaymentDecided(
            invoice_id=issued.invoice_id,
            account_id=issued.account_id,
            number=issued.number,
            dispute=dispute,
            money=taken.money,
            won=won,
            at=now,
        )
    ]
