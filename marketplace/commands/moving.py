"""Ask a market to hand a bid on to another."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.ids import BidId
from ledger.eventstore.port import EventStore, Meta, load, record
from marketplace.domain.bids.bid import Bid
from marketplace.domain.bids.routing import Look, ask_move
from marketplace.domain.facts.events import BidMoveAsked


def ask_for_move(
    store: EventStore,
    *,
    bid_id: BidId,
    market: str,
    to: Look,
    moves: int,
    by: Meta,
    now: datetime,
) -> bool:
    """Ask the engine of `market` to hand a bid on to where `to` is; tell if it was asked now.

    moves: how often it was handed on. It hands it on if the bid still waits there when it reads
    this; what it granted before stands.
    """

    def decide(bid: Bid | None) -> list[BidMoveAsked]:
        return [] if bid is None else ask_move(bid, market=market, to=to, moves=moves, now=now)

    before = load(store, Bid, bid_id)
    record(store, Bid, bid_id, decide, by=by)
    after = load(store, Bid, bid_id)
    return before is not None and after is not None and after.version > before.version
