"""Leases with a minimum runtime, and what is tried on them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ledger.access import Actor
from marketplace.domain.facts.events import LeaseGranted
from marketplace.domain.facts.policy_events import LeastRunSet
from marketplace.domain.governance.authority import Setter
from marketplace.domain.governance.dispatch import Policy
from marketplace.explain.minimum_runtime import Undisturbed, undisturbed_for
from marketplace.trials.on_the_book import Trial, try_policies
from tests.marketplace.support.market import MARKET, OWNER, Market, named
from tests.marketplace.support.preemption import NOTICE
from tests.marketplace.verification.victim_order import in_turn as in_turn

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def least_run(
    market: Market, length: timedelta | None, *, name: str = MARKET, of: str | None = None
) -> None:
    """Set the policy, of all or a class. length: None: what holds for the class is lifted."""
    seconds = (length or timedelta()) // timedelta(seconds=1)
    policy = LeastRunSet(
        market=name, seconds=seconds, at=market.now, gpu_class=of, lifted=length is None
    )
    market.put(f"governance-{name}", policy)
    market.run()


def soft(market: Market, word: str = "soft", *, hours: float = 20) -> LeaseGranted:
    """Lease interruptibly all that there is for long."""
    market.bid(word, hours=hours, at=1, service_class="interruptible")
    market.run()
    granted = market.grant(word)
    assert granted is not None
    return granted


@pytest.fixture
def market() -> Market:
    market = Market()
    market.offer("a", gpus=1, at=1, notice=NOTICE)
    return market


def told(market: Market, word: str = "firm") -> Undisturbed | None:
    return undisturbed_for(market.store, market=MARKET, bid_id=named(f"bid {word}"), now=market.now)


GOVERNOR = Actor(tenant_id=OWNER, roles=frozenset({"operator"}), is_platform=True)


def tried(market: Market, *policies: Policy) -> Trial:
    return try_policies(
        market.store,
        GOVERNOR,
        market=MARKET,
        policies=policies,
        setter=Setter(OWNER, True),
        now=market.now,
    )
