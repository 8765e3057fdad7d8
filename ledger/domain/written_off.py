"""What of an invoice may still be credited once some of it was written off.

What was written off was never paid: crediting it as well would give back money that nobody paid.
"""

from __future__ import annotations

from ledger.domain.invoice_events import CreditNoteIssued
from ledger.domain.money import Money
from ledger.domain.receivables import Bill, Receivable
from ledger.domain.refusal import Refusal


class WrittenOffBefore(Refusal):
    """Some of this invoice was written off, as `written_off` says: that is not credited as well.

    At most `left` of it may still be credited, tax included; name lines that come to no more.
    """


def need_not_written_off(receivable: Receivable | None, bill: Bill, note: CreditNoteIssued) -> None:
    """Refuse a credit note that gives back what was written off. bill: as it is before the note.

    Raises: WrittenOffBefore.
    """
    gone = 0 if receivable is None else receivable.written_off_nanos
    left = max(bill.owed_nanos - gone, 0)
    if gone and note.total_nanos > left:
        raise WrittenOffBefore(
            number=bill.issued.number,
            left=Money(left, bill.issued.currency),
            written_off=Money(gone, bill.issued.currency),
        )
