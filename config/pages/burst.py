"""Overflow: what is rented from clouds now and why, and what it may still cost this month."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from bursting.domain.budget import Budget, month_of
from bursting.queries import burst_instances
from config.pages.answers import page
from ledger.access.visits import actor_of
from ledger.domain.money import nanos_of
from ledger.eventstore import default_store
from ledger.eventstore.port import load

LIST_MAX = 100
RUNNING = ("intended", "launched", "provisioning", "running", "terminating")


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show the month's budget and the instances."""
    actor = actor_of(request)
    actor.need("operator", "finance", "auditor")
    month = month_of(timezone.now())
    budget = load(default_store(), Budget, month) or Budget(month=month)
    spent = sum(money.nanos for money in budget.spent.values())
    set_aside = sum(money.nanos for money in budget.set_aside.values())
    cap = nanos_of(settings.ENV.burst_budget)
    context = {
        "month": month,
        "cap": cap,
        "spent": spent,
        "set_aside": set_aside,
        "left": max(0, cap - spent - set_aside),
        "currency": settings.ENV.currency,
        "cloud": settings.ENV.burst_cloud,
        "wait_seconds": settings.ENV.burst_wait_seconds,
        "running": burst_instances(actor, states=RUNNING)[:LIST_MAX],
        "instances": burst_instances(actor)[:LIST_MAX],
    }
    return page(request, "pages/burst.html", context)
