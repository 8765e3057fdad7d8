"""A policy tried before it binds: on the book as it is, and on the last hours run again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from config.pages.answers import page
from config.pages.lab import lines_of
from ledger.access import Actor, PlatformOnly
from ledger.access.visits import actor_of
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.queries.parties import unit_titles
from marketplace.domain.eligibility import REASONS
from marketplace.domain.governance import GPUS_MAX, HALF_LIFE_SECONDS_MAX, WEIGHT_PPM_MAX, Setter
from marketplace.domain.governance_events import HalfLifeSet, QuotaSet, ShareWeightSet
from marketplace.domain.governance_rules import Policy
from marketplace.lab.comparing import HOURS_MAX, Comparison, Question, compare
from marketplace.lab.running import Variant
from marketplace.queries.quota_shares import shares_now
from marketplace.queries.quota_trials import ADMITTED, Trial, recorded_by, try_policies

SECONDS_PER_HOUR = 3_600
PPM = 1_000_000
STANDS = {
    ADMITTED: "let through",
    "nominal": "within nominal quota",
    "borrowed": "borrowed",
    "refused": "over quota: it stays, nothing like it would come",
    "free": "no quota speaks of it",
}


def _gpus(label: str) -> forms.IntegerField:
    return forms.IntegerField(label=label, required=False, min_value=0, max_value=GPUS_MAX)


class TryForm(forms.Form):
    """One quota, a weight and a half-life; what is left empty is not tried."""

    node = forms.ChoiceField(label="Queue or cohort")
    gpu_class = forms.CharField(label="Class of GPUs", required=False, max_length=40)
    nominal = _gpus("Nominal quota")
    borrowing = _gpus("Borrows")
    lending = _gpus("Lends")
    gpu_hours = forms.IntegerField(label="GPU-hours", required=False, min_value=0)
    weight = forms.DecimalField(
        label="Weight", required=False, min_value=0, max_value=WEIGHT_PPM_MAX // PPM
    )
    half_life = forms.IntegerField(
        label="Half-life",
        required=False,
        min_value=1,
        max_value=HALF_LIFE_SECONDS_MAX // SECONDS_PER_HOUR,
    )
    hours = forms.IntegerField(label="Last hours", required=False, min_value=1, max_value=HOURS_MAX)

    def __init__(self, nodes: Iterable[tuple[str, str]], *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.fields["node"] = forms.ChoiceField(label="Queue or cohort", choices=list(nodes))

    def policies(self, market: str, now: datetime) -> list[Policy]:
        """Return what is tried, once the form is valid."""
        asked, found = self.cleaned_data, list[Policy]()
        if asked["gpu_class"]:
            found.append(
                QuotaSet(
                    market=market,
                    node=asked["node"],
                    gpu_class=asked["gpu_class"],
                    nominal=asked["nominal"],
                    borrowing=asked["borrowing"],
                    lending=asked["lending"],
                    at=now,
                    gpu_hours=asked["gpu_hours"],
                )
            )
        if asked["weight"] is not None:
            ppm = int(asked["weight"] * PPM)
            found.append(ShareWeightSet(market=market, node=asked["node"], weight_ppm=ppm, at=now))
        if asked["half_life"] is not None:
            seconds = asked["half_life"] * SECONDS_PER_HOUR
            found.append(HalfLifeSet(market=market, seconds=seconds, at=now))
        return found


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show the form, and once it is sent what would change. It only looks, so it is a GET."""
    actor = actor_of(request)
    if not actor.sees_all:
        raise PlatformOnly()
    env, now = settings.ENV, timezone.now()
    titles = {str(unit): title for unit, title in unit_titles(actor).items()}
    asked = "node" in request.GET
    form = TryForm(_nodes(actor, titles, now), request.GET if asked else None)
    context: dict[str, Any] = {"form": form}
    if not asked or not form.is_valid():
        return page(request, "pages/fairness_try.html", context, invalid=asked)
    # An auditor sees all and sets nothing, but may try.
    setter, policies = Setter(actor.tenant_id, True), form.policies(env.market, now)
    try:
        trial = try_policies(
            default_store(), actor, market=env.market, policies=policies, setter=setter, now=now
        )
        context |= _shown(trial, titles)
        if form.cleaned_data["hours"] is not None:
            past = _past(form.cleaned_data["hours"], policies, setter, now)
            context |= {"past": past, "lines": lines_of(past, env.currency)}
    except Refusal as refusal:
        return page(request, "pages/fairness_try.html", context, refusal=refusal)
    return page(request, "pages/fairness_try.html", context)


def _nodes(actor: Actor, titles: Mapping[str, str], now: datetime) -> list[tuple[str, str]]:
    shares = shares_now(default_store(), actor, market=settings.ENV.market, now=now)
    if shares is None:
        return []
    found = {
        node.node: titles.get(node.node, f"{node.node} (cohort)" if node.is_cohort else node.node)
        for each in shares.classes
        for node in each.nodes
    }
    found |= {
        each.share.node: titles.get(each.share.node, each.share.node) for each in shares.places
    }
    return sorted(found.items(), key=lambda pair: pair[1])


def _past(hours: int, policies: list[Policy], setter: Setter, now: datetime) -> Comparison:
    env, store = settings.ENV, default_store()
    found = recorded_by(store, policies, market=env.market, setter=setter)
    present = Variant(round_seconds=env.round_seconds)
    variant = Variant(round_seconds=env.round_seconds, policies=found)
    return compare(
        store,
        market=env.market,
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
