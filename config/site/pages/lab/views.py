"""The policy lab: the last hours of the market, run again under other rules, side by side."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from config.site.forms.answers import page
from config.site.pages.lab.tables import PPM_PER_PERCENT, result_of, running_of
from config.site.pages.market.choosing import choice_of, market_of
from ledger.access import Actor, PlatformOnly
from ledger.access.visits import actor_of
from ledger.domain.refusal import Invalid, Refusal
from ledger.eventstore import default_store
from marketplace.domain.clearing.fills import PRICE_RULES, Rules
from marketplace.domain.governance.dispatch import HALF_LIFE_SECONDS_MAX, LEAST_RUN_SECONDS_MAX
from marketplace.lab.apart import compare_apart
from marketplace.lab.comparing import (
    CANNOT_CHANGE,
    FEE_PPM_MAX,
    HOURS_MAX,
    ROUND_SECONDS_MAX,
    Job,
    Question,
    prepared,
)
from marketplace.lab.variants import Variant

SECONDS_PER_HOUR, SECONDS_PER_MINUTE = 3_600, 60
PRICES = {
    "market": "As the market does",
    "floor": "Floor",
    "midpoint": "Midpoint",
    "limit": "Pay as bid",
}
LANES = {
    "as-bid": "As each bid says",
    "instant": "All at once",
    "patient": "All in rounds",
}


class QuestionUnclear(Invalid):
    """What is asked of the lab cannot be read from this address."""


class LabForm(forms.Form):
    """What to run again, and under which rules."""

    hours = forms.IntegerField(label="Last hours", min_value=1, max_value=HOURS_MAX)
    price = forms.ChoiceField(label="Price rule", choices=list(PRICES.items()))
    lanes = forms.ChoiceField(label="Bids are cleared", choices=list(LANES.items()))
    round_seconds = forms.IntegerField(
        label="Between rounds", min_value=1, max_value=ROUND_SECONDS_MAX
    )
    fee = forms.DecimalField(
        label="Platform fee",
        min_value=0,
        max_value=Decimal(FEE_PPM_MAX) / PPM_PER_PERCENT,
        decimal_places=4,
    )

    preemption = forms.ChoiceField(
        label="Leases are interrupted", choices=[("yes", "As the market does"), ("no", "Never")]
    )
    half_life_hours = forms.IntegerField(
        label="Half-life of use",
        required=False,
        min_value=1,
        max_value=HALF_LIFE_SECONDS_MAX // SECONDS_PER_HOUR,
    )

    least_run_minutes = forms.IntegerField(
        label="Least running time",
        required=False,
        min_value=0,
        max_value=LEAST_RUN_SECONDS_MAX // SECONDS_PER_MINUTE,
    )

    def question(self) -> Question:
        """Return what is asked, once the form is valid."""
        asked = self.cleaned_data
        hours, minutes = asked["half_life_hours"], asked["least_run_minutes"]
        variant = Variant(
            Rules(asked["price"], preemption=asked["preemption"] != "no"),
            asked["lanes"],
            asked["round_seconds"],
            half_life_seconds=None if hours is None else hours * SECONDS_PER_HOUR,
            least_run_seconds=None if minutes is None else minutes * SECONDS_PER_MINUTE,
        )
        return Question(asked["hours"], variant, int(asked["fee"] * PPM_PER_PERCENT))


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show the form, and once it is sent what comes of it. It only looks, so it is a GET.

    The page has the run done by its socket; with `wait` it waits for it here.
    """
    actor, env = _governor(request), settings.ENV
    market, form = market_of(request), _form(request)
    context: dict[str, Any] = {
        **choice_of(market, "/lab"),
        "form": form,
        "kept": CANNOT_CHANGE,
        "prices": [(PRICES[name], text) for name, text in PRICE_RULES.items()],
    }
    if not form.is_bound or not form.is_valid():
        return page(request, "pages/lab.html", context, invalid=form.is_bound)
    if "wait" not in request.GET:
        return page(request, "pages/lab.html", context | running_of(request))
    try:
        found = compare_apart(job_of(request))
    except Refusal as refusal:
        return page(request, "pages/lab.html", context, refusal=refusal)
    return page(request, "pages/lab.html", context | result_of(found, actor, env.currency))


def job_of(request: HttpRequest) -> Job:
    """Return what the page's address asks of the lab.

    Raises: PlatformOnly, QuestionUnclear, and as `prepared`.
    """
    _governor(request)
    form, env = _form(request), settings.ENV
    if not form.is_bound or not form.is_valid():
        raise QuestionUnclear()
    return prepared(
        default_store(),
        market=market_of(request),
        currency=env.currency,
        question=form.question(),
        present=Variant(round_seconds=env.round_seconds),
        fee_ppm=env.fee_ppm,
        now=timezone.now(),
    )


def _governor(request: HttpRequest) -> Actor:
    actor = actor_of(request)
    if not actor.sees_all:
        raise PlatformOnly()
    return actor


def _form(request: HttpRequest) -> LabForm:
    env = settings.ENV
    present = {
        "hours": 24,
        "price": "market",
        "lanes": "as-bid",
        "round_seconds": env.round_seconds,
        "preemption": "yes",
        "fee": f"{Decimal(env.fee_ppm) / PPM_PER_PERCENT:f}",
    }
    asked = "hours" in request.GET
    return LabForm({**present, **request.GET.dict()} if asked else None, initial=present)
