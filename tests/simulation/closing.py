"""What must hold of the money and the ends of leases in a whole log, by code of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ledger.domain.events import HoldPlaced, HoldReleased, UsageCaptured
from ledger.domain.ids import LeaseId
from ledger.domain.money import Rate
from ledger.eventstore.port import Recorded
from marketplace.domain.facts.close_reasons import REASONS
from marketplace.domain.facts.events import LeaseClosed, LeaseGranted
from metering.domain.events import UsageWindowClosed


def check_charges(log: Sequence[Recorded]) -> None:
    """Check that every entry sums to zero, and that every charge is price times use."""
    charged: Counter[LeaseId] = Counter()
    used: Counter[LeaseId] = Counter()
    prices: dict[LeaseId, Rate] = {}
    for recorded in log:
        event = recorded.event
        assert sum(posting.nanos for posting in getattr(event, "postings", ())) == 0
        if isinstance(event, UsageCaptured):
            charged[event.lease_id] += event.charged.nanos
            prices[event.lease_id] = event.price
        if isinstance(event, UsageWindowClosed):
            used[event.lease_id] += sum(gpu.granted_ms for gpu in event.gpus)
    assert charged
    for lease_id, nanos in charged.items():
        assert nanos == prices[lease_id].charge(used[lease_id]).nanos


def check_ends(log: Sequence[Recorded]) -> set[LeaseId]:
    """Check that every lease closed with a reason, its hold given back; return those closed."""
    closed = {e.lease_id: e for r in log if isinstance(e := r.event, LeaseClosed)}
    bids = {e.lease_id: e.bid_id for r in log if isinstance(e := r.event, LeaseGranted)}
    placed = {e.hold_id for r in log if isinstance(e := r.event, HoldPlaced)}
    released = {e.hold_id for r in log if isinstance(e := r.event, HoldReleased)}
    for lease_id, closing in closed.items():
        assert closing.reason in REASONS
        assert bids[lease_id] in placed & released
    return set(closed)
