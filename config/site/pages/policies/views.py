"""The policies of a market: what is set, and the forms that set it, each with its reason.

A platform's operators set everything; a tenant's operators place, endow and limit their own units
and people; others see what concerns them and ask for more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from config.site.forms.answers import done, meta_of, page
from config.site.pages.market.choosing import choice_of, market_of, market_sent
from config.site.pages.policies.choices import Choices, choices_of
from config.site.pages.policies.forms import FORMS, MIB_PER_GIB, PPM, SCOPES, weighable
from config.site.pages.policies.one_form import PolicyForm
from config.site.pages.policies.sentences import event_text
from config.site.parts.paging import part_of
from ledger.access import Actor, PlatformOnly
from ledger.access.visits import actor_of
from ledger.domain.money import decimal_of
from ledger.domain.refusal import Invalid, Refusal, Unknown
from ledger.eventstore import default_store
from ledger.eventstore.port import Position
from marketplace.commands.quotas import lift_override, set_policies
from marketplace.domain.facts.policy_events import LimitSet
from marketplace.domain.governance.authority import Setter
from marketplace.domain.quotas.policies_in_force import span_at
from marketplace.queries import quotas as queries
from marketplace.queries.quota_log import quota_requests
from marketplace.trials.proposed_policies import policy_of

HERE = "/fairness/policies"


class PolicyKindUnknown(Unknown):
    """There is no such kind of policy."""


class ReasonMissing(Invalid):
    """A reason is needed: everybody whom it concerns reads it in the log."""


def setter_of(actor: Actor) -> Setter:
    """Return as whom an actor sets policies."""
    _, is_platform = queries.setter_of(actor)
    return Setter(actor.tenant_id, is_platform, actor.user_id)


def may_set(actor: Actor, form: type[PolicyForm]) -> bool:
    """Tell if an actor is shown a form at all; the rule decides about what is sent."""
    is_operator, is_platform = queries.setter_of(actor)
    return is_platform or (is_operator and form.for_units)


def form_of(kind: str) -> type[PolicyForm]:
    """Return the form of a kind of policy.

    Raises: PolicyKindUnknown.
    """
    if kind not in FORMS:
        raise PolicyKindUnknown(kind=kind[:40], kinds=list(FORMS))
    return FORMS[kind]


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show what is set in a market, and what the visitor may set."""
    return show(request, actor_of(request), market_of(request))


def show(
    request: HttpRequest, actor: Actor, market: str, *, refusal: Refusal | None = None
) -> HttpResponse:
    """Render the policies of a market, with a refusal of what was just asked."""
    store, now = default_store(), timezone.now()
    choices = choices_of(actor, market, settings.ENV.currency)
    titles, found = choices.titles, choices.governed
    _, is_platform = queries.setter_of(actor)
    requests = part_of(request, quota_requests(actor, market), "requests")
    context = {
        **choice_of(market, HERE),
        "forms": [form for form in FORMS.values() if may_set(actor, form)],
        "governs": is_platform,
        "asks": bool(actor.roles & {"consumer", "operator"}),
        "quotas": [(titles.get(each.node, each.node), each) for each in found.quotas],
        "overrides": [
            (titles.get(each.node, each.node), each)
            for each in queries.overrides(store, actor, market=market, now=now)
        ],
        "limits": [_limit_shown(each, choices) for each in found.limits],
        "weights": _weights(actor, choices),
        "half_life": timedelta(seconds=found.half_life_seconds),
        "period": timedelta(seconds=found.period_seconds),
        "running": span_at(now, starts_at=found.period_starts, seconds=found.period_seconds),
        "least_run": timedelta(seconds=found.least_runs.seconds),
        "firm_time": timedelta(seconds=found.least_runs.firm_seconds),
        "least_runs": [(of, timedelta(seconds=each)) for of, each in found.least_runs.classes],
        "counts": found.counts,
        "permits": list(_permits(actor, market, choices)),
        "requests": [
            (titles.get(str(row.subscriber_id), str(row.subscriber_id)), row)
            for row in requests.rows
        ],
        "part": requests,
        "now": now,
    }
    return page(request, "pages/policies.html", context, refusal=refusal)


def _weights(actor: Actor, choices: Choices) -> list[dict[str, Any]]:
    """Return the weights that are set, each with whether this actor may set another."""
    may = may_set(actor, form_of("weight"))
    mine = {node for node, _ in weighable(choices)} if may else set()
    return [
        {
            "title": choices.titles.get(node, node),
            "node": node,
            "weight": f"{ppm / PPM:g}",
            "mine": node in mine,
        }
        for node, ppm in choices.governed.weights.items()
    ]


def _permits(actor: Actor, market: str, choices: Choices) -> Iterator[dict[str, Any]]:
    """Yield who may list, lease or borrow what, each with the fields of its form."""
    names = {**choices.titles, **dict(choices.tenants)}
    for who, gpu_class, allowed in queries.listings_allowed(default_store(), actor, market=market):
        sent = {"tenant_id": who or "", "gpu_class": gpu_class}
        yield _permit(names, str(who or ""), "list", gpu_class, allowed, "listing", sent)
    for name, what, gpu_class, allowed in queries.uses_allowed(
        default_store(), actor, market=market
    ):
        sent = {"who": name or "", "what": what, "gpu_class": gpu_class}
        yield _permit(names, name or "", what, gpu_class, allowed, "use", sent)


