"""Which entries an invoice is made of, and what their lines are called."""

from __future__ import annotations

from typing import assert_never, get_args

from ledger.domain.invoice_events import LineCategory
from ledger.domain.journal import EntryKind

TITLES: dict[LineCategory, str] = {
    "use": "GPU time",
    "storage": "Storage of volumes",
    "compensation": "Compensation for reclaimed leases",
    "credit": "Credits",
    "adjustment": "Adjustments",
    "fee": "Fee of the platform",
}


def category_of(kind: EntryKind) -> LineCategory | None:
    """Return what an entry is on an invoice of the account that pays; None: it is on none.

    Payments are none, since they settle invoices, nor is what invoices themselves add.
    """
    match kind:
        case "usage":
            return "use"
        case "storage":
            return "storage"
        case "compensation":
            return "compensation"
        case "sla-credit" | "use-credit":
            return "credit"
        case "funds" | "cost" | "rounding" | "tax" | "credit" | "write-off":
            return None
        case "refund" | "dispute" | "reversal" | "processing":
            return None
        case "payout" | "payout-paid" | "payout-back" | "owner-tax":
            return None
        case _:
            assert_never(kind)


BILLED: tuple[EntryKind, ...] = tuple(
    kind for kind in get_args(EntryKind) if category_of(kind) is not None
)
"""The kinds of entries that are on an invoice of the account that pays."""
