"""Interruptible leases that cost a bid no more go before work that is only paused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import Market
from tests.marketplace.support.pausing import HOUR, fresh, pausable
from tests.marketplace.support.preemption_in_rounds import patient, rounded


def market_with(*, filler_hours: float) -> Market:
    """Return a market of two GPUs: work that may be paused on one, an interruptible lease."""
    market = Market()
    market.offer("a", at=1)
    assert pausable(market) is not None
    market.offer("b", at=1)
    market.bid("filler", hours=filler_hours, at=1, service_class="interruptible")
    market.run()
    assert market.grant("filler") is not None
    market.wait(minutes=70)
    return market


@pytest.mark.parametrize(
    ("filler_hours", "goes", "because"),
    [
        (2, "filler", "interrupted"),  # fifty minutes to lose, of the two hours that are paid
        (8, "long", "paused"),  # the bid would pay for what the lease loses
    ],
)
def test_what_is_interruptible_goes_first_where_that_costs_no_more(
    filler_hours: float, goes: str, because: str
) -> None:
    market = market_with(filler_hours=filler_hours)

    granted = fresh(market)

    assert granted is not None
    [cut] = granted.cuts
    assert (cut.lease_id, cut.because) == (market.lease_id(goes), because)
    assert granted.price.nanos_per_gpu_hour == 1_000_000_000
    audit(market.events())


def test_it_goes_first_in_a_round_too() -> None:
    market = market_with(filler_hours=2)
    patient(market, "fresh", hours=2, at=2, deadline=market.now + 2 * HOUR + timedelta(minutes=10))
    rounded(market)

    granted = market.grant("fresh")

    assert granted is not None
    assert [cut.because for cut in granted.cuts] == ["interrupted"]


def test_where_nothing_is_interruptible_work_is_paused_as_ever() -> None:
    market = Market()
    market.offer("a", at=1)
    pausable(market)
    market.wait(hours=2)

    granted = fresh(market)

    assert granted is not None
    assert [cut.because for cut in granted.cuts] == ["paused"]
