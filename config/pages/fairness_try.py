"""A policy tried before it binds: on the book as it is, and on the last hours run again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from config.pages.answers import page
from config.pages.lab import lines_of
from config.pages.markets import choice_of, market_of
from config.pages.policies import form_of, may_set
from config.pages.policy_choices import choices_of
from config.pages.policy_form import PolicyForm
from config.pages.policy_forms import FORMS
from config.pages.policy_words import event_text
from ledger.access import Actor, PlatformOnly
from ledger.access.visits import actor_of
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from marketplace.domain.eligibility import REASONS
from marketplace.domain.governance import Setter
from marketplace.domain.governance_rules import Policy
from marketplace.lab.comparing import HOURS_MAX, Comparison, Question, compare
from marketplace.lab.running import Variant
from marketplace.queries.asked_policies import policy_of
from marketplace.queries.quota_trials import ADMITTED, Trial, recorded_by, try_policies

STANDS = {
    ADMITTED: "let through",
    "nominal": "within nominal quota",
    "borrowed": "borrowed",
    "refused": "over quota: it stays, nothing like it would come",
    "free": "no quota speaks of it",
}


class PastForm(forms.Form):
    """How much of the past is run again under the policy."""

    hours = forms.IntegerField(
        label="Run the past again",
        required=False,
        min_value=1,
        max_value=HOURS_MAX,
        help_text="The last hours, under the policy. Empty: none.",
    )


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show the form, and once it is sent what would change. It only looks, so it is a GET."""
    actor, market = actor_of(request), market_of(request)
    form_class = form_of(request.GET.get("kind", "quota"))
    if not _may_try(actor, form_class):
        actor.need("operator")
        raise PlatformOnly()
    choices = choices_of(actor, market, settings.ENV.currency)
    asked = any(name in request.GET for name in form_class.base_fields if name != "market")
    form = form_class(request.GET if asked else None, choices=choices, trying=True)
    past = PastForm(request.GET if asked else None)
    kind = form_class.kind
    context: dict[str, Any] = {
        **choice_of(market, "/fairness/try", f"kind={kind}"),
        "kinds": [each for each in FORMS.values() if _may_try(actor, each)],
        "form": form,
        "past_form": past if actor.sees_all else None,
    }
    if not asked or not form.is_valid() or not past.is_valid():
        return page(request, "pages/fairness_try.html", context, invalid=asked)
    try:
        context |= _tried(actor, form, past.cleaned_data["hours"] if actor.sees_all else None)
    except Refusal as refusal:
        at_field = form.refuse(refusal)
        shown = None if at_field else refusal
        return page(request, "pages/fairness_try.html", context, refusal=shown, invalid=True)
    if may_set(actor, form_class):
        context["so"] = form_class(choices=choices, initial=request.GET.dict(), auto_id="so_%s")
    return page(request, "pages/fairness_try.html", context)


def _may_try(actor: Actor, form: type[PolicyForm]) -> bool:
    """Tell if an actor may try a kind: what it may set; an auditor sees all and may try all."""
    return form.can_be_tried and (actor.sees_all or may_set(actor, form))


def _tried(actor: Actor, form: PolicyForm, hours: int | None) -> dict[str, Any]:
    """Return what would change, and what would have come of the last hours."""
    market, now, currency = form.choices.market, timezone.now(), form.choices.currency
    setter = Setter(actor.tenant_id, actor.sees_all)
    policy = policy_of(form.kind, form.asked(), actor, market=market, currency=currency, now=now)
    trial = try_policies(
        default_store(), actor, market=market, policies=[policy], setter=setter, now=now
    )
    found = {"said": event_text(policy, form.choices.titles), **_shown(trial, form.choices.titles)}
    if hours is not None:
        past = _past(market, hours, [policy], setter, now)
        found |= {"past": past, "lines": lines_of(past, currency)}
    return found


def _past(
    market: str, hours: int, policies: list[Policy], setter: Setter, now: datetime
) -> Comparison:
    env, store = settings.ENV, default_store()
    found = recorded_by(store, policies, market=market, setter=setter)
    present = Variant(round_seconds=env.round_seconds)
    variant = Variant(round_seconds=env.round_seconds, policies=found)
    return compare(
        store,
        market=market,
        currency=env.currency,
        question=Question(hours, variant, env.fee_ppm),
        present=present,
        fee_ppm=env.fee_ppm,
        now=now,
    )


def _shown(trial: Trial, titles: Mapping[str, str]) -> dict[str, Any]:
    changes = [
        {
            "what": f"Bid {str(each.bid_id)[:8]}",
            "href": f"/bids/{each.bid_id}",
            "title": titles.get(each.unit, each.unit),
            "gpus": each.gpus,
            "before": _stands(each.before),
            "after": _stands(each.after),
        }
        for each in trial.bid_changes
    ] + [
        {
            "what": f"Lease {str(each.lease_id)[:8]}",
            "href": f"/leases/{each.lease_id}",
            "title": titles.get(each.unit, each.unit),
            "gpus": f"{each.gpus} {each.gpu_class}",
            "before": _stands(each.before),
            "after": _stands(each.after),
        }
        for each in trial.lease_changes
    ]
    queues = [
        {
            "title": titles.get(each.unit, each.unit),
            "place_before": each.place_before or "\N{EN DASH}",
            "place_after": each.place_after,
            "share_before": _share(each.share_before),
            "share_after": _share(each.share_after),
            "available_before": _available(each.available_before),
            "available_after": _available(each.available_after),
        }
        for each in trial.queues
    ]
    return {"trial": trial, "changes": changes, "queues": queues}


def _stands(name: str) -> str:
    return STANDS.get(name) or REASONS.get(name, name)


def _share(share: float | None) -> str:
    return "\N{EN DASH}" if share is None else f"{share:.4g}"


def _available(gpus: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in gpus.items()) or "not bound"
