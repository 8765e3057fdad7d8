"""From a journal entry to its events: its own, what caused it, and the lease and bid behind it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from ledger.domain.accounts import Account
from ledger.domain.disputes import Dispute
from ledger.domain.invoices import Invoices
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.payees import Payee
from ledger.eventstore.port import EventStore, Position, Recorded, stream_name
from ledger.models import JournalEntryRow
from marketplace.domain.bids.bid import Bid
from marketplace.domain.leases.lease import Lease
from metering.domain.meters import Meter

CAUSES_MAX = 12
"""How far causes are followed: what goes on for longer is a mistake of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One event on the way. words: what happened. fields: as JSON. is_entry: the entry itself."""

    recorded: Recorded
    words: str
    fields: str
    is_entry: bool


def way_to(store: EventStore, row: JournalEntryRow, *, bid_id: UUID | None) -> list[Step]:
    """Return the events that led to an entry, in the order in which they were recorded.

    bid_id: of the lease that it is for. What was recorded without a cause has the first event of
    its lease and of its bid beside it, for these began what the entry is part of.
    """
    own = _at(store, row.position)
    if own is None:
        return []
    found = {own.id: own}
    streams = list(_streams(row, bid_id))
    dispute_id = getattr(own.event, "dispute_id", None)
    if dispute_id is not None:
        streams.append(stream_name(Dispute, dispute_id))
    begun = store.read_streams([(stream, 0) for stream in _begins(row, bid_id)], first=1)
    for events in begun.values():
        for each in events:
            found[each.id] = each
            market = getattr(each.event, "market", None)
            if market and f"market-{market}" not in streams:
                streams.append(f"market-{market}")
    for each in list(found.values()):
        for cause in _causes(store, each, streams):
            found[cause.id] = cause
    ordered = sorted(found.values(), key=lambda each: each.position)
    return [_step(each, is_entry=each.id == own.id) for each in ordered]


def _at(store: EventStore, position: int) -> Recorded | None:
    for recorded in store.read_all(after=Position(position - 1), limit=1).events:
        if recorded.position == position:
            return recorded
    return None


def _causes(store: EventStore, recorded: Recorded, streams: Sequence[str]) -> Iterator[Recorded]:
    """Yield what led to an event, as far as it is in one of these streams."""
    for _ in range(CAUSES_MAX):
        cause_id = recorded.meta.causation_id
        if cause_id is None:
            return
        found = None
        for stream in streams:
            found = store.find_event(stream, cause_id)
            if found is not None:
                break
        if found is None:
            return
        yield found
        recorded = found


def _streams(row: JournalEntryRow, bid_id: UUID | None) -> Iterator[str]:
    if row.lease_id is not None:
        yield stream_name(Meter, row.lease_id)
        yield stream_name(Lease, row.lease_id)
    if bid_id is not None:
        yield stream_name(Bid, bid_id)
    yield stream_name(Account, row.account_id)
    yield stream_name(Payee, row.account_id)
    yield stream_name(Invoices, PLATFORM_ID)


def _begins(row: JournalEntryRow, bid_id: UUID | None) -> Iterator[str]:
    if row.lease_id is not None:
        yield stream_name(Lease, row.lease_id)
    if bid_id is not None:
        yield stream_name(Bid, bid_id)


def _step(recorded: Recorded, *, is_entry: bool) -> Step:
    told = inspect.cleandoc(type(recorded.event).__doc__ or "").partition("\n")[0].replace("`", "")
    fields = json.dumps(json.loads(recorded.data), indent=1, ensure_ascii=False, sort_keys=True)
    return Step(recorded=recorded, words=told, fields=fields, is_entry=is_entry)
