"""Policies tried before they bind, one or several: on the book, the last days, the last hours."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from config.site.forms.answers import page
from config.site.pages.fairness.trial_tables import past_shown, trial_shown
from config.site.pages.lab.tables import result_of, running_of
from config.site.pages.lab.views import QuestionUnclear
from config.site.pages.market.choosing import choice_of, market_of
from config.site.pages.policies.choices import choices_of
from config.site.pages.policies.forms import FORMS
from config.site.pages.policies.one_form import PolicyForm, TogetherForm
from config.site.pages.policies.plan import PERMISSIONS, Plan
from config.site.pages.policies.views import form_of, may_set
from ledger.access import Actor, PlatformOnly
from ledger.access.visits import actor_of
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from marketplace.domain.governance.authority import Setter
from marketplace.lab.apart import compare_apart
from marketplace.lab.comparing import HOURS_MAX, Job, Question, prepared
from marketplace.lab.variants import Variant
from marketplace.trials.on_the_book import permits_with, recorded_by, try_policies
from marketplace.trials.on_the_past import DAYS, DAYS_MAX, refused_at

NOT_TERMS = ("market", "token", "why")


class PastForm(forms.Form):
    """How much of the past is looked at under the policies."""

    hours = forms.IntegerField(
        label="Run the past again",
        required=False,
        min_value=1,
        max_value=HOURS_MAX,
        help_text="The last hours, by the engine, with all of them in force. Empty: not.",
    )
    days = forms.IntegerField(
        label="Look back",
        required=False,
        min_value=1,
        max_value=DAYS_MAX,
        help_text="Over these days: what who may do what would have refused.",
        widget=forms.NumberInput(attrs={"placeholder": str(DAYS)}),
    )


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show the form, and once it is sent what would change. It only looks, so it is a GET.

    The last hours are run again by the page's socket; with `wait` they are waited for here.
    """
    actor, now = actor_of(request), timezone.now()
    form = _form(request, actor)
    context: dict[str, Any] = {"form": form}
    past = PastForm(request.GET)
    try:
        plan = _plan(request, actor, form)
        sound = plan.read(actor, now=now) and past.is_valid()
    except Refusal as refusal:
        shown = None if form.is_bound and form.is_valid() and form.refuse(refusal) else refusal
        context |= choice_of(form.choices.market, "/fairness/try", f"kind={form.kind}")
        return page(request, "pages/fairness_try.html", context, refusal=shown, invalid=True)
    context |= _about(request, actor, plan, past, form)
    if not sound or not plan.parts:
        return page(request, "pages/fairness_try.html", context, invalid=not sound)
    try:
        context |= _tried(request, actor, plan, past, now)
    except Refusal as refusal:
        shown = None if _refused(plan, actor, refusal) and form.is_bound else refusal
        return page(request, "pages/fairness_try.html", context, refusal=shown, invalid=True)
    if all(may_set(actor, type(part.form)) for part in plan.parts):
        context |= _make_it_so(request, plan)
    return page(request, "pages/fairness_try.html", context)


def _form(request: HttpRequest, actor: Actor) -> PolicyForm:
    """Return the form of the kind that is looked at, with what the address says of it."""
    of = form_of(request.GET.get("kind", "quota"))
    if not _may_try(actor, of):
        actor.need("operator")
        raise PlatformOnly()
    choices = choices_of(actor, market_of(request), settings.ENV.currency)
    terms = [name for name in of(choices=choices).fields if name not in NOT_TERMS]
    asked = any(request.GET.get(name) for name in terms)
    return of(request.GET if asked else None, choices=choices, trying=True)


def _plan(request: HttpRequest, actor: Actor, form: PolicyForm) -> Plan:
    kept = request.GET.getlist("with")
    plan = Plan(kept, form.choices, lambda each: _may_try(actor, each))
    if form.is_bound:
        plan.add(form)
    return plan


def _may_try(actor: Actor, form: type[PolicyForm]) -> bool:
    """Tell if an actor may try a kind: what it may set; an auditor sees all and may try all."""
    return form.can_be_tried and (actor.sees_all or may_set(actor, form))


