"""What a bid counts more in a round for having waited: bounded, and never part of a price.

Bids of a round are compared by limit and this weight, so a slightly higher bid that came late does
not keep another waiting for ever. Who waits for an hour, from when it could have started, counts a
tenth of its limit more; and up to a tenth on top as its last chance comes near, by how much of the
time in which it may start has gone by. Nothing is gained by asking for less time to wait, nor by
asking long ahead.

The rule is part of `ROUND_RULE`: with other figures the same book gives other rounds.
"""

from __future__ import annotations

from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.domain.facts.instants import from_above
from marketplace.domain.orderbook.open_bid import OpenBid

FULL_AGE = MILLIS_PER_HOUR
"""After so long, waiting counts in full; in milliseconds."""
AGE_PPM, NEAR_PPM = 100_000, 100_000
"""Of the limit: for waiting in full, and on top of that when the last chance has come."""
PPM = 1_000_000


def weight_of(bid: OpenBid, *, now: int) -> int:
    """Return what is added to a bid's limit when a round compares, in nano-units per GPU-hour.

    An amended bid keeps the age of the one that was placed.
    """
    since = max(from_above(bid.terms.at), bid.earliest)
    waited, room = now - since, bid.latest_start - since
    if waited <= 0:
        return 0
    gone = min(waited, room)
    near = NEAR_PPM * gone // room if room > 0 else 0
    age = min(waited, FULL_AGE)
    return bid.limit * age * (AGE_PPM + near) // (FULL_AGE * PPM)
