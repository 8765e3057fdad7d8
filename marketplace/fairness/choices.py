"""What the policies of a market can be about: its cohorts, units, classes, and what is set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from ledger.access import Actor
from ledger.eventstore.port import EventStore, load
from listings.domain.gpus import model_matches
from marketplace.domain.facts.policy_events import CohortPlaced, LimitSet, QuotaSet, UnitPlaced
from marketplace.domain.facts.values import Counts
from marketplace.domain.quotas.card_units import ANY_CLASS
from marketplace.domain.quotas.minimum_runtime import LeastRuns
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.fairness.standings import sees
from marketplace.queries.books import book_of


@dataclass(frozen=True, slots=True)
class Governed:
    """The policies of a market as they stand, as far as an actor sees them.

    weights: as they count where units stand now. classes: those one would name, `any` first: of
    the market's GPUs, and of policies.
    """

    cohorts: tuple[CohortPlaced, ...]
    units: tuple[UnitPlaced, ...]
    quotas: tuple[QuotaSet, ...]
    limits: tuple[LimitSet, ...]
    weights: dict[str, int]
    half_life_seconds: int
    period_seconds: int
    period_starts: datetime
    least_runs: LeastRuns
    counts: Counts
    classes: tuple[str, ...]

    def quota(self, node: str, gpu_class: str) -> QuotaSet | None:
        """Return the quota that is set, if one is."""
        found = (each for each in self.quotas if (each.node, each.gpu_class) == (node, gpu_class))
        return next(found, None)


def governed(store: EventStore, actor: Actor, *, market: str) -> Governed:
    """Return what is set in a market, as far as the actor sees it."""
    policies = load(store, Policies, market) or Policies()
    seen = {node for node in policies.parents if sees(actor, policies, node)}
    with book_of(store, market) as book:
        models = {gpu.model for each in book.offers.values() for gpu in each.terms.gpus}
    quotas = [each for (node, _), each in policies.quotas.items() if node in seen]
    limits = [
        each
        for each in policies.limits.values()
        if actor.sees_all or each.tenant_id in (None, actor.tenant_id)
    ]
    return Governed(
        cohorts=tuple(each for name, each in sorted(policies.cohorts.items()) if name in seen),
        units=tuple(each for unit, each in sorted(policies.units.items()) if unit in seen),
        quotas=tuple(sorted(quotas, key=lambda each: (each.gpu_class, each.node))),
        limits=tuple(limits),
        weights={node: policies.weight_of(node) for node in policies.weights if node in seen},
        half_life_seconds=policies.half_life_seconds,
        period_seconds=policies.period_seconds,
        period_starts=policies.period_starts,
        least_runs=policies.least_runs,
        counts=policies.counts,
        classes=_classes(models, policies.classes),
    )


def _classes(models: Iterable[str], spoken_of: Iterable[str]) -> tuple[str, ...]:
    """Return models of the market, the kinds they are of, and what policies speak of."""
    named = {*models, *spoken_of}
    for model in models:
        kind = model.partition("-")[0]
        if model_matches(kind, model):
            named.add(kind)
    return (ANY_CLASS, *sorted(named - {ANY_CLASS}))
