"""Overflow: what is rented from clouds now and why, and what it may still cost this month."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from bursting.domain.budget import Budget, month_of
from bursting.domain.instances import FINAL
from bursting.queries import burst_instances, home_moves, moved_home, strays
from config.site.forms.answers import page
from config.site.parts.paging import part_of
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.domain.money import nanos_of
from ledger.domain.periods import Period
from ledger.eventstore import default_store
from ledger.eventstore.port import load

RUNNING = ("intended", "launched", "provisioning", "running", "terminating")


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show the month's budget and the instances."""
    actor = actor_of(request)
    actor.need("operator", "finance", "auditor")
    now = timezone.now()
    context = {
        # Budget and figures are of what the table shows: all of it, or what is the visitor's own.
        **(_budget(now) if actor.sees_all else _own(actor, now)),
        "sees_all": actor.sees_all,
        "strays": part_of(request, strays(actor), "strays"),
        "currency": settings.ENV.currency,
        "cloud": settings.ENV.burst_cloud,
        "wait_seconds": settings.ENV.burst_wait_seconds,
        "running": burst_instances(actor, states=RUNNING).count(),
        "instances": part_of(request, burst_instances(actor), "instances"),
        "tries": part_of(request, home_moves(actor), "tries"),
        "home": moved_home(actor, Period.of(now).window),
    }
    return page(request, "pages/burst.html", context)


def _budget(now: datetime) -> dict[str, object]:
    """Return the platform's month: all machines together, by the budget's own stream."""
    month = month_of(now)
    budget = load(default_store(), Budget, month) or Budget(month=month)
    spent = sum(money.nanos for money in budget.spent.values())
    set_aside = sum(money.nanos for money in budget.set_aside.values())
    cap = nanos_of(settings.ENV.burst_budget)
    left = max(0, cap - spent - set_aside)
    return {"month": month, "cap": cap, "spent": spent, "set_aside": set_aside, "left": left}


def _own(actor: Actor, now: datetime) -> dict[str, object]:
    """Return the month of the machines for the visitor's own bids, by the rows that it sees."""
    window = Period.of(now).window
    mine = burst_instances(actor).filter(
        intended_at__gte=window.starts_at, intended_at__lt=window.ends_at
    )
    others = strays(actor).filter(launched_at__gte=window.starts_at, launched_at__lt=window.ends_at)
    spent = sum(row.cost_nanos or 0 for row in mine)
    spent += sum(row.cost_nanos or 0 for row in others)
    set_aside = sum(row.worst_nanos for row in mine if row.state not in FINAL)
    return {"month": str(Period.of(now)), "spent": spent, "set_aside": set_aside}
