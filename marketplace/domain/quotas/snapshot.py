"""The quotas of a book as plain values, and back: their part of a snapshot.

What is added to `QuotaBook` or to `Policies` has to be added here; a test compares the fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ledger.domain.ids import LeaseId
from marketplace.domain.facts.policy_events import (
    CohortPlaced,
    LimitSet,
    QuotaOverridden,
    QuotaSet,
    UnitPlaced,
    UseKind,
)
from marketplace.domain.facts.values import Counts
from marketplace.domain.quotas.derived_totals import Sums
from marketplace.domain.quotas.fair_share_order import Decayed
from marketplace.domain.quotas.minimum_runtime import NONE_SET, LeastRuns
from marketplace.domain.quotas.policies_in_force import Policies, Request
from marketplace.domain.quotas.quota_book import QuotaBook
from marketplace.domain.quotas.use import Use


@dataclass(frozen=True, slots=True)
class PoliciesState:
    """All policies in force: see `Policies`. Each kind in the order in which it was first said."""

    cohorts: tuple[CohortPlaced, ...]
    units: tuple[UnitPlaced, ...]
    quotas: tuple[QuotaSet, ...]
    overrides: tuple[QuotaOverridden, ...]
    limits: tuple[LimitSet, ...]
    weights: tuple[tuple[str, int], ...]
    weighed_in: tuple[tuple[str, str], ...]
    half_life_seconds: int
    requests: tuple[Request, ...]
    period_seconds: int
    period_starts: datetime
    permits: tuple[tuple[str | None, UseKind, str, bool], ...]
    least_runs: LeastRuns = NONE_SET
    counts: Counts = "whole"


@dataclass(frozen=True, slots=True)
class QuotaState:
    """All of a `QuotaBook` that is not made from something else in it.

    decayed: business unit, model of GPU, and the use that is remembered.
    """

    policies: PoliciesState | None
    uses: tuple[tuple[LeaseId, Use], ...]
    over: tuple[Use, ...]
    decayed: tuple[tuple[str, str, Decayed], ...]


def state_of_quotas(quotas: QuotaBook | None) -> QuotaState | None:
    """Return what the quotas of a book are made of; None where none were ever set."""
    if quotas is None:
        return None
    return QuotaState(
        policies=None if quotas.policies is None else _state_of(quotas.policies),
        uses=tuple(quotas.uses.items()),
        over=tuple(quotas.over),
        decayed=tuple(
            (unit, model, use)
            for unit, by_model in quotas._decayed.items()
            for model, use in by_model.items()
        ),
    )


def restored_quotas(state: QuotaState | None) -> QuotaBook | None:
    if state is None:
        return None
    quotas = QuotaBook()
    if state.policies is not None:
        quotas.policies = _restored(state.policies)
        quotas.note_policies()
        quotas._sums = Sums(quotas, quotas.policies)
    quotas.uses.update(state.uses)
    quotas._over += state.over
    for unit, model, use in state.decayed:
        quotas._decayed[unit][model] = use
    return quotas


def _state_of(policies: Policies) -> PoliciesState:
    return PoliciesState(
        cohorts=tuple(policies.cohorts.values()),
        units=tuple(policies.units.values()),
        quotas=tuple(policies.quotas.values()),
        overrides=tuple(policies.overrides.values()),
        limits=tuple(policies.limits.values()),
        weights=tuple(policies.weights.items()),
        weighed_in=tuple(policies.weighed_in.items()),
        half_life_seconds=policies.half_life_seconds,
        requests=tuple(policies.requests.values()),
        period_seconds=policies.period_seconds,
        period_starts=policies.period_starts,
        permits=tuple((*of, allowed) for of, allowed in policies.permits.items()),
        least_runs=policies.least_runs,
        counts=policies.counts,
    )


def _restored(state: PoliciesState) -> Policies:
    return Policies(
        cohorts={each.cohort: each for each in state.cohorts},
        units={str(each.subscriber_id): each for each in state.units},
        quotas={(each.node, each.gpu_class): each for each in state.quotas},
        overrides={each.override_id: each for each in state.overrides},
        limits={(each.scope, each.subject): each for each in state.limits},
        weights=dict(state.weights),
        weighed_in=dict(state.weighed_in),
        half_life_seconds=state.half_life_seconds,
        requests={each.asked.request_id: each for each in state.requests},
        period_seconds=state.period_seconds,
        period_starts=state.period_starts,
        permits={(who, what, of): allowed for who, what, of, allowed in state.permits},
        least_runs=state.least_runs,
        counts=state.counts,
    )
