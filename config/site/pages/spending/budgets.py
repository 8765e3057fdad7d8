"""Budgets: how they stand, what they are likely to come to, and grants that raise them."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast
from uuid import UUID, uuid5

from django import forms
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from config.site.forms.answers import done, meta_of, page
from config.site.forms.fields import MomentField, MoneyField, TokenField
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.domain.accounts import PAYING_KINDS
from ledger.domain.events import Role
from ledger.domain.money import Money
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.eventstore.port import Position
from ledger.queries import people, subscribers
from ledger.queries.money import accounts
from ledger.queries.parties import members
from marketplace.commands import spending as commands
from marketplace.domain.spending.budget import PPM
from marketplace.domain.spending.budgets import (
    TITLE_CHARS_MAX,
    WHY_CHARS_MAX,
    SpendingBudgetUnknown,
)
from marketplace.domain.spending.events import (
    BudgetAction,
    BudgetScope,
    RollOver,
    SpendingBudgetSet,
    SpendingGrantAsked,
    SpendingPeriod,
    Threshold,
)
from marketplace.models.spending import SpendingBudgetRow
from marketplace.queries import spending as queries

CURRENCY = "USD"
SHOWN_MAX = 200
PERCENT = PPM // 100
SCOPES = [
    ("tenant", "All of the organisation"),
    ("unit", "One unit"),
    ("person", "One person"),
    ("project", "One project"),
    ("kind", "One kind of work"),
]
SETS: frozenset[Role] = frozenset({"finance", "operator"})
"""Roles that set budgets of their organisation."""
DOES = {"notify": "notify", "block": "block new bids", "pause": "pause and block"}


class BudgetForm(forms.Form):
    """A new budget."""

    token = TokenField()
    title = forms.CharField(label="Title", max_length=TITLE_CHARS_MAX)
    scope = forms.ChoiceField(label="Of whom", choices=SCOPES)
    unit = forms.ChoiceField(label="Unit", required=False)
    person = forms.ChoiceField(label="Person", required=False)
    subject = forms.CharField(label="Project or kind of work", required=False, max_length=64)
    amount = MoneyField(label="Amount", currency=CURRENCY)
    currency = forms.ChoiceField(label="Currency", required=False)
    period = forms.ChoiceField(
        label="Each",
        choices=[("month", "month"), ("week", "week"), ("quarter", "quarter"), ("year", "year")],
    )
    roll_over = forms.ChoiceField(
        label="What rolls over",
        choices=[
            ("none", "nothing"),
            ("unused", "what was not used"),
            ("overspent", "what was overspent"),
            ("both", "both"),
        ],
    )
    unused = forms.IntegerField(
        label="Unused, at most", min_value=0, max_value=100, required=False, initial=20
    )
    notify_first = forms.IntegerField(label="Notify at", min_value=1, max_value=200, initial=50)
    notify_second = forms.IntegerField(
        label="Notify again at", min_value=1, max_value=200, required=False, initial=80
    )
    full = forms.IntegerField(label="When used to", min_value=1, max_value=200, initial=100)
    action = forms.ChoiceField(
        label="Then",
        choices=[
            ("notify", "notify only"),
            ("block", "block new bids"),
            ("pause", "pause what may be paused, and block"),
        ],
        initial="block",
    )
    zone = forms.CharField(label="Time zone", max_length=64, initial="UTC")

    def __init__(self, data: Any, *, actor: Actor) -> None:
        super().__init__(data)
        units = subscribers(actor, actor.tenant_id).order_by("title")
        known = members(actor).order_by("user_id")
        named = people(row.user_id for row in known)
        choices = [(str(pk), person.title) for pk, person in named.items()]
        of_units = [(str(row.subscriber_id), row.title) for row in units]
        currencies = currencies_of(actor)
        cast(forms.ChoiceField, self.fields["currency"]).choices = [(c, c) for c in currencies]
        cast(forms.ChoiceField, self.fields["unit"]).choices = [("", "—"), *of_units]
        cast(forms.ChoiceField, self.fields["person"]).choices = [("", "—"), *choices]


def currencies_of(actor: Actor) -> list[str]:
    """Return in what the organisation pays: that of most of its accounts first."""
    rows = accounts(actor).filter(tenant_id=actor.tenant_id, kind__in=PAYING_KINDS)
    counted = Counter(rows.values_list("currency", flat=True))
    return [currency for currency, _ in counted.most_common()] or [CURRENCY]


class GrantForm(forms.Form):
    """More for a while."""

    token = TokenField()
    amount = MoneyField(label="Grant", currency=CURRENCY)
    until = MomentField(label="Until")
    why = forms.CharField(label="Reason", max_length=WHY_CHARS_MAX)


@require_http_methods(["GET", "HEAD", "POST"])
def index(request: HttpRequest) -> HttpResponse:
    """Every budget the visitor may see, and a form for a new one; sent, make it."""
    actor = actor_of(request)
    actor.need_scope("market:read")
    may_set, refusal = bool(actor.roles & SETS), None
    form = BudgetForm(request.POST or None, actor=actor) if may_set else None
    if request.method == "POST":
        actor.need_scope("billing:write")
        assert form is not None
        if form.is_valid():
            try:
                return _made(request, actor, form.cleaned_data)
            except Refusal as refused:
                refusal = refused
    rows = queries.spending_budgets(actor).order_by("title", "budget_id")
    standings = queries.standings(rows[:SHOWN_MAX], default_store(), now=timezone.now())
    context = {
        "budgets": [seen(actor, each) for each in standings],
        "form": form,
        "may_set": may_set,
        "sees_all": actor.sees_all,
    }
    invalid = form is not None and bool(form.errors)
    return page(request, "pages/budgets.html", context, refusal=refusal, invalid=invalid)


@require_safe
def one(request: HttpRequest, budget_id: UUID) -> HttpResponse:
    """One budget: its figures, its thresholds and their history, its grants."""
    return _show(request, budget_id)


@require_POST
def end(request: HttpRequest, budget_id: UUID) -> HttpResponse:
    """End a budget."""
    actor = actor_of(request)
    actor.need_scope("billing:write")
    _row(actor, budget_id)
    position = commands.end_spending_budget(
        default_store(),
        tenant_id=actor.tenant_id,
        budget_id=budget_id,
        user_id=actor.user_id,
        by=meta_of(actor),
        now=timezone.now(),
    )
    return done(request, "/budgets", position, "The budget is ended.")


@require_POST
def grant(request: HttpRequest, budget_id: UUID) -> HttpResponse:
    """Raise a budget for a while, or ask a second person to."""
    actor, now = actor_of(request), timezone.now()
    actor.need_scope("billing:write")
    row, form = _row(actor, budget_id), GrantForm(request.POST)
    if not form.is_valid():
        return _show(request, budget_id, form=form)
    said = form.cleaned_data
    asked = SpendingGrantAsked(
        tenant_id=actor.tenant_id,
        budget_id=budget_id,
        grant_id=uuid5(budget_id, f"grant:{said['token']}"),
        money=Money(said["amount"].nanos, row.currency),
        starts_at=now,
        until=said["until"],
        why=said["why"],
        alone=False,
        by=actor.need_person(),
        at=now,
    )
    try:
        by = meta_of(actor, said["token"])
        position = commands.ask_spending_grant(default_store(), asked=asked, by=by)
    except Refusal as refused:
        return _show(request, budget_id, form=form, refusal=refused)
    return done(request, f"/budgets/{budget_id}", position, "It is granted, or asked for.")


@require_POST
def decide(request: HttpRequest, budget_id: UUID, grant_id: UUID) -> HttpResponse:
    """Approve or decline a grant that somebody else asked for."""
    actor = actor_of(request)
    actor.need_scope("billing:write")
    _row(actor, budget_id)
    approved = request.POST.get("approved") == "yes"
    try:
        position: Position = commands.decide_spending_grant(
            default_store(),
            tenant_id=actor.tenant_id,
            budget_id=budget_id,
            grant_id=grant_id,
            approved=approved,
            user_id=actor.need_person(),
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refused:
        return _show(request, budget_id, refusal=refused)
    said = "The grant is approved." if approved else "The grant is declined."
    return done(request, f"/budgets/{budget_id}", position, said)


def seen(actor: Actor, standing: queries.Standing) -> dict[str, Any]:
    """Return a budget as pages show it: its words, and its bar in parts of the whole."""
    row, limit = standing.row, max(standing.limit, 1)
    whole = max(limit, standing.used, standing.forecast.high)
    marks = [
        {
            "at": f"{min(each['at_ppm'] * limit / PPM / whole * 100, 100):.1f}",
            "text": f"{each['at_ppm'] // PERCENT} %: {DOES[each['action']]}",
        }
        for each in row.thresholds
    ]
    return {
        "standing": standing,
        "row": row,
        "whose": _whose(actor, row),
        "percent": standing.spent * 100 // limit,
        "spent_width": f"{standing.spent / whole * 100:.1f}",
        "held_width": f"{standing.held / whole * 100:.1f}",
        "forecast_at": f"{standing.forecast.expected / whole * 100:.1f}",
        "over": standing.forecast.expected > standing.limit,
        "marks": marks,
    }


def _show(
    request: HttpRequest,
    budget_id: UUID,
    *,
    form: GrantForm | None = None,
    refusal: Refusal | None = None,
) -> HttpResponse:
    actor = actor_of(request)
    actor.need_scope("market:read")
    row = _row(actor, budget_id)
    standings = queries.standings([row], default_store(), now=timezone.now())
    if not standings:
        raise SpendingBudgetUnknown(budget_id=budget_id)
    grants = list(queries.grants_of(actor, [budget_id])[:SHOWN_MAX])
    named = people(each.asked_by for each in grants)
    may_set = bool(actor.roles & SETS) and row.tenant_id == actor.tenant_id
    context = {
        **(bar := seen(actor, standings[0])),
        "bar": bar,
        "grants": [
            {
                "row": each,
                "by": named[each.asked_by].title if each.asked_by in named else "somebody",
                "mine": each.asked_by == actor.user_id,
            }
            for each in grants
        ],
        "crossings": [
            {"row": each, "percent": each.at_ppm // PERCENT, "does": DOES[each.action]}
            for each in queries.crossings_of(actor, [budget_id])[:SHOWN_MAX]
        ],
        "form": (form or GrantForm()) if may_set else None,
        "may_set": may_set,
    }
    invalid = form is not None and bool(form.errors)
    return page(request, "pages/budget.html", context, refusal=refusal, invalid=invalid)


def _row(actor: Actor, budget_id: UUID) -> SpendingBudgetRow:
    found = queries.spending_budgets(actor).filter(pk=budget_id).first()
    if found is None:
        raise SpendingBudgetUnknown(budget_id=budget_id)
    return found


def _whose(actor: Actor, row: SpendingBudgetRow) -> str:
    """Return in words whose spending counts."""
    match row.scope:
        case "unit":
            unit = subscribers(actor, row.tenant_id).filter(pk=UUID(row.subject)).first()
            return f"unit {unit.title if unit else row.subject}"
        case "person":
            person = people([UUID(row.subject)]).get(UUID(row.subject))
            return person.title if person else row.subject
        case "project" | "kind":
            return f"{row.scope} {row.subject}"
        case _:
            return "all of the organisation"


def _made(request: HttpRequest, actor: Actor, said: dict[str, Any]) -> HttpResponse:
    scope = said["scope"]
    subject = said[scope] if scope in ("unit", "person") else said["subject"]
    # Never the token itself: no form may name what another organisation has.
    budget_id = uuid5(actor.tenant_id, f"budget:{said['token']}")
    thresholds = {(said["notify_first"], "notify"), (said["full"], said["action"])}
    if said["notify_second"]:
        thresholds.add((said["notify_second"], "notify"))
    terms = SpendingBudgetSet(
        tenant_id=actor.tenant_id,
        budget_id=budget_id,
        title=said["title"],
        scope=cast(BudgetScope, scope),
        subject=queries.subject_of(actor, scope, "" if scope == "tenant" else subject),
        amount=Money(said["amount"].nanos, said["currency"] or currencies_of(actor)[0]),
        period=cast(SpendingPeriod, said["period"]),
        roll_over=cast(RollOver, said["roll_over"]),
        unused_ppm=(said["unused"] or 0) * PERCENT,
        thresholds=tuple(
            Threshold(at * PERCENT, cast(BudgetAction, action)) for at, action in sorted(thresholds)
        ),
        zone=said["zone"],
        by=actor.user_id,
        at=timezone.now(),
    )
    by = meta_of(actor, said["token"])
    position = commands.set_spending_budget(default_store(), terms=terms, by=by)
    return done(request, f"/budgets/{budget_id}", position, "The budget is set.")
