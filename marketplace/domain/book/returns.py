"""When the rests of paused work cannot wait longer. Made from the bids that wait."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from ledger.domain.ids import BidId
from marketplace.domain.orderbook.open_bid import OpenBid


class Returns:
    """The bids that wait for room to go on in, by when they are due."""

    def __init__(self) -> None:
        self._due: list[tuple[int, int, BidId]] = []

    def note(self, bid: OpenBid) -> None:
        """Take note of a bid that waits, if it is the rest of paused work."""
        if bid.waits_for_room:
            heappush(self._due, (bid.due_at, bid.bid_id.int, bid.bid_id))

    def due(self, bids: Mapping[BidId, OpenBid], now: int) -> list[BidId]:
        """Return those of the bids that wait which are due by now, and forget them."""
        found: dict[BidId, None] = {}
        while self._due and self._due[0][0] <= now:
            due_at, _, bid_id = heappop(self._due)
            bid = bids.get(bid_id)
            if bid is not None and bid.waits_for_room and bid.due_at == due_at:
                found[bid_id] = None
        return list(found)
