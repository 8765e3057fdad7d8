"""What a book holds, to compare two of them."""

from __future__ import annotations

from typing import Any

from marketplace.domain.book.book import Book

NEVER = 10**10


def contents(book: Book) -> dict[str, Any]:
    """Return what a book knows, comparably."""
    return {
        "offers": sorted(
            (*each.rank, each.paused, repr(each.terms)) for each in book.offers.values()
        ),
        "bids": sorted((each.price_time, each.deadline) for each in book.bids.values()),
        "held": {
            key: (held.ends, held.reclaimed_by, held.claim) for key, held in book.held.items()
        },
        "claims": book.leases.claims,
        "granted": sorted((each.price_time, each.deadline) for each in book.granted_bids.values()),
        "taken": {uuid: book.calendar.of(uuid) for uuid in book.calendar.gpus()},
        "told": book.told,
    }
