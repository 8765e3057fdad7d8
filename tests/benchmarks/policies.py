"""Policies of a market for benchmarks: cohorts of business units, with quotas, limits, weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import SubscriberId, TenantId
from marketplace.domain.facts.policy_events import (
    CohortPlaced,
    LimitSet,
    QuotaSet,
    ShareWeightSet,
    UnitPlaced,
)
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, named

COHORTS, UNITS = 20, 3
"""Cohorts, and business units in each."""
WEIGHTS_PPM = (500_000, 1_000_000, 2_000_000)
"""Of the units of a cohort: use of the last counts half."""
LIMIT_TIMES = 4
"""A unit may have so many times its nominal quota at once, of all models together, and in a day the
GPU-hours of twice that quota."""


def unit_of(number: int) -> UUID:
    """Return a business unit by its number."""
    return named(f"unit {number}")


def unit_of_bid(number: int) -> UUID:
    """Return whose a bid is: some units ask for several times as much as others."""
    chance = Random(f"unit of bid {number}").random()
    return unit_of(int(COHORTS * UNITS * chance**1.5))


def policies(supply: Mapping[str, int]) -> Iterator[Event]:
    """Yield quotas that share out all GPUs of each class evenly; a cohort lends within itself."""
    nominal = {name: max(1, gpus // (COHORTS * UNITS)) for name, gpus in supply.items()}
    for cohort in range(COHORTS):
        name = f"cohort-{cohort}"
        yield CohortPlaced(market=MARKET, cohort=name, parent=None, tenant_id=None, at=NOON)
        for place in range(UNITS):
            yield from _unit(unit_of(cohort * UNITS + place), name, place, nominal)
    own = sum(nominal.values())
    yield LimitSet(
        market=MARKET, scope="subscriber", subject=None, tenant_id=None, gpus=LIMIT_TIMES * own,
        memory_mib=None, gpu_hours=2 * 24 * own, money=None, period="day", at=NOON,
    )  # fmt: skip


def _unit(unit: UUID, cohort: str, place: int, nominal: Mapping[str, int]) -> Iterator[Event]:
    yield UnitPlaced(
        market=MARKET,
        subscriber_id=SubscriberId(unit),
        tenant_id=TenantId(unit),
        cohort=cohort,
        at=NOON,
    )
    for gpu_class, gpus in nominal.items():
        yield QuotaSet(
            market=MARKET, node=str(unit), gpu_class=gpu_class, nominal=gpus, borrowing=gpus,
            lending=None, at=NOON,
        )  # fmt: skip
    yield ShareWeightSet(
        market=MARKET, node=str(unit), weight_ppm=WEIGHTS_PPM[place % len(WEIGHTS_PPM)], at=NOON
    )
