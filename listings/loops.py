"""What the supply side does by the clock. Each is one pass, called again and again by a runner."""

from __future__ import annotations

from datetime import datetime

import structlog

from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta
from listings import commands
from listings.queries import offers_over

BATCH = 500
CLOCK = Meta(actor="loop:expire-offers")

log = structlog.get_logger()


def expire_offers(store: EventStore, *, now: datetime) -> int:
    """Close every offer whose last window is over; return how many were looked at.

    The offer's own stream decides: rows that lag can cause a look too many, nothing else.
    """
    over = offers_over(now=now, limit=BATCH)
    for offer_id in over:
        try:
            commands.expire_offer(store, offer_id=offer_id, by=CLOCK, now=now)
        except Refusal as refusal:
            # One offer that cannot be closed must not hold up the others.
            log.error("offer.stuck", offer=str(offer_id), code=refusal.code)
    return len(over)
