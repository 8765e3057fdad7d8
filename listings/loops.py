"""What the supply side does by the clock. Each is one pass, called again and again by a runner."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.ids import OfferId
from ledger.eventstore.port import EventStore, Meta
from ledger.turns import each_alone, turns_of
from listings import commands
from listings.queries import offers_over

BATCH = 500
CLOCK = Meta(actor="loop:expire-offers")


def expire_offers(store: EventStore, *, now: datetime) -> int:
    """Close every offer whose last window is over; return how many were closed.

    The offer's own stream decides: rows that lag can cause a look too many, nothing else.
    """

    def expire(key: tuple[datetime, OfferId]) -> int:
        commands.expire_offer(store, offer_id=key[1], by=CLOCK, now=now)
        return 1

    over = turns_of(store, "offers-over").take(
        lambda after, limit: offers_over(after, limit, now=now), BATCH
    )
    # One offer that cannot be closed must not hold up the others.
    return each_alone(over, expire, event="offer.stuck", told=lambda key: {"offer": str(key[1])})
