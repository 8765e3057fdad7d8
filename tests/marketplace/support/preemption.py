"""Markets in which a firm bid finds interruptible leases."""

from __future__ import annotations

from datetime import timedelta

from marketplace.domain.facts.events import LeaseGranted
from marketplace.domain.quotas.minimum_runtime import LEAST_RUN_SECONDS
from tests.marketplace.support.market import Market

HOUR = timedelta(hours=1)


RUNTIME_MIN = timedelta(seconds=LEAST_RUN_SECONDS)


NOTICE = timedelta(minutes=5)


def busy_market(*, gpus: int = 2, limit: str = "1", hours: float = 8) -> Market:
    """Return a market whose GPUs are all leased interruptibly, each to somebody else, for long."""
    market = Market()
    market.offer("a", gpus=gpus, at=1, notice=NOTICE)
    for index in range(gpus):
        market.bid(f"cheap{index}", hours=hours, at=limit, service_class="interruptible")
    market.run()
    assert len(market.grants()) == gpus
    market.wait(minutes=RUNTIME_MIN.total_seconds() / 60)
    return market


def firm(market: Market, word: str = "firm", **how: object) -> LeaseGranted | None:
    """Bid firmly for the coming hours only."""
    said: dict[str, object] = {"hours": 6, "at": 3, "deadline": market.now + 7 * HOUR} | how
    market.bid(word, **said)  # type: ignore[arg-type]  # what the callers name
    market.run()
    return market.grant(word)
