"""Several policies set at once, as they were tried: all of them, or none."""

from __future__ import annotations

from dataclasses import replace

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from config.site.forms.answers import done, meta_of
from config.site.pages.market.choosing import market_sent
from config.site.pages.policies.choices import choices_of
from config.site.pages.policies.one_form import TogetherForm
from config.site.pages.policies.plan import Plan
from config.site.pages.policies.views import HERE, ReasonMissing, may_set, setter_of, show
from ledger.access.visits import actor_of
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from marketplace.commands.quotas import set_policies


@require_POST
def together(request: HttpRequest) -> HttpResponse:
    """Set policies that were tried together. One that is refused is shown where it was tried."""
    actor, market = actor_of(request), market_sent(request)
    actor.need("operator")
    choices = choices_of(actor, market, settings.ENV.currency)
    plan = Plan(request.POST.getlist("with"), choices, lambda each: may_set(actor, each))
    form = TogetherForm(request.POST)
    if not form.is_valid():
        return show(request, actor, market, refusal=ReasonMissing())
    back = plan.link("quota", market=market)
    if not plan.parts or not plan.read(actor, now=timezone.now()):
        return HttpResponseRedirect(back)
    try:
        position = set_policies(
            default_store(),
            policies=[replace(each, why=form.cleaned_data["why"]) for each in plan.policies],
            setter=setter_of(actor),
            by=meta_of(actor, form.cleaned_data["token"]),
        )
    except Refusal:
        return HttpResponseRedirect(back)
    said = ". ".join(part.said for part in plan.parts)
    return done(request, f"{HERE}?market={market}", position, f"{said}.")
