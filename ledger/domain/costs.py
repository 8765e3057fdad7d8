"""Which entries are a cost to the account that pays, so that sums of costs agree everywhere."""

from __future__ import annotations

from typing import Final, get_args

from ledger.domain.billed import category_of
from ledger.domain.journal import EntryKind

ADDED_BY_DOCUMENTS: Final[tuple[EntryKind, ...]] = ("rounding", "tax", "credit")
"""What invoices and credit notes themselves move: a cost, though no invoice has it as a line."""

COST_KINDS: Final[tuple[EntryKind, ...]] = tuple(
    kind
    for kind in get_args(EntryKind)
    if category_of(kind) is not None or kind in ADDED_BY_DOCUMENTS
)
"""All but payments, and what moves between accounts that do not pay."""
