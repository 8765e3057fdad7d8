"""What was spent, by whom and on what, and what of it budgets count, as one actor may see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal, get_args
from uuid import UUID

from django.db.models import Count, Q, QuerySet, Sum

from ledger.access import Actor, visible
from ledger.domain.events import Role
from ledger.domain.ids import LeaseId
from ledger.domain.refusal import Invalid
from ledger.domain.span import Window
from ledger.eventstore.port import EventStore, load
from ledger.queries import parties
from marketplace.domain.bids.workload_profiles import workload_named
from marketplace.domain.spending.budget import PPM, Budget
from marketplace.domain.spending.budgets import Budgets, Counted, CountedUpTo
from marketplace.domain.spending.forecast import Forecast, forecast
from marketplace.domain.spending.periods import period_at
from marketplace.domain.spending.projects import need_project
from marketplace.domain.spending.savings import saved
from marketplace.models.leases import LeaseRow
from marketplace.models.spending import (
    ComparisonRow,
    SpendingBidRow,
    SpendingBudgetRow,
    SpendingCrossingRow,
    SpendingDayRow,
    SpendingGrantRow,
    SpendingReadRow,
)

By = Literal["tenant", "unit", "person", "project", "kind", "gpu", "lease"]
"""By what spending is told apart. gpu: the model of the GPUs."""
COLUMN_OF: Mapping[str, str] = {
    "tenant": "tenant_id",
    "unit": "subscriber_id",
    "person": "user_id",
    "project": "project",
    "kind": "workload_kind",
    "gpu": "gpu_model",
    "lease": "lease_id",
}
BYS: Sequence[By] = get_args(By)
SEES_ORGANISATION: frozenset[Role] = frozenset({"finance", "operator", "auditor"})
"""Roles that see what all of their organisation spends; others see their own unit."""
TENANTS_LOOKED_AT = 10_000


class SubjectUnknown(Invalid):
    """A budget is for all of the organisation, or for one of its units or members by id.

    Or for a project, or a kind of work as GET /workloads lists them.
    """


class SpendingByUnknown(Invalid):
    """Spending is told apart by tenant, unit, person, project, kind, gpu or lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one part came to. key: its id, label or model as text; empty: of none.

    storage_nanos: what of it was for volumes.
    """

    key: str
    currency: str
    spent_nanos: int
    storage_nanos: int = 0
    gpu_millis: int
    leases: int


def spending(actor: Actor, since: date, until: date) -> QuerySet[SpendingDayRow]:
    """Return what was charged on the days from `since` up to but not including `until`.

    For leases, and for what was kept in volumes.

    An organisation's finance people, operators and auditors see all of it, others what their own
    unit spends, and who belongs to none what they spend themselves; the platform's operators and
    auditors see all.
    """
    rows = visible(actor, SpendingDayRow).filter(day__gte=since, day__lt=until)
    return rows.filter(_own(actor))


def _own(actor: Actor) -> Q:
    if actor.sees_all or actor.roles & SEES_ORGANISATION:
        return Q()
    mine = Q(user_id=actor.user_id)
    return mine if actor.subscriber_id is None else mine | Q(subscriber_id=actor.subscriber_id)


def chosen(rows: QuerySet[SpendingDayRow], only: Mapping[str, str]) -> QuerySet[SpendingDayRow]:
    """Return the rows of one unit, person, project … each. What is no id matches nothing.

    Raises: SpendingByUnknown.
    """
    for by, key in only.items():
        column = _column(by)
        if column.endswith("_id"):
            try:
                rows = rows.filter(**{column: UUID(key) if key else None})
            except ValueError:
                return rows.none()
        else:
            rows = rows.filter(**{column: key})
    return rows


def spent_by(rows: QuerySet[SpendingDayRow], by: str) -> list[Spent]:
    """Return what each part came to, the most first.

    Raises: SpendingByUnknown.
    """
    column = _column(by)
    summed: Any = rows.values(column, "currency").annotate(
        spent=Sum("spent_nanos"),
        stored=Sum("spent_nanos", filter=Q(lease_id=None)),
        millis=Sum("gpu_millis"),
        leases=Count("lease_id", distinct=True),
    )
    found = [
        Spent(
            key="" if each[column] is None else str(each[column]),
            currency=each["currency"],
            spent_nanos=int(each["spent"]),
            storage_nanos=int(each["stored"] or 0),
            gpu_millis=int(each["millis"]),
            leases=each["leases"],
        )
        for each in summed.order_by()
    ]
    return sorted(found, key=lambda each: (-each.spent_nanos, -each.gpu_millis, each.key))


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What GPUs of one model came to, and what the same hours would have cost elsewhere.

    cloud_nanos, dedicated_nanos: what was saved; below zero: it cost more; None: no figure was set.
    """

    spent: Spent
    figures: ComparisonRow | None
    cloud_nanos: int | None
    dedicated_nanos: int | None


