"""How bids that several markets could serve were routed: streams route-<bid id>."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ledger.domain.event import Event
from ledger.domain.ids import BidId
from ledger.domain.money import Rate

RouteReason = Literal["cheapest-now", "soonest", "least-waited-for", "nowhere"]


@dataclass(frozen=True, slots=True)
class Considered:
    """What one market would have done. See `routing.Look`."""

    market: str
    price: Rate | None
    starts_at: datetime | None
    fitting: int
    wanted: int


class BidRouted(Event, name="marketplace.bid-routed"):
    """A bid that several markets could serve goes to one of them."""

    bid_id: BidId
    market: str
    because: RouteReason
    considered: tuple[Considered, ...]
    at: datetime
