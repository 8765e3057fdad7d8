"""A round of three bids, and what was said of it."""

from __future__ import annotations

from datetime import timedelta

from marketplace.domain.facts.events import RoundCleared
from tests.conftest import NOON
from tests.marketplace.support.market import Market, named


def three_bids() -> Market:
    """Return a market with room for three patient bids."""
    market = Market()
    market.offer("a", gpus=3, at=1)
    for word, at in (("x", 4), ("y", 3), ("z", 2)):
        market.bid(word, at=at, patience="patient", deadline=NOON + timedelta(hours=1, minutes=9))
    return market


def told(market: Market, word: str) -> list[str]:
    """Return the reasons that a bid was given, in order."""
    return [
        unmatched.reason
        for recorded in market.decisions()
        if isinstance(recorded.event, RoundCleared)
        for unmatched in recorded.event.unmatched
        if unmatched.bid_id == named(f"bid {word}")
    ]