def comparisons() -> QuerySet[ComparisonRow]:
    """Return what GPUs cost elsewhere, as the platform said it to everybody."""
    return ComparisonRow.objects.order_by("gpu_model", "currency")


def saved_by_gpu(rows: QuerySet[SpendingDayRow]) -> list[Saved]:
    """Return what pooling saved for each model of GPUs, what was spent most on first."""
    known = {(each.gpu_model, each.currency): each for each in comparisons()}
    found = []
    for each in spent_by(rows.exclude(lease_id=None), "gpu"):
        row = known.get((each.key, each.currency))
        cloud = None if row is None else row.cloud_nanos_per_gpu_hour
        own = None if row is None else row.dedicated_nanos_per_gpu_hour
        found.append(
            Saved(
                spent=each,
                figures=row,
                cloud_nanos=saved(each.gpu_millis, each.spent_nanos, cloud),
                dedicated_nanos=saved(each.gpu_millis, each.spent_nanos, own),
            )
        )
    return found


def leases_by(rows: QuerySet[SpendingDayRow], by: str) -> dict[UUID, str]:
    """Return to which part each lease belongs, by the key of `spent_by`.

    Raises: SpendingByUnknown.
    """
    column = _column(by)
    used = rows.exclude(lease_id=None)
    pairs: Any = used.values_list("lease_id", column).distinct().order_by()
    return {lease_id: "" if key is None else str(key) for lease_id, key in pairs}


def spent_by_day(rows: QuerySet[SpendingDayRow], currency: str) -> dict[date, int]:
    """Return what was spent on each day on which anything was, in nano-units."""
    summed: Any = rows.filter(currency=currency).values("day").annotate(sum=Sum("spent_nanos"))
    return {each["day"]: int(each["sum"]) for each in summed.order_by("day")}


def _column(by: str) -> str:
    if by not in COLUMN_OF:
        raise SpendingByUnknown(given=by[:40])
    return COLUMN_OF[by]


def subject_of(actor: Actor, scope: str, subject: str) -> str:
    """Return whom a budget is for as it is kept; a unit or person by its id in its usual form.

    Raises: SubjectUnknown, WorkloadUnknown, ProjectUnreadable.
    """
    if scope == "project" and subject:
        need_project(subject)
    elif scope == "kind":
        workload_named(subject)
    elif scope in ("unit", "person"):
        try:
            key = UUID(subject)
        except ValueError:
            raise SubjectUnknown(given=subject[:40]) from None
        mine = (
            parties.subscribers(actor, actor.tenant_id).filter(pk=key)
            if scope == "unit"
            else parties.members(actor).filter(user_id=key)
        )
        if not mine.exists():
            raise SubjectUnknown(given=subject[:40])
        return str(key)
    elif bool(subject) is (scope == "tenant"):
        raise SubjectUnknown(given=subject[:40])
    return subject


def spending_budgets(actor: Actor) -> QuerySet[SpendingBudgetRow]:
    """Return the budgets that count, which the actor may see: others than finance their own."""
    rows = visible(actor, SpendingBudgetRow).filter(ended_at=None)
    if actor.sees_all or actor.roles & SEES_ORGANISATION:
        return rows
    mine = Q(scope="person", subject=str(actor.user_id))
    if actor.subscriber_id is not None:
        mine |= Q(scope="unit", subject=str(actor.subscriber_id))
    return rows.filter(mine)


def grants_of(actor: Actor, budget_ids: Iterable[UUID]) -> QuerySet[SpendingGrantRow]:
    """Return the grants of budgets, newest first."""
    rows = visible(actor, SpendingGrantRow).filter(budget_id__in=list(budget_ids))
    return rows.order_by("-asked_at", "grant_id")


def crossings_of(actor: Actor, budget_ids: Iterable[UUID]) -> QuerySet[SpendingCrossingRow]:
    """Return the thresholds that budgets came to, newest first."""
    rows = visible(actor, SpendingCrossingRow).filter(budget_id__in=list(budget_ids))
    return rows.order_by("-at", "key")


def counted_for(budget: SpendingBudgetRow) -> Counted:
    """Return what a budget counts by now: spent by period since it was set, and held."""
    covered = _covered(budget)
    first = period_at(_period(budget), budget.since).starts_at.date()
    days: Any = (
        SpendingDayRow.objects.filter(covered, day__gte=first)
        .values("day")
        .annotate(sum=Sum("spent_nanos"))
        .order_by()
    )
    by_period: dict[datetime, int] = {}
    for each in days:
        noon = datetime(each["day"].year, each["day"].month, each["day"].day, 12, tzinfo=UTC)
        starts_at = period_at(_period(budget), noon).starts_at
        by_period[starts_at] = by_period.get(starts_at, 0) + int(each["sum"])
    held = SpendingBidRow.objects.filter(covered, left_nanos__gt=0).aggregate(sum=Sum("left_nanos"))
    return Counted(budget.budget_id, by_period, int(held["sum"] or 0))


