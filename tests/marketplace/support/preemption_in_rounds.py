"""Patient bids that leases have to make room for, and rounds of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ledger.domain.ids import TenantId
from ledger.domain.money import Rate
from marketplace.domain.facts.events import ResaleOpened
from tests.marketplace.support.market import MARKET, Market, named
from tests.marketplace.verification.victim_order import in_turn as in_turn

HOUR = timedelta(hours=1)


def patient(market: Market, word: str = "firm", **how: Any) -> None:
    """Place a patient bid for the coming hours only."""
    said: dict[str, Any] = {"hours": 6, "at": 3, "deadline": market.now + 7 * HOUR} | how
    market.bid(word, patience="patient", **said)


def rounded(market: Market) -> None:
    """Let a round be cleared."""
    market.wait(seconds=61)
    market.run()


def sell_rest(market: Market, word: str, *, since: timedelta = HOUR, more: int = 0) -> None:
    """Put what is left of a bid's lease on sale, from some time from now on."""
    granted = market.grant(word)
    assert granted is not None
    market.put(
        f"lease-{granted.lease_id}",
        ResaleOpened(
            lease_id=granted.lease_id,
            market=MARKET,
            tenant_id=TenantId(named(f"tenant {word}")),
            since=market.now + since,
            ends_at=granted.window.ends_at,
            floor=Rate(granted.price.nanos_per_gpu_hour + more),
            lease_min_seconds=60,
            at=market.now,
        ),
    )


def resale_market() -> Market:
    """Return a market whose GPUs are leased for ten hours; the rest of one is for sale."""
    market = Market()
    market.offer("a", gpus=2, at=1)
    market.bid("seller", gpus=2, hours=10, at=2)
    market.run()
    sell_rest(market, "seller")
    market.run()
    return market
