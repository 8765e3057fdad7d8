"""Pause running work whose money is gone, or let it go on where that came back."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.ids import BidId, LeaseId
from ledger.eventstore.port import EventStore, Meta, Position, load
from marketplace.commands.leases import decide_on
from marketplace.domain.bids.bid import Bid
from marketplace.domain.leases import unfunded


def pause_without_money(
    store: EventStore, *, lease_id: LeaseId, bid_id: BidId, by: Meta, now: datetime
) -> Position:
    """Tell work that its money is gone, or ask it to stop once its notice is over.

    Raises: LeaseUnknown.
    """
    bid = load(store, Bid, bid_id)
    assert bid is not None, "a lease comes from a bid"
    return decide_on(
        store, lease_id, lambda lease: unfunded.pause_without_money(lease, bid, now=now), by
    )


def go_on_as_before(store: EventStore, *, lease_id: LeaseId, by: Meta, now: datetime) -> Position:
    """Let work go on whose money came back before it was paused. Raises: LeaseUnknown."""
    return decide_on(store, lease_id, lambda lease: unfunded.go_on_as_before(lease, now=now), by)
