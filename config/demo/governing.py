"""The demo's policies: who has how many GPUs of their own, and what may be borrowed.

All that is listed of a class is somebody's quota, so nobody waits for GPUs that stand idle. H100s
have none: they are what the demo bursts to the cloud for.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from config.demo.cast import AURORA, BOREALIS, CIRRUS, PLATFORM, Organisation, Unit
from ledger.eventstore.port import EventStore, Meta
from marketplace.commands.quotas import set_policy
from marketplace.domain.facts.policy_events import (
    CohortPlaced,
    HalfLifeSet,
    LimitSet,
    QuotaSet,
    ShareWeightSet,
    UnitPlaced,
)
from marketplace.domain.governance.authority import Setter
from marketplace.domain.governance.dispatch import Policy

HALF_LIFE_SECONDS = 2 * 86_400
FORECAST, RENDER = AURORA.units[0], BOREALIS.units[0]
LANGUAGE, VISION = CIRRUS.units


def govern(store: EventStore, *, market: str, now: datetime) -> None:
    """Set the demo's policies."""
    setter = Setter(PLATFORM.tenant_id, True)
    by = Meta(actor=f"user:{PLATFORM.people[0].user_id}", tenant_id=PLATFORM.tenant_id)
    policies = Policies(market, now)
    for policy in (*policies.cohorts(), *policies.quotas(), *policies.shares()):
        set_policy(store, policy=policy, setter=setter, by=by)


class Policies:
    """What is set, in one market at one moment."""

    def __init__(self, market: str, now: datetime) -> None:
        self._market, self._now = market, now

    def cohorts(self) -> Iterator[Policy]:
        """Yield who stands where."""
        yield self._cohort("partners", None, "everybody who brings GPUs or pays for them")
        yield self._cohort("science", "partners", "the research groups lend to each other first")
        yield self._unit(AURORA, FORECAST, "science")
        yield self._unit(CIRRUS, LANGUAGE, "science")
        yield self._unit(CIRRUS, VISION, "science")
        yield self._unit(BOREALIS, RENDER, "partners")

    def quotas(self) -> Iterator[Policy]:
        """Yield who has how much."""
        hours = "160 GPU-hours a week are paid for ahead"
        yield self._quota(FORECAST, "A100", 4, why="they are Aurora's machines")
        yield self._quota(LANGUAGE, "A100", 2, gpu_hours=160, why=hours)
        yield self._quota(VISION, "A100", 1, borrowing=4)
        yield self._quota(RENDER, "A100", 1, lending=1)
        yield self._quota(RENDER, "L40S", 8, why="they are Borealis' machines")
        yield self._quota(VISION, "L40S", 3)
        yield self._quota(LANGUAGE, "L40S", 1)

    def shares(self) -> Iterator[Policy]:
        """Yield how use counts, and a limit."""
        yield ShareWeightSet(
            market=self._market,
            node=str(FORECAST.subscriber_id),
            weight_ppm=2_000_000,
            at=self._now,
            why="the forecast has to be out by six",
        )
        yield HalfLifeSet(market=self._market, seconds=HALF_LIFE_SECONDS, at=self._now)
        yield LimitSet(
            market=self._market,
            scope="user",
            subject=None,
            tenant_id=None,
            gpus=24,
            memory_mib=None,
            gpu_hours=2_000,
            money=None,
            period="week",
            at=self._now,
            why="nobody empties the market alone",
        )

    def _cohort(self, name: str, parent: str | None, why: str) -> CohortPlaced:
        return CohortPlaced(
            market=self._market, cohort=name, parent=parent, tenant_id=None, at=self._now, why=why
        )

    def _unit(self, organisation: Organisation, unit: Unit, cohort: str) -> UnitPlaced:
        return UnitPlaced(
            market=self._market,
            subscriber_id=unit.subscriber_id,
            tenant_id=organisation.tenant_id,
            cohort=cohort,
            at=self._now,
        )

    def _quota(
        self,
        unit: Unit,
        gpu_class: str,
        nominal: int,
        *,
        borrowing: int | None = None,
        lending: int | None = None,
        gpu_hours: int | None = None,
        why: str = "",
    ) -> QuotaSet:
        return QuotaSet(
            market=self._market,
            node=str(unit.subscriber_id),
            gpu_class=gpu_class,
            nominal=nominal,
            borrowing=borrowing,
            lending=lending,
            at=self._now,
            gpu_hours=gpu_hours,
            why=why,
        )
