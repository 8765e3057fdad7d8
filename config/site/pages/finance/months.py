"""Months: how far each is closed, what has to be in order before, and opening one again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from django import forms
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from config.site.forms.answers import done, meta_of, page
from ledger import closing, exports
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.commands import closing as commands
from ledger.domain.holds import TEXT_LENGTH_MAX
from ledger.domain.periods import Period, read_period
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.eventstore.port import Position
from ledger.queries import people
from ledger.queries.closing import MonthSeen, month, months

MONTHS_SHOWN = 60
STATES = {
    "open": "Entries count in it.",
    "soft-closed": "About to be closed. Late use still counts in it.",
    "closed": "Nothing counts in it any more. Late use counts in the next open month.",
}
Doing = Callable[..., Position]
"""A command on a month: it takes the store, the month, and who asks when."""


class ReasonForm(forms.Form):
    """Why a closed month should be opened again."""

    reason = forms.CharField(label="Reason", max_length=TEXT_LENGTH_MAX)


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Every month and how far it is closed."""
    actor = actor_of(request)
    actor.need("finance", "auditor", "operator")
    found = months(now=timezone.now())
    context = {
        "months": found[:MONTHS_SHOWN],
        "more": max(0, len(found) - MONTHS_SHOWN),
        "may_close": actor.has_platform_money,
    }
    return page(request, "pages/months.html", context)


@require_safe
def one(request: HttpRequest, period: str) -> HttpResponse:
    """One month: its checklist, its exports, and what may be done with it."""
    return _show(request, read_period(period))


@require_POST
def soft_close(request: HttpRequest, period: str) -> HttpResponse:
    """Say that a month is about to be closed."""
    return _do(request, period, commands.soft_close_period, "{} is soft-closed.")


@require_POST
def close(request: HttpRequest, period: str) -> HttpResponse:
    """Close a month whose checks are met."""
    closing.need_to_close(actor_of(request))
    checks = closing.checklist(read_period(period), now=timezone.now())
    return _do(request, period, partial(commands.close_period, checks=checks), "{} is closed.")


@require_POST
def ask(request: HttpRequest, period: str) -> HttpResponse:
    """Ask to open a closed month again."""
    form = ReasonForm(request.POST)
    if not form.is_valid():
        return _show(request, read_period(period), form=form)
    asking = partial(commands.ask_to_reopen_period, reason=form.cleaned_data["reason"])
    return _do(request, period, asking, "Asked. Somebody else has to approve.")


@require_POST
def approve(request: HttpRequest, period: str) -> HttpResponse:
    """Open a month again that somebody else asked for."""
    return _do(request, period, commands.approve_reopening, "{} is open again.")


@require_POST
def decline(request: HttpRequest, period: str) -> HttpResponse:
    """Leave a month closed."""
    return _do(request, period, commands.decline_reopening, "{} stays closed.")


def _do(request: HttpRequest, named: str, doing: Doing, said: str) -> HttpResponse:
    actor, period = actor_of(request), read_period(named)
    closing.need_to_close(actor)
    try:
        who = {"user_id": actor.need_person(), "by": meta_of(actor), "now": timezone.now()}
        position = doing(default_store(), period, **who)
    except Refusal as refused:
        return _show(request, period, refusal=refused)
    return done(request, f"/finance/months/{period}", position, said.format(period))


def _show(
    request: HttpRequest,
    period: Period,
    *,
    form: ReasonForm | None = None,
    refusal: Refusal | None = None,
) -> HttpResponse:
    actor = actor_of(request)
    closing.need_to_close(actor)
    seen, now = month(period), timezone.now()
    open_still = seen.state != "closed"
    checks = closing.checklist(period, now=now) if open_still else []
    context: dict[str, Any] = {
        "period": period,
        "seen": seen,
        "row": seen.row,
        "means": STATES[seen.state],
        "over": now >= period.window.ends_at,
        "ends_at": period.window.ends_at,
        "checks": checks,
        "ready": all(each.passed for each in checks),
        "names": _names(seen),
        "mine": _asked_by(actor, seen),
        "formats": exports.FORMATS,
        "form": form or ReasonForm(),
    }
    invalid = form is not None and bool(form.errors)
    return page(request, "pages/month.html", context, refusal=refusal, invalid=invalid)


def _asked_by(actor: Actor, seen: MonthSeen) -> bool:
    """Tell if it was the visitor who asked to open the month again."""
    return seen.row is not None and seen.row.reopening_by == actor.user_id


def _names(seen: MonthSeen) -> dict[str, str]:
    """Return who did what, by the name of the field."""
    if seen.row is None:
        return {}
    fields = ("soft_closed_by", "closed_by", "reopening_by", "reopened_by", "reopened_with")
    keys: dict[str, UUID | None] = {name: getattr(seen.row, name) for name in fields}
    known = people(key for key in keys.values() if key)
    return {name: known[key].title for name, key in keys.items() if key in known}
