"""What was charged: by day, and by unit, person, project, kind of work or GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from config.site.forms.answers import page
from config.site.parts.days import day_bars
from config.site.parts.figures import places_of
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.domain.periods import Period, PeriodUnreadable, read_period
from marketplace.queries import spending as queries
from marketplace.queries.naming import names_of
from metering.queries.busy import Busy, busy_by_lease

ROWS_SHOWN = 100
LEASES_MEASURED_MAX = 5_000
"""Of more leases than that it is not added up how busy they were."""
PERIODS_SHOWN = 6
TITLES = {
    "tenant": "Organisation",
    "unit": "Unit",
    "person": "Person",
    "project": "Project",
    "kind": "Kind of work",
    "gpu": "GPU",
    "lease": "Lease",
}
NONE = {
    "project": "no project",
    "person": "no person",
    "gpu": "volumes, or not known",
    "lease": "volumes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One part of the table. href: what it is made of. idle_nanos: what of it was paid for idle."""

    spent: queries.Spent
    title: str
    href: str
    busy: Busy | None

    @property
    def idle_nanos(self) -> int:
        """Return what was charged in proportion to the idle part of what was measured."""
        idle = self.busy.idle_ppm if self.busy is not None else None
        used = self.spent.spent_nanos - self.spent.storage_nanos
        return 0 if idle is None else used * idle // 1_000_000

    @property
    def idle_percent(self) -> int | None:
        """Return the idle share of what was measured, in whole percent; None: nothing was."""
        idle = self.busy.idle_ppm if self.busy is not None else None
        return None if idle is None else idle // 10_000


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show a month of what the visitor may see."""
    actor, now = actor_of(request), timezone.now()
    actor.need_scope("market:read")
    period = _period(request, now)
    since, until = period.window.starts_at.date(), period.window.ends_at.date()
    by = request.GET.get("by", "unit")
    bys = [each for each in queries.BYS if each != "tenant" or actor.sees_all]
    if by not in bys:
        by = "unit"
    only: dict[str, str] = {name: request.GET[name] for name in queries.BYS if name in request.GET}
    rows = queries.chosen(queries.spending(actor, since, until), only)
    found = queries.spent_by(rows, by)
    currencies = sorted({each.currency for each in found}) or ["USD"]
    busy = _busy(actor, queries.leases_by(rows, by), period)
    kept: dict[str, str] = {"period": str(period), **only}
    lines = _lines(actor, by, found[:ROWS_SHOWN], busy, kept)
    context = {
        "period": period,
        "periods": _last_periods(now),
        "by": by,
        "title": TITLES[by],
        "bys": [(TITLES[each], urlencode({**kept, "by": each}), each == by) for each in bys],
        "only": [(TITLES[name].lower(), _title(actor, name, key)) for name, key in only.items()],
        "all_href": urlencode({"period": str(period), "by": by}),
        "charts": [
            (each, day_bars(queries.spent_by_day(rows, each), since, until, each))
            for each in currencies
        ],
        "totals": [_total(found, busy, each) for each in currencies],
        "lines": lines,
        "places": places_of((line.spent.spent_nanos for line in lines), currencies[0]),
        "more": max(0, len(found) - ROWS_SHOWN),
        "saved": queries.saved_by_gpu(rows)[:ROWS_SHOWN],
        "may_compare": actor.has_platform_money,
        "sees_all": actor.sees_all,
        "sees_organisation": actor.roles & queries.SEES_ORGANISATION,
    }
    return page(request, "pages/spend.html", context)


def _total(
    found: Sequence[queries.Spent], busy: Mapping[str, Busy], currency: str
) -> dict[str, object]:
    mine = [each for each in found if each.currency == currency]
    used = sum((busy.get(each.key, Busy()) for each in mine), Busy())
    spent = sum(each.spent_nanos for each in mine)
    stored = sum(each.storage_nanos for each in mine)
    idle = used.idle_ppm
    return {
        "currency": currency,
        "spent": spent,
        "stored": stored,
        "millis": sum(each.gpu_millis for each in mine),
        "leases": sum(each.leases for each in mine),
        "busy": used,
        "idle_percent": None if idle is None else idle // 10_000,
        "idle_nanos": 0 if idle is None else (spent - stored) * idle // 1_000_000,
    }


def _busy(actor: Actor, leases: Mapping[UUID, str], period: Period) -> dict[str, Busy]:
    """Return how busy each part was, by its key."""
    if len(leases) > LEASES_MEASURED_MAX:
        return {}
    window = period.window
    found = busy_by_lease(actor, leases, since=window.starts_at, until=window.ends_at)
    added: dict[str, Busy] = {}
    for lease_id, one in found.items():
        key = leases[lease_id]
        added[key] = added.get(key, Busy()) + one
    return added


def _lines(
    actor: Actor,
    by: str,
    found: Sequence[queries.Spent],
    busy: Mapping[str, Busy],
    kept: Mapping[str, str],
) -> list[Line]:
    titles = names_of(actor, by, [each.key for each in found])
    lines = []
    for each in found:
        href = f"/leases/{each.key}" if each.key else "/volumes"
        if by != "lease":
            href = f"/spend?{urlencode({**kept, by: each.key, 'by': 'lease'})}"
        title = titles.get(each.key) or each.key or NONE.get(by, "none")
        lines.append(Line(spent=each, title=title, href=href, busy=busy.get(each.key)))
    return lines


def _title(actor: Actor, by: str, key: str) -> str:
    return names_of(actor, by, [key]).get(key) or key or NONE.get(by, "none")


def _period(request: HttpRequest, now: datetime) -> Period:
    try:
        return read_period(request.GET.get("period", ""))
    except PeriodUnreadable:
        return Period.of(now)


def _last_periods(now: datetime) -> list[Period]:
    found = [Period.of(now)]
    while len(found) < PERIODS_SHOWN:
        found.append(Period.of(found[-1].window.starts_at - timedelta(days=1)))
    return found
