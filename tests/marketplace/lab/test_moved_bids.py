"""A bid that was handed on is run again in the market to which it went, and counts there."""

from __future__ import annotations

from dataclasses import replace

from ledger.domain.money import NANOS_PER_UNIT
from marketplace.domain.clearing.fills import Rules
from marketplace.lab.comparing import Comparison, Question, compare
from marketplace.lab.variants import Variant
from tests.marketplace.support.market import Market
from tests.marketplace.support.two_markets import ask, later, two


def moved() -> tuple[Market, Market]:
    """Return two markets; a bid of two hours came to the second after it had waited an hour."""
    main, eu = two()
    main.bid("b", at=3, hours=2)
    main.run()
    later(main, eu, hours=1)
    eu.offer("there", at=1)
    ask(main, "b")
    main.run()
    eu.run()
    later(main, eu, hours=4)
    main.run()
    eu.run()
    return main, eu


def compared(market: Market, variant: Variant) -> Comparison:
    return compare(
        market.store,
        market=market.name,
        currency="USD",
        question=Question(24, variant, 0),
        present=Variant(),
        fee_ppm=0,
        now=market.now,
    )


def test_it_is_granted_again_where_it_went() -> None:
    _, eu = moved()

    found = compared(eu, Variant(Rules("midpoint")))

    assert (found.recorded.bids, found.recorded.grants) == (1, 1)
    assert found.again == replace(found.recorded, wait_mean_seconds=3_600, wait_p95_seconds=3_600)
    assert found.again.welfare_nanos == (3 - 1) * 2 * NANOS_PER_UNIT
    assert found.again.jain_ppm == 1_000_000
    assert found.variant.surplus_nanos == 2 * NANOS_PER_UNIT


def test_it_leaves_the_market_from_which_it_went() -> None:
    main, _ = moved()

    found = compared(main, Variant(lanes="patient"))

    assert (found.again.bids, found.again.grants) == (1, 0)
    assert found.variant.grants == 0
