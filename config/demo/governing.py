"""The demo's policies: who has how many GPUs of their own, and what may be borrowed.

All that is listed of a class is somebody's quota, so nobody waits for GPUs that stand idle. H100s
have none: they are what the demo bursts to the cloud for.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from config.demo.cast import AURORA, BOREALIS, CIRRUS, PLATFORM, Organisation, Unit
from ledger.eventstore.port import EventStore, Meta
from marketplace.commands.quotas import Policy, set_policy
from marketplace.domain.governance import Setter
from marketplace.domain.governance_events import (
    CohortPlaced,
    HalfLifeSet,
    LimitSet,
    QuotaSet,
    ShareWeightSet,
    UnitPlaced,
)

HALF_LIFE_SECONDS = 2 * 86_400
FORECAST, RENDER = AURORA.units[0], BOREALIS.units[0]
LANGUAGE, VISION = CIRRUS.units


def govern(store: EventStore, *, market: str, now: datetime) -> None:
    """Set the demo's policies."""
    setter = Setter(PLATFORM.tenant_id, True)
    by = Meta(actor=f"user:{PLATFORM.people[0].user_id}", tenant_id=PLATFORM.tenant_id)
    for policy in _policies(market, now):
        set_policy(store, policy=policy, setter=setter, by=by)


def _policies(market: str, now: datetime) -> Iterator[Policy]:
    def cohort(name: str, parent: str | None, why: str) -> CohortPlaced:
        return CohortPlaced(
            market=market, cohort=name, parent=parent, tenant_id=None, at=now, why=why
        )

    def unit(organisation: Organisation, unit: Unit, cohort: str) -> UnitPlaced:
        return UnitPlaced(
            market=market,
            subscriber_id=unit.subscriber_id,
            tenant_id=organisation.tenant_id,
            cohort=cohort,
            at=now,
        )

    def quota(
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
            market=market,
            node=str(unit.subscriber_id),
            gpu_class=gpu_class,
            nominal=nominal,
            borrowing=borrowing,
            lending=lending,
            at=now,
            gpu_hours=gpu_hours,
            why=why,
        )

    yield cohort("partners", None, "everybody who brings GPUs or pays for them")
    yield cohort("science", "partners", "the research groups lend to each other first")
    yield unit(AURORA, FORECAST, "science")
    yield unit(CIRRUS, LANGUAGE, "science")
    yield unit(CIRRUS, VISION, "science")
    yield unit(BOREALIS, RENDER, "partners")
    yield quota(FORECAST, "A100", 4, why="they are Aurora's machines")
    yield quota(LANGUAGE, "A100", 2, gpu_hours=160, why="160 GPU-hours a week are paid for ahead")
    yield quota(VISION, "A100", 1, borrowing=4)
    yield quota(RENDER, "A100", 1, lending=1)
    yield quota(RENDER, "L40S", 8, why="they are Borealis' machines")
    yield quota(VISION, "L40S", 3)
    yield quota(LANGUAGE, "L40S", 1)
    yield ShareWeightSet(
        market=market,
        node=str(FORECAST.subscriber_id),
        weight_ppm=2_000_000,
        at=now,
        why="the forecast has to be out by six",
    )
    yield HalfLifeSet(market=market, seconds=HALF_LIFE_SECONDS, at=now, why="two days")
    yield LimitSet(
        market=market,
        scope="user",
        subject=None,
        tenant_id=None,
        gpus=24,
        memory_mib=None,
        gpu_hours=2_000,
        money=None,
        period="week",
        at=now,
        why="nobody empties the market alone",
    )
