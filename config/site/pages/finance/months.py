"""Months: how far each is closed, what has to be in order before, and opening one again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from config.site.forms.answers import done, meta_of, page
from config.site.pages.finance.kinds import KINDS
from config.site.pages.finance.steps import MENDED, PLACES, steps_of
from ledger import closing, exports
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.commands import closing as commands
from ledger.domain.closing import Check, Point
from ledger.domain.closings import differences
from ledger.domain.holds import TEXT_LENGTH_MAX
from ledger.domain.periods import Period, read_period
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.eventstore.port import Position
from ledger.invoicing import to_invoice
from ledger.queries import people
from ledger.queries.closing import MonthSeen, closings, month, months, recorded_between
from ledger.queries.disputes import disputes

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
        "tab": "months",
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


@require_safe
def exports_state(request: HttpRequest, period: str) -> HttpResponse:
    """The exports of a closed month alone; once they are there the page is shown anew."""
    closing.need_to_close(actor_of(request))
    asked = read_period(period)
    context = _exports(asked, month(asked))
    answer = render(request, "pages/month_exports.html", context)
    if not context["waits"]:
        answer["HX-Redirect"] = f"/finance/months/{asked}"
    return answer


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
    over = now >= period.window.ends_at
    checks = closing.checklist(period, now=now) if seen.state != "closed" else []
    context: dict[str, Any] = {
        "tab": "months",
        "seen": seen,
        "means": STATES[seen.state],
        "over": over,
        "ends_at": period.window.ends_at,
        "steps": steps_of(seen, over=over, ready=all(each.passed for each in checks)),
        "checks": [_checked(each) for each in checks],
        "ready": all(each.passed for each in checks),
        "left": sum(not each.passed for each in checks),
        "to_invoice": to_invoice(period).count() if checks else 0,
        "contested": _contested(actor, period) if checks else 0,
        "names": _names(seen),
        "mine": _asked_by(actor, seen),
        "form": form or ReasonForm(),
        **_exports(period, seen),
        **_changes(period, seen),
    }
    invalid = form is not None and bool(form.errors)
    return page(request, "pages/month.html", context, refusal=refusal, invalid=invalid)


def _exports(period: Period, seen: MonthSeen) -> dict[str, Any]:
    waits = seen.state == "closed" and seen.row is not None and not seen.row.exports
    return {"period": period, "row": seen.row, "waits": waits, "formats": exports.FORMATS}


def _contested(actor: Actor, period: Period) -> int:
    """Return how many charges of a month are contested and not decided."""
    rows = disputes(actor).filter(state="open", starts_at__gte=period.window.starts_at)
    return rows.filter(starts_at__lt=period.window.ends_at).count()


def _checked(check: Check) -> dict[str, Any]:
    """Return a line of the checklist with where it is mended, and its open points with theirs."""
    points = [(each.words, _place(each)) for each in check.points]
    return {"check": check, "points": points, "mended": MENDED.get(check.name)}


def _place(point: Point) -> str:
    return PLACES[point.what].format(point.key) if point.what in PLACES else ""


def _changes(period: Period, seen: MonthSeen) -> dict[str, Any]:
    """Return what is other than when the month was closed before, if it ever was."""
    times = closings(default_store(), period)
    if not times or (len(times) == 1 and times[0].reopened is None):
        return {"before": None}
    is_closed = seen.state == "closed"
    before = times[-2] if is_closed else times[-1]
    after = times[-1] if is_closed else None
    came = recorded_between(period, before.position, after.position if after else None)
    return {
        "before": before,
        "after": after,
        "came": [(KINDS.get(each.kind, each.kind), each.entries) for each in came],
        "came_total": sum(each.entries for each in came),
        "differences": differences(before, after) if after and after.exports else [],
    }


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
