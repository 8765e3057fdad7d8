"""What is asked of a store together, done one by one where its server has nothing better."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from ledger.eventstore.port import Appended, EventStore, Recorded, Write


def one_by_one(store: EventStore, writes: Sequence[Write]) -> list[Appended]:
    """Append each, in order: what `append_each` does where the server has nothing better."""
    return [
        store.append(write.stream, write.events, expected=write.expected, by=write.by)
        for write in writes
    ]


def read_one_by_one(
    store: EventStore, asked: Sequence[tuple[str, int]], first: int | None
) -> dict[str, list[Recorded]]:
    """Read each: what `read_streams` does where the server has nothing better."""
    return {
        stream: list(islice(store.read_stream(stream, after_version=version), first))
        for stream, version in asked
    }
