"""The policies of a market as they stand: cohorts, units, quotas, overrides, limits, weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Literal, Protocol, assert_never
from uuid import UUID

from ledger.domain.ids import SubscriberId, TenantId
from marketplace.domain.facts import policy_events
from marketplace.domain.facts.policy_events import GovernanceEvent, LimitScope, UseKind
from marketplace.domain.facts.values import Counts
from marketplace.domain.quotas.card_units import ANY_CLASS, in_class, unit_of
from marketplace.domain.quotas.cohort_tree import Quota, Tree, around
from marketplace.domain.quotas.minimum_runtime import NONE_SET, LeastRuns

HALF_LIFE_SECONDS = 7 * 86_400
"""Where no policy says another."""
WEIGHT_PPM = 1_000_000
PERIOD_SECONDS = 7 * 86_400
PERIOD_STARTS = datetime(1970, 1, 5, tzinfo=UTC)
"""Weeks from Monday, where no policy says otherwise."""


class OfUnit(Protocol):
    """What a business unit asks for: a bid, or what became of one."""

    @property
    def subscriber_id(self) -> SubscriberId:
        """Return the business unit."""

    @property
    def tenant_id(self) -> TenantId:
        """Return the organisation that it is of."""


def span_at(at: datetime, *, starts_at: datetime, seconds: int) -> tuple[datetime, datetime]:
    """Return the span in which a moment lies, of those of one length of which one starts then."""
    length = timedelta(seconds=seconds)
    begins = starts_at + (at - starts_at) // length * length
    return begins, begins + length


@dataclass(frozen=True, slots=True)
class Request:
    """A request for quota. approved: with the token and when that expires."""

    asked: policy_events.QuotaRequested
    state: Literal["open", "approved", "declined", "taken-up"] = "open"
    approved: policy_events.QuotaRequestApproved | None = None


@dataclass(frozen=True, slots=True)
class Policies:
    """All policies of one market. Made by `evolve`, one fact after the other."""

    STREAM: ClassVar[str] = "governance"

    cohorts: Mapping[str, policy_events.CohortPlaced] = field(default_factory=dict)
    units: Mapping[str, policy_events.UnitPlaced] = field(default_factory=dict)
    quotas: Mapping[tuple[str, str], policy_events.QuotaSet] = field(default_factory=dict)
    overrides: Mapping[UUID, policy_events.QuotaOverridden] = field(default_factory=dict)
    limits: Mapping[tuple[LimitScope, UUID | None], policy_events.LimitSet] = field(
        default_factory=dict
    )
    weights: Mapping[str, int] = field(default_factory=dict)
    weighed_in: Mapping[str, str] = field(default_factory=dict)
    half_life_seconds: int = HALF_LIFE_SECONDS
    requests: Mapping[UUID, Request] = field(default_factory=dict)
    period_seconds: int = PERIOD_SECONDS
    period_starts: datetime = PERIOD_STARTS
    permits: Mapping[tuple[str | None, UseKind, str], bool] = field(default_factory=dict)
    least_runs: LeastRuns = NONE_SET
    counts: Counts = "whole"

    @classmethod
    def evolve(cls, state: Policies | None, event: GovernanceEvent, /) -> Policies:
        now = state or cls()
        match event:
            case policy_events.CohortPlaced():
                return replace(now, cohorts={**now.cohorts, event.cohort: event})
            case policy_events.UnitPlaced():
                return replace(now, units={**now.units, str(event.subscriber_id): event})
            case policy_events.QuotaSet():
                return replace(now, quotas={**now.quotas, (event.node, event.gpu_class): event})
            case policy_events.QuotaOverridden():
                return now._overridden(event)
            case policy_events.OverrideLifted():
                left = {k: v for k, v in now.overrides.items() if k != event.override_id}
                return replace(now, overrides=left)
            case policy_events.LimitSet():
                return replace(now, limits={**now.limits, (event.scope, event.subject): event})
            case policy_events.ShareWeightSet():
                return now._weighed(event)
            case policy_events.HalfLifeSet():
                return replace(now, half_life_seconds=event.seconds)
            case policy_events.CountingSet():
                return replace(now, counts=event.counts)
            case policy_events.GuaranteePeriodSet():
                return replace(now, period_seconds=event.seconds, period_starts=event.starts_at)
            case policy_events.LeastRunSet():
                return replace(now, least_runs=now.least_runs.after(event))
            case policy_events.UseAllowed():
                key = (event.who, event.what, event.gpu_class)
                return replace(now, permits={**now.permits, key: event.allowed})
            case (
                policy_events.QuotaRequested()
                | policy_events.QuotaRequestApproved()
                | policy_events.QuotaRequestDeclined()
            ):
                return now._with_request(now._request_after(event))
            case _:
                assert_never(event)

    def _overridden(self, event: policy_events.QuotaOverridden) -> Policies:
        after = replace(self, overrides={**self.overrides, event.override_id: event})
        if event.request_id is None or event.request_id not in self.requests:
            return after
        return after._with_request(replace(self.requests[event.request_id], state="taken-up"))

    def _weighed(self, event: policy_events.ShareWeightSet) -> Policies:
        weighed_in = {node: each for node, each in self.weighed_in.items() if node != event.node}
        if event.within is not None:
            weighed_in[event.node] = event.within
        weights = {**self.weights, event.node: event.weight_ppm}
        return replace(self, weights=weights, weighed_in=weighed_in)

    def _request_after(
        self,
        event: policy_events.QuotaRequested
        | policy_events.QuotaRequestApproved
        | policy_events.QuotaRequestDeclined,
    ) -> Request:
        match event:
            case policy_events.QuotaRequested():
                return Request(event)
            case policy_events.QuotaRequestApproved():
                return Request(self.requests[event.request_id].asked, "approved", event)
            case policy_events.QuotaRequestDeclined():
                return Request(self.requests[event.request_id].asked, "declined")
            case _:
                assert_never(event)

    def _with_request(self, request: Request) -> Policies:
        return replace(self, requests={**self.requests, request.asked.request_id: request})

    @property
    def parents(self) -> dict[str, str | None]:
        """Return the cohort of every cohort and unit."""
        return {name: cohort.parent for name, cohort in self.cohorts.items()} | {
            name: unit.cohort for name, unit in self.units.items()
        }

    @property
    def unit(self) -> int:
        return unit_of(self.counts)

    @property
    def classes(self) -> list[str]:
        """Return the classes of GPUs that any quota speaks of."""
        named = {gpu_class for _, gpu_class in self.quotas}
        return sorted(named | {each.gpu_class for each in self.overrides.values()})

    def tree(self, gpu_class: str, at: datetime) -> Tree:
        """Return the quotas of one class as they are at one moment.

        A tenant's cohort is its grant: what it has shared out among its units is no longer in
        the common pot. Figures are in units of `unit`.
        """
        unit = self.unit
        quotas = {
            node: _quota(each, unit) for (node, of), each in self.quotas.items() if of == gpu_class
        }
        for each in self.overrides.values():
            if each.gpu_class == gpu_class and each.starts_at <= at < each.ends_at:
                quotas[each.node] = _quota(each, unit)
        for name, cohort in self.cohorts.items():
            grant = quotas.get(name)
            if cohort.tenant_id is not None and grant is not None and grant.nominal is not None:
                left = max(0, grant.nominal - self.shared_out(name, quotas))
                quotas[name] = replace(grant, nominal=left)
        return Tree(self.parents, quotas, unit)

    def shared_out(self, cohort: str, quotas: Mapping[str, Quota]) -> int:
        """Return how much nominal quota the members of a cohort have of their own."""
        members = [node for node, parent in self.parents.items() if parent == cohort]
        return sum(quotas[node].nominal or 0 for node in members if node in quotas)

    def changes_of(self, gpu_class: str) -> Iterable[datetime]:
        """Yield the moments at which overrides of a class begin and end."""
        for each in self.overrides.values():
            if each.gpu_class == gpu_class:
                yield from (each.starts_at, each.ends_at)

    def limit(
        self, scope: LimitScope, subject: UUID | None, tenant_id: TenantId | None = None
    ) -> policy_events.LimitSet | None:
        """Return the limit of one, or that of each.

        tenant_id: whose it is: what another organisation says of it is not heard.
        """
        found = self.limits.get((scope, subject))
        if found is None or (tenant_id is not None and found.tenant_id not in (None, tenant_id)):
            return self.limits.get((scope, None))
        return found

    def may(self, what: UseKind, terms: OfUnit, model: str) -> bool:
        """Tell if a bid's unit may lease, or borrow, GPUs of a model.

        The unit is asked first, then its cohorts from the inside, its tenant, and everybody; of
        each, what speaks of the model before what speaks of any. Allowed where nobody forbids.
        """
        if not self.permits:
            return True
        unit = str(terms.subscriber_id)
        for who in (*around(self.parents, unit), str(terms.tenant_id), None):
            found = [
                (gpu_class == ANY_CLASS, -len(gpu_class), allowed)
                for (whose, kind, gpu_class), allowed in self.permits.items()
                if whose == who and kind == what and in_class(gpu_class, model, self.counts)
            ]
            if found:
                return min(found)[2]
        return True

    def period_at(self, at: datetime) -> tuple[datetime, datetime]:
        """Return the span in which a moment lies, of those that guaranteed hours are counted in."""
        return span_at(at, starts_at=self.period_starts, seconds=self.period_seconds)

    def weight_of(self, node: str) -> int:
        """Return the weight of a unit or cohort in ppm, among those that stand beside it.

        One that was set for a cohort in particular is forgotten while a unit stands elsewhere.
        """
        within, unit = self.weighed_in.get(node), self.units.get(node)
        if within is not None and (unit is None or unit.cohort != within):
            return WEIGHT_PPM
        return self.weights.get(node, WEIGHT_PPM)

    def goes_last(self, unit: str) -> bool:
        """Tell if a unit, or a cohort that it stands in, has the weight 0: all others go before."""
        return any(self.weight_of(node) <= 0 for node in around(self.parents, unit))


def _quota(event: policy_events.QuotaSet | policy_events.QuotaOverridden, unit: int) -> Quota:
    nominal, borrowing, lending = (
        None if each is None else each * unit
        for each in (event.nominal, event.borrowing, event.lending)
    )
    return Quota(nominal, borrowing, lending, event.gpu_hours)
