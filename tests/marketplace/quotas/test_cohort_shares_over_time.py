"""Over time cohorts get what their weights say, however many units each of them has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal

import pytest

from ledger.domain.ids import BidId, SubscriberId, TenantId
from marketplace.domain.facts.events import Patience
from marketplace.domain.facts.policy_events import (
    CohortPlaced,
    HalfLifeSet,
    QuotaSet,
    ShareWeightSet,
    UnitPlaced,
)
from tests.marketplace.quotas.test_engine import Governed, unit_of
from tests.marketplace.support.market import MARKET

Lane = Literal["instant", "rounds"]
GPUS = 3


class Hungry(Governed):
    """Three GPUs, and units that each want all of them in every hour. All of it is nominal."""

    def __init__(self, cohorts: Mapping[str, Sequence[str]], weights: Mapping[str, int]) -> None:
        super().__init__()
        self.had = Counter[str]()
        self.units = [unit for members in cohorts.values() for unit in members]
        self.offer("rack", gpus=GPUS)
        self.policy(HalfLifeSet(market=MARKET, seconds=86_400, at=self.now))
        for cohort in filter(None, cohorts):
            self.policy(
                CohortPlaced(market=MARKET, cohort=cohort, parent=None, tenant_id=None, at=self.now)
            )
        for cohort, members in cohorts.items():
            for unit in members:
                self.place(unit, cohort)
        for node, weight in weights.items():
            said = ShareWeightSet(
                market=MARKET, node=node, weight_ppm=weight * 1_000_000, at=self.now
            )
            self.policy(said)

    def place(self, unit: str, cohort: str) -> None:
        unit_id = unit_of(unit)
        self.policy(
            UnitPlaced(
                market=MARKET,
                subscriber_id=SubscriberId(unit_id),
                tenant_id=TenantId(unit_id),
                cohort=cohort or None,
                at=self.now,
            )
        )
        self.policy(
            QuotaSet(
                market=MARKET,
                node=str(unit_id),
                gpu_class="H100",
                nominal=GPUS,
                borrowing=None,
                lending=None,
                at=self.now,
            )
        )

    def hour(self, number: int, lane: Lane) -> None:
        """Let everybody bid, the engine decide once for all of them, and the hour go by."""
        self.change_offer("rack", "pause")
        asked: dict[BidId, tuple[str, str]] = {}
        for unit in self.units:
            self.asking = unit
            for bid in range(GPUS):
                word = f"{unit} {number} {bid}"
                deadline = self.now + timedelta(hours=1)
                patience: Patience = "immediate" if lane == "instant" else "patient"
                asked[self.bid(word, deadline=deadline, patience=patience)] = unit, word
            self.asking = ""
        self.change_offer("rack", "resume")
        self.run()
        granted = self.grants()
        self.wait(hours=1)
        for bid_id, (unit, word) in asked.items():
            if bid_id in granted:
                self.had[unit] += sum(len(share.gpu_uuids) for share in granted[bid_id].shares)
                self.close(word)
            else:
                self.cancel(word)


def lived(
    cohorts: Mapping[str, Sequence[str]], lane: Lane, hours: int, **weights: int
) -> Counter[str]:
    """Return what each unit had after so many hours in which everybody wanted everything."""
    market = Hungry(cohorts, weights)
    for number in range(hours):
        market.hour(number, lane)
    assert market.had.total() == GPUS * hours, "nothing was left idle"
    return market.had


CROWD = ("b1", "b2", "b3", "b4", "b5")
LANES = pytest.mark.parametrize("lane", ["instant", "rounds"])


@LANES
def test_a_cohort_of_one_unit_gets_as_much_as_one_of_five(lane: Lane) -> None:
    had = lived({"single": ["a"], "crowd": CROWD}, lane, hours=40)

    assert abs(had["a"] - 60) <= 2
    assert all(abs(had[unit] - 12) <= 2 for unit in CROWD)


@LANES
def test_with_twice_the_weight_it_gets_twice_as_much(lane: Lane) -> None:
    had = lived({"single": ["a"], "crowd": CROWD}, lane, hours=40, single=2)

    assert abs(had["a"] - 80) <= 2
    assert all(abs(had[unit] - 8) <= 2 for unit in CROWD)


@LANES
def test_units_beside_each_other_get_a_sixth_each(lane: Lane) -> None:
    had = lived({"": ["a", *CROWD]}, lane, hours=40)

    assert all(abs(had[unit] - 20) <= 2 for unit in ("a", *CROWD))


@LANES
def test_what_a_pass_gives_counts_before_it_gives_more(lane: Lane) -> None:
    market = Hungry({"single": ["a"], "crowd": CROWD}, {})
    for number in range(12):
        market.hour(number, lane)

        # Ranked once a pass, a cohort would get all three GPUs of the hour.
        assert abs(2 * market.had["a"] - market.had.total()) <= 1