def _about(
    request: HttpRequest, actor: Actor, plan: Plan, past: PastForm, form: PolicyForm
) -> dict[str, Any]:
    """Return what is tried, and where the links of the page lead."""
    market = form.choices.market
    looks = {name: request.GET.get(name) for name in ("hours", "days") if request.GET.get(name)}
    chosen = choice_of(market, "/fairness/try", f"kind={form.kind}")
    if chosen["market_links"]:
        looks["market"] = market
    plan.link_parts(**looks)
    in_form = len(plan.parts) if plan.parts and plan.parts[-1].form is form else 0
    kept = plan.queries[:-1] if in_form else plan.queries
    return {
        **chosen,
        "plan": plan,
        "in_form": in_form,
        "kept": kept,
        "add": [
            {"kind": each.kind, "title": each.title, "href": plan.link(each.kind, **looks)}
            for each in FORMS.values()
            if _may_try(actor, each)
        ],
        "past_form": past if actor.sees_all else None,
        "asks_days": plan.speaks_of_permissions or form.kind in PERMISSIONS,
    }


def _make_it_so(request: HttpRequest, plan: Plan) -> dict[str, Any]:
    (*others, last) = plan.parts
    if others:
        return {"so": TogetherForm(initial={"market": plan.choices.market}, auto_id="so_%s")}
    of, initial = type(last.form), request.GET.dict()
    return {"so": of(choices=plan.choices, initial=initial, auto_id="so_%s")}


def _refused(plan: Plan, actor: Actor, refusal: Refusal) -> bool:
    """Put a refusal at the policy that it is about; tell if a field of the form has it now."""
    market = plan.choices.market
    at = refused_at(default_store(), market=market, policies=plan.policies, setter=_setter(actor))
    return at is not None and plan.refuse(at, refusal) and at == len(plan.parts) - 1


def _setter(actor: Actor) -> Setter:
    return Setter(actor.tenant_id, actor.sees_all)


def _tried(
    request: HttpRequest, actor: Actor, plan: Plan, past: PastForm, now: datetime
) -> dict[str, Any]:
    """Return what would change, and what would have come of the last days and hours."""
    choices, asked = plan.choices, past.cleaned_data
    trial = try_policies(
        default_store(),
        actor,
        market=choices.market,
        policies=plan.policies,
        setter=_setter(actor),
        now=now,
        days=asked["days"],
    )
    found = trial_shown(trial, choices.titles)
    if trial.past is not None:
        names = {**choices.titles, **dict(choices.tenants)}
        found |= past_shown(trial.past, names)
    if asked["hours"] is None or not actor.sees_all:
        return found
    if "wait" not in request.GET:
        return found | running_of(request)
    ran = compare_apart(job_of(request))
    return found | result_of(ran, actor, choices.currency, "Then")


def job_of(request: HttpRequest) -> Job:
    """Return what the page's address asks of the lab: the last hours, with the policies in force.

    Raises: PlatformOnly, QuestionUnclear, and as `prepared`.
    """
    actor, now = actor_of(request), timezone.now()
    if not actor.sees_all:
        raise PlatformOnly()
    plan, past = _plan(request, actor, _form(request, actor)), PastForm(request.GET)
    if (
        not plan.parts
        or not plan.read(actor, now=now)
        or not past.is_valid()
        or past.cleaned_data["hours"] is None
    ):
        raise QuestionUnclear()
    env, store, market = settings.ENV, default_store(), plan.choices.market
    setter, policies = _setter(actor), plan.policies
    present = Variant(round_seconds=env.round_seconds)
    variant = Variant(
        round_seconds=env.round_seconds,
        policies=recorded_by(store, policies, market=market, setter=setter),
        listing=permits_with(store, policies, market=market, setter=setter),
    )
    return prepared(
        store,
        market=market,
        currency=env.currency,
        question=Question(past.cleaned_data["hours"], variant, env.fee_ppm),
        present=present,
        fee_ppm=env.fee_ppm,
        now=now,
    )
