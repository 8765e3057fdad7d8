"""What each kind of journal entry is to the account that pays: where exports get their words.

Use and storage have rows of their own, with all that bills say of them. Everything else happens
once and is told by its line on the payer's account alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

from ledger.domain.journal import EntryKind

Category = Literal["Usage", "Purchase", "Tax", "Credit", "Adjustment"]
"""ChargeCategory of FOCUS."""


@dataclass(frozen=True, slots=True)
class Once:
    """An entry that is one charge. words: `{reference}` and `{lease}` of it are filled in.

    is_payment: it moves what was paid in, so only who pays in before has it as a charge: it is
    billed, and costs nothing yet. Of anything else the cost is what the account lost.
    """

    category: Category
    words: str
    is_payment: bool = False
    corrects_use: bool = False
    """It gives back what use of an earlier time was charged; its reference is when that began."""
    names_document: bool = False
    """Its reference is the number of its invoice or credit note."""


def once(kind: EntryKind) -> Once | None:
    """Return what a kind of entry is to who pays; None: no charge, or one with rows of its own."""
    match kind:
        case "usage" | "storage" | "cost" | "processing":
            return None
        case "payout" | "payout-paid" | "payout-back" | "owner-tax":
            return None  # it moves what an owner earned; nobody pays for use by it
        case "funds":
            return Once("Purchase", "Funds paid in: {reference}", is_payment=True)
        case "compensation":
            return Once("Credit", "Compensation: lease {lease} was reclaimed by its owner")
        case "sla-credit":
            return Once("Credit", "Service below what was promised: lease {lease}, {reference}")
        case "use-credit":
            words = "Given back after a dispute: use of lease {lease} from {reference}"
            return Once("Credit", words, corrects_use=True)
        case "rounding":
            return Once(
                "Adjustment", "Rounding of invoice {reference} to whole cents", names_document=True
            )
        case "tax":
            return Once("Tax", "Tax on invoice {reference}", names_document=True)
        case "credit":
            return Once("Credit", "Credit note {reference}", names_document=True)
        case "write-off":
            return None  # what was billed stays as it was; it is only not paid
        case "refund":
            return Once("Credit", "Funds paid back: {reference}", is_payment=True)
        case "dispute":
            return Once("Adjustment", "Funds taken back by a bank: {reference}", is_payment=True)
        case "reversal":
            return Once("Adjustment", "Moved back: {reference}", is_payment=True)
        case _:
            assert_never(kind)
