"""Let hours pass in which rounds are far apart."""

from __future__ import annotations

from datetime import timedelta

from tests.marketplace.support.market import Market

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def let_pass(market: Market, length: timedelta, *, step: timedelta = MINUTE / 2) -> None:
    """Let time pass; the engine looks now and then."""
    end = market.now + length
    while market.now < end:
        market.now += step
        market.run()