def _permit(
    names: Mapping[str, str],
    who: str,
    what: str,
    gpu_class: str,
    allowed: bool,
    kind: str,
    sent: Mapping[str, Any],
) -> dict[str, Any]:
    query = urlencode({**sent, "allowed": "no" if allowed else "yes"})
    return {
        "who": names.get(who, who) or "everybody else",
        "what": what,
        "gpu_class": gpu_class,
        "allowed": allowed,
        "href": f"{HERE}/{kind}?{query}",
    }


def _limit_shown(limit: LimitSet, choices: Choices) -> dict[str, Any]:
    names = {**choices.titles, **dict(choices.tenants), **dict(choices.persons)}
    subject = "" if limit.subject is None else str(limit.subject)
    return {
        "limit": limit,
        "whose": names.get(subject, subject) or SCOPES[limit.scope],
        "memory": None if limit.memory_mib is None else f"{limit.memory_mib / MIB_PER_GIB:g}",
        "whom": f"{limit.scope}:{subject}" if subject else limit.scope,
    }


@require_http_methods(["GET", "HEAD", "POST"])
def one(request: HttpRequest, kind: str) -> HttpResponse:
    """The form of one kind of policy. What is sent is set or, if asked so, tried first."""
    actor, form = actor_of(request), form_of(kind)
    actor.need("operator")
    if not may_set(actor, form):
        raise PlatformOnly()
    if request.method == "POST":
        return _sent(request, actor, form)
    choices = choices_of(actor, market_of(request), settings.ENV.currency)
    initial = {**_as_it_is(form.kind, choices, request), **request.GET.dict()}
    return _form(request, form(choices=choices, initial=initial))


def _form(request: HttpRequest, form: PolicyForm, refusal: Refusal | None = None) -> HttpResponse:
    context = {**choice_of(form.choices.market, f"{HERE}/{form.kind}"), "form": form}
    invalid = bool(form.errors)
    return page(request, "pages/policy.html", context, refusal=refusal, invalid=invalid)


def _sent(request: HttpRequest, actor: Actor, of: type[PolicyForm]) -> HttpResponse:
    market, trying = market_sent(request), request.POST.get("do") == "try"
    choices = choices_of(actor, market, settings.ENV.currency)
    form = of(request.POST, choices=choices, trying=trying)
    if not form.is_valid():
        return _form(request, form)
    if trying:
        query = urlencode([("kind", of.kind), ("market", market), *form.sent])
        return HttpResponseRedirect(f"/fairness/try?{query}")
    try:
        position, said = _set(actor, form, market)
    except Refusal as refusal:
        at_field = form.refuse(refusal)
        return _form(request, form, None if at_field else refusal)
    return done(request, f"{HERE}?market={market}", position, said)


def _set(actor: Actor, form: PolicyForm, market: str) -> tuple[Position, str]:
    """Set what a form says; return where it is in force, and what to tell.

    Raises: every refusal of the rule that it falls under.
    """
    store, now, asked = default_store(), timezone.now(), form.asked()
    by, setter = meta_of(actor, form.cleaned_data["token"]), setter_of(actor)
    policy = policy_of(
        form.kind, asked, actor, market=market, currency=form.choices.currency, now=now
    )
    said = event_text(policy, {**form.choices.titles, **dict(form.choices.tenants)})
    return set_policies(store, policies=[policy], setter=setter, by=by), f"{said}."


def _as_it_is(kind: str, choices: Choices, request: HttpRequest) -> dict[str, Any]:
    """Return what is set of what the form is opened for: a policy takes the place of all of it."""
    found = choices.governed
    match kind:
        case "quota" | "override":
            quota = found.quota(request.GET.get("node", ""), request.GET.get("gpu_class", ""))
            names = ("nominal", "borrowing", "lending", "gpu_hours")
            return {} if quota is None else {name: getattr(quota, name) for name in names}
        case "limit":
            whom = request.GET.get("whom")
            limits = (_limit_shown(each, choices) for each in found.limits)
            return next((_limit_fields(each) for each in limits if each["whom"] == whom), {})
        case "weight":
            ppm = found.weights.get(request.GET.get("node", ""))
            return {} if ppm is None else {"weight": f"{ppm / PPM:g}"}
        case "half-life":
            return {"length": f"{found.half_life_seconds / 3_600:g}"}
        case "counting":
            return {"counts": found.counts}
        case "least-run":
            if request.GET.get("firm"):
                return {"length": f"{found.least_runs.firm_seconds / 3_600:g}", "firm": True}
            of = request.GET.get("gpu_class") or ""
            return {"length": f"{found.least_runs.of(of) / 3_600:g}"}
        case "period":
            return {
                "length": f"{found.period_seconds / 3_600:g}",
                "starts_at": span_at(
                    timezone.now(), starts_at=found.period_starts, seconds=found.period_seconds
                )[0],
            }
        case _:
            return {}


def _limit_fields(shown: Mapping[str, Any]) -> dict[str, Any]:
    limit: LimitSet = shown["limit"]
    return {
        "gpus": limit.gpus,
        "memory": shown["memory"],
        "gpu_hours": limit.gpu_hours,
        "money": None if limit.money is None else decimal_of(limit.money.nanos),
        "period": limit.period,
        "tenant_id": limit.tenant_id or "",
    }


@require_POST
def lift(request: HttpRequest, override_id: UUID) -> HttpResponse:
    """End an override before its time."""
    actor, market = actor_of(request), market_sent(request)
    actor.need_platform()
    why = request.POST.get("why", "").strip()
    try:
        if not why:
            raise ReasonMissing()
        position = lift_override(
            default_store(),
            market=market,
            override_id=override_id,
            why=why,
            setter=setter_of(actor),
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return show(request, actor, market, refusal=refusal)
    return done(request, f"{HERE}?market={market}", position, "The quota is as it was set again.")
