"""The policy lab runs the real engine over past facts under other rules, and only looks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from ledger.domain.money import NANOS_PER_UNIT
from marketplace.domain.clearing.fills import PriceRule, Rules
from marketplace.domain.facts.policy_events import LeastRunSet, LimitSet
from marketplace.lab import comparing
from marketplace.lab.comparing import (
    Comparison,
    FeeOutOfRange,
    HalfLifeOutOfRange,
    LeastRunOutOfRange,
    Question,
    RoundsOutOfRange,
    StretchEmpty,
    StretchOutOfRange,
    StretchTooLong,
    compare,
)
from marketplace.lab.figures import Figures
from marketplace.lab.running import LabTooSlow
from marketplace.lab.variants import Lanes, Variant
from tests.marketplace.support.market import MARKET, Market

HOUR_MILLIS = 3_600_000
FEE_PPM = 50_000


def ask(
    market: Market,
    *,
    hours: int = 24,
    price: PriceRule = "market",
    lanes: Lanes = "as-bid",
    round_seconds: int = 60,
    fee_ppm: int = FEE_PPM,
) -> Comparison:
    variant = Variant(Rules(price), lanes, round_seconds)
    return compare(
        market.store,
        market=MARKET,
        currency="USD",
        question=Question(hours, variant, fee_ppm),
        present=Variant(),
        fee_ppm=FEE_PPM,
        now=market.now,
    )


def traded() -> Market:
    """A day: two GPUs listed, one bid that fits, one too dear, one patient; then much later."""
    market = Market()
    market.offer("a", gpus=2, at=1, windows=[(market.now, market.now + timedelta(hours=20))])
    market.bid("x", gpus=1, hours=2, at=3)
    market.bid("low", gpus=1, hours=2, at="0.50")
    market.bid("p", gpus=1, hours=4, at=2, patience="patient")
    market.run()
    market.wait(hours=21)
    market.run()
    return market


def test_the_present_rules_run_again_come_to_what_was_recorded() -> None:
    with capture_logs() as told:
        found = ask(traded())

    assert told == []
    assert found.again == found.variant
    assert untimed(found.again) == untimed(found.recorded)
    assert untimed(found.recorded) == Figures(
        bids=3,
        grants=2,
        gpu_millis=6 * HOUR_MILLIS,
        offered_millis=40 * HOUR_MILLIS,
        used_millis=6 * HOUR_MILLIS,
        utilisation_ppm=150_000,
        welfare_nanos=(2 * 2 + 1 * 4) * NANOS_PER_UNIT,
        owners_nanos=6 * NANOS_PER_UNIT * 95 // 100,
        surplus_nanos=8 * NANOS_PER_UNIT,
        fee_nanos=6 * NANOS_PER_UNIT * 5 // 100,
        wait_mean_seconds=None,
        wait_p95_seconds=None,
        jain_ppm=round(2**2 / (3 * 2) * 1_000_000),
        burst_nanos=0,
    )


def test_a_lease_that_was_given_back_before_it_began_is_given_back_again() -> None:
    market = Market()
    market.offer("a", gpus=2, at=1)
    start = market.now + timedelta(hours=9)
    market.bid("later", gpus=1, hours=4, at=3, start=start)
    market.bid("now", gpus=1, hours=1, at=3)
    market.run()
    market.wait(hours=2)
    market.close("later")
    market.run()

    found = ask(market)

    assert found.recorded.gpu_millis == HOUR_MILLIS
    assert found.again == found.recorded


def untimed(figures: Figures) -> Figures:
    """Return figures without waits: when exactly a round was due differs from run to run."""
    return replace(figures, wait_mean_seconds=None, wait_p95_seconds=None)


def test_a_wait_lasts_from_when_the_lease_was_wanted() -> None:
    market = Market()
    for hour in range(1, 4):
        market.bid(f"{hour}", gpus=1, hours=1, at=3, start=market.now + timedelta(hours=1))
    market.run()
    market.wait(hours=2)
    market.offer("a", gpus=1, at=1)
    market.run()
    market.wait(hours=5)

    found = ask(market)

    assert found.again == found.recorded
    assert (found.again.wait_mean_seconds, found.again.wait_p95_seconds) == (7_200, 10_800)


def test_a_price_rule_moves_the_gain_and_not_the_grants() -> None:
    market = traded()

    bid = ask(market, price="limit").variant
    half = ask(market, price="midpoint").variant
    low = ask(market, price="floor").variant

    assert {(each.grants, each.welfare_nanos) for each in (bid, half, low)} == {
        (2, 8 * NANOS_PER_UNIT)
    }
    assert bid.surplus_nanos == 0
    assert bid.owners_nanos + bid.fee_nanos == (3 * 2 + 2 * 4) * NANOS_PER_UNIT
    assert half.surplus_nanos == 4 * NANOS_PER_UNIT
    assert low.surplus_nanos == 8 * NANOS_PER_UNIT


def test_a_fee_divides_what_is_paid() -> None:
    found = ask(traded(), fee_ppm=250_000)

    assert found.variant.fee_nanos == 6 * NANOS_PER_UNIT // 4
    assert found.variant.owners_nanos == 6 * NANOS_PER_UNIT * 3 // 4
    assert found.again.fee_nanos == found.recorded.fee_nanos


def test_patient_lanes_let_the_more_worthy_bid_go_first() -> None:
    market = Market()
    market.offer("a", gpus=1, at=1, windows=[(market.now, market.now + timedelta(hours=4))])
    market.bid("first", gpus=1, hours=4, at=2)
    market.run()
    market.wait(seconds=30)
    market.bid("worth more", gpus=1, hours=3, at=9)
    market.run()
    market.wait(hours=6)

    found = ask(market, lanes="patient", round_seconds=120)

    assert (found.recorded.grants, found.variant.grants) == (1, 1)
    assert found.recorded.welfare_nanos == 1 * 4 * NANOS_PER_UNIT
    assert found.variant.welfare_nanos == 8 * 3 * NANOS_PER_UNIT


def test_who_left_early_leaves_after_the_same_use_and_the_gpu_is_free_again() -> None:
    market = Market()
    market.offer("a", gpus=1, at=1)
    market.bid("x", gpus=1, hours=10, at=3)
    market.run()
    market.wait(hours=1)
    market.close("x")
    market.bid("y", gpus=1, hours=2, at=3)
    market.run()
    market.wait(hours=3)

    found = ask(market)

    assert found.again == found.recorded
    assert (found.again.grants, found.again.gpu_millis) == (2, 3 * HOUR_MILLIS)


def test_an_owner_takes_the_same_gpus_back_from_whoever_holds_them() -> None:
    market = Market()
    market.offer("a", gpus=1, at=1)
    market.bid("x", gpus=1, hours=10, at=3)
    market.run()
    market.wait(hours=2)
    market.reclaim("x")
    market.wait(minutes=5)
    market.close("x", reason=201)
    market.run()
    market.wait(hours=3)

    found = ask(market, lanes="patient")

    assert found.recorded.gpu_millis == HOUR_MILLIS * 2 + 300_000
    assert found.again == found.recorded
    assert found.variant.gpu_millis == HOUR_MILLIS * 2 + 300_000 - 60_000


def test_an_extension_is_asked_for_by_as_much() -> None:
    market = Market()
    market.offer("a", gpus=1, at=1)
    market.bid("x", gpus=1, hours=2, at=3)
    market.run()
    market.wait(hours=1)
    granted = market.grant("x")
    assert granted is not None
    market.extend("x", granted.window.ends_at + timedelta(hours=3))
    market.run()
    market.wait(hours=5)

    found = ask(market, price="floor")

    assert found.variant.gpu_millis == found.recorded.gpu_millis == 5 * HOUR_MILLIS


def test_what_was_before_the_stretch_stays_as_it_was() -> None:
    market = Market()
    market.offer("a", gpus=2, at=1)
    market.bid("old", gpus=1, hours=30, at=3)
    market.run()
    market.wait(hours=25)
    market.bid("new", gpus=1, hours=2, at=3)
    market.run()
    market.wait(hours=1)

    found = ask(market, hours=2, price="limit")

    assert (found.variant.bids, found.variant.grants) == (1, 1)
    assert found.variant.used_millis == (2 + 1) * HOUR_MILLIS
    assert found.variant.offered_millis == 4 * HOUR_MILLIS


def test_a_bid_that_was_withdrawn_waiting_is_withdrawn_again() -> None:
    market = Market()
    market.bid("x", gpus=1, hours=1, at=3)
    market.run()
    market.wait(hours=1)
    market.cancel("x")
    market.offer("late", gpus=1, at=1)
    market.run()
    market.wait(hours=1)

    assert ask(market, lanes="patient").variant.grants == 0


def test_nothing_is_written() -> None:
    market = traded()
    before = market.store.head()

    ask(market, price="limit", lanes="instant")

    assert market.store.head() == before


@pytest.mark.parametrize("hours", [0, 169, -3])
def test_hours_out_of_range_are_refused(hours: int) -> None:
    with pytest.raises(StretchOutOfRange):
        ask(traded(), hours=hours)


def test_a_fee_or_a_round_out_of_range_is_refused() -> None:
    with pytest.raises(FeeOutOfRange):
        ask(traded(), fee_ppm=500_001)
    with pytest.raises(RoundsOutOfRange):
        ask(traded(), round_seconds=0)


def test_a_stretch_in_which_nothing_happened_is_refused() -> None:
    market = traded()
    market.wait(days=3)

    with pytest.raises(StretchEmpty):
        ask(market, hours=24)


def test_a_log_beyond_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "FACTS_MAX", 3)

    with pytest.raises(StretchTooLong):
        ask(traded())


def test_a_run_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "SECONDS_MAX", -1.0)

    with pytest.raises(LabTooSlow):
        ask(traded())


def interrupted_day() -> Market:
    """A day on which a firm bid interrupts the work of an interruptible one."""
    market = Market()
    market.offer("a", gpus=2, at=1, windows=[(market.now, market.now + timedelta(hours=20))])
    market.bid("soft", gpus=2, hours=18, at=2, service_class="interruptible")
    market.run()
    market.wait(hours=1)
    market.bid("firm", gpus=2, hours=10, at=9, deadline=market.now + timedelta(hours=12))
    market.run()
    market.wait(hours=20)
    market.run()
    return market


def asked_of(market: Market, variant: Variant) -> Comparison:
    return compare(
        market.store,
        market=MARKET,
        currency="USD",
        question=Question(24, variant, FEE_PPM),
        present=Variant(),
        fee_ppm=FEE_PPM,
        now=market.now,
    )


def test_without_preemption_nobody_is_interrupted() -> None:
    found = asked_of(interrupted_day(), Variant(Rules(preemption=False)))

    assert (found.recorded.interrupted, found.again.interrupted) == (1, 1)
    assert found.variant.interrupted == 0
    assert (found.again.grants, found.variant.grants) == (2, 1)
    assert found.variant.used_millis > found.again.used_millis - HOUR_MILLIS


def test_a_policy_and_a_half_life_hold_from_the_start_of_the_stretch() -> None:
    market = traded()
    limit = LimitSet(
        market=MARKET,
        scope="bid",
        subject=None,
        tenant_id=None,
        gpus=None,
        memory_mib=None,
        gpu_hours=3,
        money=None,
        period="day",
        at=market.now,
    )

    found = asked_of(market, Variant(half_life_seconds=3_600, policies=(limit,)))

    assert (found.again.grants, found.variant.grants) == (2, 1), "four GPU-hours are too many"


def test_another_least_running_time_holds_from_the_start_of_the_stretch() -> None:
    """The work ran an hour: with four it is let be until it is too late for the bid."""
    market = interrupted_day()
    later = LeastRunSet(market=MARKET, seconds=0, at=market.now)
    market.put(f"governance-{MARKET}", later)
    market.run()

    found = asked_of(market, Variant(least_run_seconds=4 * 3_600))

    assert (found.recorded.interrupted, found.again.interrupted) == (1, 1)
    assert found.variant.interrupted == 0
    assert asked_of(market, Variant(least_run_seconds=3_600)).variant.interrupted == 1
    of_class = LeastRunSet(market=MARKET, seconds=14_400, at=market.now, gpu_class="H100")
    assert asked_of(market, Variant(policies=(of_class,))).variant.interrupted == 0
    another = replace(of_class, gpu_class="L4")
    assert asked_of(market, Variant(policies=(another,))).variant.interrupted == 1
    both = Variant(least_run_seconds=0, policies=(of_class,))
    assert asked_of(market, both).variant.interrupted == 0, "the class keeps its own"


@pytest.mark.parametrize("seconds", [-1, 86_401])
def test_a_least_running_time_out_of_range_is_refused(seconds: int) -> None:
    with pytest.raises(LeastRunOutOfRange):
        asked_of(traded(), Variant(least_run_seconds=seconds))


def test_a_half_life_out_of_range_is_refused() -> None:
    with pytest.raises(HalfLifeOutOfRange):
        asked_of(traded(), Variant(half_life_seconds=1))
