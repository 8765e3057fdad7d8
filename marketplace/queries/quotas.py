"""What can be asked about quotas: who has what, and who uses it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from ledger.access import Actor
from ledger.eventstore.port import EventStore, load
from listings.domain.permits import ListingPermits
from marketplace.domain.facts.instants import from_above
from marketplace.domain.facts.policy_events import LimitSet, QuotaOverridden, UseKind
from marketplace.domain.facts.values import Counts
from marketplace.domain.governance.quota_requests import QuotaRequestUnknown
from marketplace.domain.quotas.card_units import in_gpus
from marketplace.domain.quotas.cohort_tree import Quota
from marketplace.domain.quotas.minimum_runtime import LeastRuns
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.queries.books import book_of


@dataclass(frozen=True, slots=True)
class Standing:
    """One unit or cohort and one class of GPUs, at one moment. None: not set.

    used, borrowed, available: GPUs, with at most three decimals where parts are counted.
    """

    node: str
    is_cohort: bool
    cohort: str | None
    gpu_class: str
    nominal: int | None
    borrowing: int | None
    lending: int | None
    gpu_hours: int | None
    used: float
    borrowed: float
    available: float


def setter_of(actor: Actor) -> tuple[bool, bool]:
    """Return whether an actor is an operator, and whether of the platform."""
    is_operator = "operator" in actor.roles
    return is_operator, is_operator and actor.is_platform


def least_runs(store: EventStore, *, market: str) -> LeastRuns:
    """Return what leases may run before they are interrupted for another bid."""
    return (load(store, Policies, market) or Policies()).least_runs


def counts(store: EventStore, *, market: str) -> Counts:
    """Return how quotas and limits count parts of cards."""
    return (load(store, Policies, market) or Policies()).counts


def standings(store: EventStore, actor: Actor, *, market: str, now: datetime) -> list[Standing]:
    """Return the cohorts, and those units that the actor may see, with what they use now."""
    found = []
    with book_of(store, market) as book:
        quotas = book.quotas
        if quotas is None or quotas.policies is None:
            return []
        for gpu_class in quotas.policies.classes:
            usage = quotas.usage(gpu_class, from_above(now))
            assert usage is not None
            for node in sorted(usage.tree.parents):
                if not may_see(actor, quotas.policies, node):
                    continue
                quota, unit = shown(usage.tree.quota(node), usage.tree.unit), usage.tree.unit
                found.append(
                    Standing(
                        node=node,
                        is_cohort=node in quotas.policies.cohorts,
                        cohort=usage.tree.parents[node],
                        gpu_class=gpu_class,
                        nominal=quota.nominal,
                        borrowing=quota.borrowing,
                        lending=quota.lending,
                        gpu_hours=quota.gpu_hours,
                        used=in_gpus(usage.used(node), unit),
                        borrowed=in_gpus(usage.borrowed(node), unit),
                        available=in_gpus(max(0, usage.available(node)[0]), unit),
                    )
                )
    return found


def shown(quota: Quota, unit: int) -> Quota:
    """Return a quota in GPUs, in which it was set. unit: what one GPU counts as in it."""
    nominal, borrowing, lending = (
        None if each is None else each // unit
        for each in (quota.nominal, quota.borrowing, quota.lending)
    )
    return Quota(nominal, borrowing, lending, quota.gpu_hours)


def may_see(actor: Actor, policies: Policies, about: str) -> bool:
    """Tell if an actor may see what is about a unit, cohort or tenant.

    Cohorts that are nobody's grant are everybody's to see; all else only one's own.
    """
    if actor.sees_all or about == str(actor.tenant_id):
        return True
    cohort = policies.cohorts.get(about)
    if cohort is not None:
        return cohort.tenant_id in (None, actor.tenant_id)
    unit = policies.units.get(about)
    return unit is not None and unit.tenant_id == actor.tenant_id


def token_of(store: EventStore, market: str, request_id: UUID) -> tuple[UUID, datetime]:
    """Return the token of a request that was just approved, and when it expires.

    Raises: QuotaRequestUnknown.
    """
    request = (load(store, Policies, market) or Policies()).requests.get(request_id)
    if request is None or request.approved is None:
        raise QuotaRequestUnknown(request_id=request_id)
    return request.approved.token_id, request.approved.expires_at


def overrides(
    store: EventStore, actor: Actor, *, market: str, now: datetime
) -> list[QuotaOverridden]:
    """Return the overrides that the actor may see, in force now or later, by their end."""
    policies = load(store, Policies, market) or Policies()
    found = [
        each
        for each in policies.overrides.values()
        if each.ends_at > now and may_see(actor, policies, each.node)
    ]
    return sorted(found, key=lambda each: (each.ends_at, str(each.override_id)))


def uses_allowed(
    store: EventStore, actor: Actor, *, market: str
) -> list[tuple[str | None, UseKind, str, bool]]:
    """Return who may or may not lease or borrow what, as far as it concerns the actor."""
    policies = load(store, Policies, market) or Policies()
    found = [
        (who, what, gpu_class, allowed)
        for (who, what, gpu_class), allowed in policies.permits.items()
        if who is None or may_see(actor, policies, who)
    ]
    return sorted(found, key=lambda each: (each[0] or "", each[1], each[2]))


def limits_set(store: EventStore, actor: Actor, *, market: str) -> list[LimitSet]:
    """Return the limits in force, by scope and subject, as far as they concern the actor."""
    policies = load(store, Policies, market) or Policies()
    found = [
        each
        for each in policies.limits.values()
        if each.tenant_id is None or actor.sees_all or each.tenant_id == actor.tenant_id
    ]
    return sorted(found, key=lambda each: (each.scope, str(each.subject or "")))


def listings_allowed(
    store: EventStore, actor: Actor, *, market: str
) -> list[tuple[UUID | None, str, bool]]:
    """Return which organisations may or may not list what, as far as it concerns the actor."""
    permits = load(store, ListingPermits, market) or ListingPermits()
    found = [
        (tenant_id, gpu_class, allowed)
        for (tenant_id, gpu_class), allowed in permits.allowed.items()
        if tenant_id is None or actor.sees_all or tenant_id == actor.tenant_id
    ]
    return sorted(found, key=lambda each: (str(each[0] or ""), each[1]))