def days_of(budget: SpendingBudgetRow, since: date) -> dict[date, int]:
    """Return what of a budget was spent on each day since one."""
    rows = SpendingDayRow.objects.filter(_covered(budget), day__gte=since)
    return spent_by_day(rows, budget.currency)


def committed(budget: SpendingBudgetRow) -> list[tuple[int, datetime]]:
    """Return what running leases of a budget still hold, and when each ends as it stands."""
    held = {
        row.lease_id: row.left_nanos
        for row in SpendingBidRow.objects.filter(
            _covered(budget), left_nanos__gt=0, lease_id__isnull=False
        )
    }
    ends = LeaseRow.objects.filter(lease_id__in=list(held)).values_list("lease_id", "ends_at")
    return [(held[lease_id], ends_at) for lease_id, ends_at in ends]


def running_under(budget_id: UUID) -> list[LeaseId]:
    """Return the leases that a budget covers and that hold money, in order."""
    budget = SpendingBudgetRow.objects.filter(pk=budget_id).first()
    if budget is None:
        return []
    held = SpendingBidRow.objects.filter(
        _covered(budget), left_nanos__gt=0, lease_id__isnull=False
    ).order_by("lease_id")
    return [LeaseId(row.lease_id) for row in held if row.lease_id is not None]


def _period(budget: SpendingBudgetRow) -> Any:
    return budget.period


def _covered(budget: SpendingBudgetRow) -> Q:
    counts = Q(tenant_id=budget.tenant_id, currency=budget.currency)
    match budget.scope:
        case "unit":
            return counts & Q(subscriber_id=UUID(budget.subject))
        case "person":
            return counts & Q(user_id=UUID(budget.subject))
        case "project":
            return counts & Q(project=budget.subject)
        case "kind":
            return counts & Q(workload_kind=budget.subject)
        case _:
            return counts


def tenants_with_budgets() -> dict[UUID, SpendingReadRow]:
    """Return how far each organisation with budgets is counted."""
    ids = SpendingBudgetRow.objects.filter(ended_at=None).values("tenant_id").distinct()
    return SpendingReadRow.objects.in_bulk(
        list(ids.values_list("tenant_id", flat=True)[:TENANTS_LOOKED_AT])
    )


def counted_now(read: SpendingReadRow) -> tuple[list[Counted], CountedUpTo]:
    """Return what every budget of an organisation counts, and up to where."""
    budgets = SpendingBudgetRow.objects.filter(tenant_id=read.tenant_id, ended_at=None)
    found = [counted_for(each) for each in budgets.order_by("budget_id")]
    return found, CountedUpTo(drawn=read.drawn, through=read.touched)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a budget stands in the period of now, in nano-units.

    carried: rolled over into it. granted: what grants add now. blocks_at: None: it never blocks.
    """

    row: SpendingBudgetRow
    period: Window
    carried: int
    granted: int
    limit: int
    spent: int
    held: int
    blocks_at: int | None
    forecast: Forecast

    @property
    def used(self) -> int:
        """Return what is charged and what is set aside."""
        return self.spent + self.held

    @property
    def left(self) -> int:
        """Return what a new bid may still cost, or, where nothing blocks, what is left of it."""
        return max(0, (self.limit if self.blocks_at is None else self.blocks_at) - self.used)

    @property
    def blocked(self) -> bool:
        """Tell if no bid that costs anything is placed any more."""
        return self.blocks_at is not None and self.used >= self.blocks_at


def standings(
    rows: Iterable[SpendingBudgetRow], store: EventStore, *, now: datetime
) -> list[Standing]:
    """Return how budgets stand now; one whose stream is behind its rows is left out."""
    found, known = [], dict[UUID, Budgets | None]()
    for row in rows:
        if row.tenant_id not in known:
            known[row.tenant_id] = load(store, Budgets, row.tenant_id)
        budgets = known[row.tenant_id]
        budget = None if budgets is None else budgets.budgets.get(row.budget_id)
        if budget is not None:
            found.append(_standing(row, budget, now))
    return found


def _standing(row: SpendingBudgetRow, budget: Budget, now: datetime) -> Standing:
    period, counted = period_at(budget.terms.period, now), counted_for(row)
    carried = budget.carried_into(period, counted.by_period)
    limit, at_ppm = budget.limit_at(now, carried=carried), budget.blocks_at
    since = min(period.starts_at, now - timedelta(days=7)).date()
    return Standing(
        row=row,
        period=period,
        carried=carried,
        granted=budget.granted(now),
        limit=limit,
        spent=counted.by_period.get(period.starts_at, 0),
        held=counted.held,
        blocks_at=None if at_ppm is None else limit * at_ppm // PPM,
        forecast=forecast(days_of(row, since), committed(row), period=period, now=now),
    )
