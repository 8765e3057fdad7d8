"""Units that always want more than there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal

from ledger.domain.ids import BidId, SubscriberId, TenantId
from marketplace.domain.facts.events import Patience
from marketplace.domain.facts.policy_events import (
    CohortPlaced,
    HalfLifeSet,
    QuotaSet,
    ShareWeightSet,
    UnitPlaced,
)
from tests.marketplace.support.governed import Governed, unit_of
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


CROWD = ("b1", "b2", "b3", "b4", "b5")
