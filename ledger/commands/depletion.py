"""Tell of an account that runs out, once for each level."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.depletion import AccountWatch, Seen
from ledger.domain.depletion_events import WatchEvent
from ledger.eventstore.port import EventStore, Meta, Position, record


def look_at_account(store: EventStore, *, seen: Seen, by: Meta, now: datetime) -> Position:
    """Take note of how an account stands; told is only what was not told before."""

    def decide(watch: AccountWatch | None) -> list[WatchEvent]:
        return (watch or AccountWatch()).look(seen, now=now)

    return record(store, AccountWatch, seen.account_id, decide, by=by)
