"""A unit of weight 0 gets what all others leave, whatever it pays: in every branch of the order."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marketplace.domain.facts.events import Patience, RoundCleared
from marketplace.domain.facts.policy_events import ShareWeightSet
from marketplace.replay.round import replay_round
from tests.conftest import NOON
from tests.marketplace.support.governed import Governed, unit_of
from tests.marketplace.support.market import MARKET, named

HOUR = timedelta(hours=1)
LANES = pytest.mark.parametrize("patience", ["immediate", "patient"])


def weigh(market: Governed, node: str, weight_ppm: int) -> None:
    market.policy(ShareWeightSet(market=MARKET, node=node, weight_ppm=weight_ppm, at=market.now))


def rack(market: Governed, gpus: int) -> None:
    """Offer GPUs for one hour, in which each serves one bid."""
    market.offer("rack", gpus=gpus, at=1, windows=[(NOON, NOON + HOUR)])


def served(market: Governed) -> set[str]:
    market.run()
    words = {named(f"bid {unit}{number}"): unit for unit in UNITS for number in range(8)}
    return {words[bid_id] for bid_id in market.grants()}


UNITS = ("red", "blue", "green")


@LANES
@pytest.mark.parametrize("quota", [(0, 8), (None, None)], ids=["borrowers", "without quota"])
def test_beyond_nominal_quota_a_weight_of_zero_goes_after_lower_bids(
    quota: tuple[int | None, int | None], patience: Patience
) -> None:
    market = Governed()
    market.govern(red=quota, blue=quota, lender=(8, 0))
    weigh(market, str(unit_of("red")), 0)
    for number in range(2):
        market.ask("red", f"red{number}", 1, at=9, patience=patience)
        market.ask("blue", f"blue{number}", 1, at=2, patience=patience)
    rack(market, 2)

    assert served(market) == {"blue"}


@LANES
def test_a_unit_that_no_policy_places_goes_last_too(patience: Patience) -> None:
    market = Governed()
    market.govern(blue=(None, None))
    weigh(market, str(unit_of("red")), 0)
    market.ask("red", "red0", 1, at=9, patience=patience)
    market.ask("green", "green0", 1, at=2, patience=patience)
    rack(market, 1)

    assert served(market) == {"green"}


@LANES
def test_a_cohort_of_weight_zero_goes_last_with_all_in_it(patience: Patience) -> None:
    market = Governed()
    market.govern(red=(None, None))
    weigh(market, "lab", 0)
    market.ask("red", "red0", 1, at=9, patience=patience)
    market.ask("green", "green0", 1, at=2, patience=patience)
    rack(market, 1)

    assert served(market) == {"green"}


@LANES
def test_it_gets_what_others_leave(patience: Patience) -> None:
    market = Governed()
    market.govern(red=(None, None), blue=(None, None))
    weigh(market, str(unit_of("red")), 0)
    market.ask("red", "red0", 1, at=9, patience=patience)
    market.ask("blue", "blue0", 1, at=2, patience=patience)
    rack(market, 2)

    assert served(market) == {"red", "blue"}


@LANES
def test_its_own_nominal_quota_stays_guaranteed_to_it(patience: Patience) -> None:
    market = Governed()
    market.govern(red=(1, 0), blue=(0, 8), lender=(8, 0))
    weigh(market, str(unit_of("red")), 0)
    market.ask("red", "red0", 1, at=2, patience=patience)
    market.ask("blue", "blue0", 1, at=9, patience=patience)
    rack(market, 1)

    assert served(market) == {"red"}


@LANES
def test_other_weights_leave_it_to_the_price(patience: Patience) -> None:
    market = Governed()
    market.govern(red=(None, None), blue=(None, None))
    weigh(market, str(unit_of("red")), 1)
    market.ask("red", "red0", 1, at=9, patience=patience)
    market.ask("blue", "blue0", 1, at=2, patience=patience)
    rack(market, 1)

    assert served(market) == {"red"}


BIDS = st.lists(st.tuples(st.sampled_from(UNITS), st.sampled_from((2, 3, 9))), max_size=8)


@LANES
@given(BIDS, st.integers(1, 4), st.sets(st.sampled_from(UNITS)))
@settings(max_examples=15, deadline=None)
def test_no_bid_of_weight_zero_is_served_while_another_is_left(
    patience: Patience, bids: list[tuple[str, int]], gpus: int, zero: set[str]
) -> None:
    market = Governed()
    market.govern(red=(None, None), blue=(0, 8), lender=(8, 0))
    for unit in sorted(zero):
        weigh(market, str(unit_of(unit)), 0)
    for number, (unit, limit) in enumerate(bids):
        market.ask(unit, f"{unit}{number}", 1, at=limit, patience=patience)
    rack(market, gpus)
    market.run()

    granted = [
        unit
        for number, (unit, _) in enumerate(bids)
        if named(f"bid {unit}{number}") in market.grants()
    ]
    weighted = [unit for unit, _ in bids if unit not in zero]
    assert len(granted) == min(gpus, len(bids))
    assert sum(unit not in zero for unit in granted) == min(gpus, len(weighted))
    for recorded in market.decisions():
        if isinstance(recorded.event, RoundCleared):
            again = replay_round(market.store, market=MARKET, round_id=recorded.event.round_id)
            assert again.outcome == "identical"
