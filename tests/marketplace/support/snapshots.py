"""A book kept as a snapshot and taken up again."""

from __future__ import annotations

from ledger.eventstore.port import START
from marketplace.domain.book.book import Book
from marketplace.domain.book.snapshot import restored, state_of
from marketplace.snapshots.codec import decode, encode
from marketplace.snapshots.port import Snapshot, Tail


def kept(book: Book) -> Book:
    """Return a book that was written down and read back."""
    snapshot = Snapshot(state_of(book), Tail(), START, 0, None)
    return restored(decode(encode(snapshot)).state)
