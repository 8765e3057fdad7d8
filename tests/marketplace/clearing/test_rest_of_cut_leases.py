"""What a cut lease leaves over serves whoever waits, once the grant that cuts it is taken up.

Until then nobody is given it: the grant may be refused, and the lease goes on.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ledger.domain.ids import TenantId
from marketplace.domain.facts.events import LeaseGranted, RoundCleared
from marketplace.replay.round import replay_round
from tests.conftest import NOON
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import MARKET, Market, named, rate
from tests.marketplace.support.policies import limit
from tests.marketplace.support.rounds import book_of

HOUR = timedelta(hours=1)


@pytest.fixture
def market() -> Market:
    """Four GPUs, held together by one interruptible lease that has run for an hour."""
    market = Market()
    market.offer("a", gpus=4, at=1)
    market.bid("large", gpus=4, hours=12, at=2, service_class="interruptible")
    market.run()
    market.wait(hours=1)
    return market


def soon(market: Market, word: str, **how: Any) -> None:
    """Bid for two hours out of the next three."""
    said: dict[str, Any] = {"hours": 2, "at": 2, "deadline": market.now + 3 * HOUR} | how
    market.bid(word, **said)


def cutter(market: Market, patience: Any) -> LeaseGranted:
    """Let a firm bid for two GPUs interrupt the lease of four."""
    soon(market, "firm", gpus=2, at=90, patience=patience)
    if patience == "patient":
        market.wait(seconds=61)
    market.run()
    granted = market.grant("firm")
    assert granted is not None and len(granted.cuts) == 1
    held = len(market.grants())
    market.run()
    assert len(market.grants()) == held, "nobody is given what a grant may yet leave as it was"
    market.take_up()
    market.run()
    return granted


def all_replay(market: Market) -> None:
    for each in market.decisions():
        if isinstance(each.event, RoundCleared):
            replayed = replay_round(market.store, market=MARKET, round_id=each.event.round_id)
            assert replayed.outcome == "identical", (each.event, replayed.differences)


@pytest.mark.parametrize("patience", ["immediate", "patient"])
def test_immediate_bids_that_wait_get_what_a_cut_leaves_over(market: Market, patience: Any) -> None:
    for word in ("one", "two", "three"):
        soon(market, word, service_class="interruptible")
    market.run()
    assert market.grant("one") is None

    cut = cutter(market, patience)

    one, two = market.grant("one"), market.grant("two")
    assert one is not None and two is not None and market.grant("three") is None
    assert one.window.starts_at == two.window.starts_at == cut.cuts[0].ends_at
    audit(market.events())
    all_replay(market)


def test_patient_bids_get_what_their_round_leaves_over_in_the_next(market: Market) -> None:
    for word in ("one", "two", "three"):
        soon(market, word, service_class="interruptible", patience="patient")

    cut = cutter(market, "patient")
    market.wait(seconds=61)
    market.run()

    served = [market.grant(word) for word in ("one", "two", "three")]
    granted = [each for each in served if each is not None]
    assert len(granted) == 2
    for each in granted:
        assert each.round_id != cut.round_id
        assert rate(1) <= each.price <= rate(2)
    audit(market.events())
    all_replay(market)


def test_what_a_cut_frees_of_a_limit_helps_on_other_hosts_too(market: Market) -> None:
    """The unit may have four GPUs, and has them: its other bids wait until its lease is cut."""
    unit = TenantId(named("tenant large"))
    market.put(f"governance-{MARKET}", limit("subscriber", unit, gpus=4))
    market.offer("elsewhere", gpus=1, at=1, windows=[(NOON, NOON + 4 * HOUR)])
    for word in ("kept", "also kept"):
        soon(market, word, tenant=unit, service_class="interruptible", gpus=1)
    market.run()
    assert market.grant("kept") is None
    market.offer("b", gpus=1, at=1, windows=[(NOON, NOON + 4 * HOUR)])
    market.run()
    assert market.grant("kept") is None, "its unit has four already"

    cut = cutter(market, "immediate")

    for word in ("kept", "also kept"):
        granted = market.grant(word)
        assert granted is not None
        assert granted.window.starts_at >= cut.cuts[0].ends_at
    audit(market.events())
    all_replay(market)


def test_an_engine_that_takes_over_finds_the_book_as_it_was_left(market: Market) -> None:
    soon(market, "one", service_class="interruptible")
    market.run()
    cutter(market, "immediate")
    before = len(market.decisions())

    market.engine = market.new_engine()
    market.run()

    assert len(market.decisions()) == before
    assert book_of(market).held.keys() >= {market.lease_id("one"), market.lease_id("firm")}
