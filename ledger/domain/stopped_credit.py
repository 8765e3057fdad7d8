"""An account whose invoice is overdue for long takes no new bids until that is settled."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.accounts import Account
from ledger.domain.receivable_events import CreditEvent, CreditResumed, CreditStopped
from ledger.domain.receivables import Bill, Receivable


def stop_credit(
    account: Account, state: Receivable | None, bill: Bill, *, now: datetime
) -> list[CreditEvent]:
    """Decide that an invoice keeps new bids from its account: overdue for long, and not paid."""
    overdue = None if state is None else state.overdue
    number = bill.issued.number
    if state is None or overdue is None or now < overdue.blocks_at:
        return []
    if number in account.stopped or state.left(bill).nanos == 0:
        return []
    own = account.opened.account_id
    invoice_id = bill.issued.invoice_id
    return [CreditStopped(account_id=own, invoice_id=invoice_id, number=number, at=now)]


def resume_credit(
    account: Account, state: Receivable | None, bill: Bill, *, now: datetime
) -> list[CreditEvent]:
    """Decide that an invoice that is settled stands in the way no longer."""
    number = bill.issued.number
    if number not in account.stopped or (state or Receivable()).left(bill).nanos:
        return []
    own = account.opened.account_id
    invoice_id = bill.issued.invoice_id
    return [CreditResumed(account_id=own, invoice_id=invoice_id, number=number, at=now)]
