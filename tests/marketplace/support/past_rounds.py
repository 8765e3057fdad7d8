"""A market with rounds behind it."""

from __future__ import annotations

from marketplace.domain.facts.events import RoundCleared
from tests.marketplace.support.market import Market


def rounds(market: Market) -> list[RoundCleared]:
    return [each.event for each in market.decisions() if isinstance(each.event, RoundCleared)]


def busy(market: Market) -> Market:
    """Let both lanes decide, for bids that come, for offers that come, and in rounds."""
    market.offer("a", gpus=4, at=1)
    market.bid("x", gpus=2, hours=3, at=2)
    market.bid("y", gpus=4, hours=1, at=3)
    market.bid("p", gpus=1, hours=2, at=2, patience="patient")
    market.bid("q", gpus=4, hours=30, at=4, patience="patient")
    market.run()
    market.wait(minutes=2)
    market.bid("z", gpus=8, hours=1, at=3)
    market.run()
    market.offer("b", gpus=8, at=2)
    market.run()
    return market
