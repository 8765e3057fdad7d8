"""Requests for more quota on the site: asked, approved with a token shown once, taken up by it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from config.site.forms.answers import done, meta_of, page
from config.site.forms.fields import MomentField
from config.site.pages.market.choosing import choice_of, market_of, market_sent
from config.site.pages.policies.choices import Choices, choices_of
from config.site.pages.policies.forms import CLASS
from config.site.pages.policies.one_form import PolicyForm
from config.site.pages.policies.views import HERE, ReasonMissing, setter_of, show
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.domain.ids import SubscriberId, TenantId
from ledger.domain.parties import SubscriberUnknown
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.queries.parties import unit_tenants
from marketplace.commands.quotas import approve_request, decline_request, set_policy, take_up
from marketplace.domain.facts.policy_events import QuotaRequested
from marketplace.domain.governance.authority import GPUS_MAX
from marketplace.domain.governance.quota_requests import EscalationTokenWrong
from marketplace.queries.quota_log import quota_request
from marketplace.queries.quotas import token_of

DAYS_DEFAULT = 3


class AskForm(PolicyForm):
    """More nominal quota for a time."""

    kind, title, can_be_tried = "request", "More quota for a time", False
    text = (
        "The platform's operators decide. An approval gives a token, and who has it takes the "
        "quota up, once, within a day."
    )

    subscriber_id = forms.ChoiceField(label="Business unit")
    gpu_class = forms.CharField(label="Class of GPUs", max_length=40, help_text=CLASS)
    nominal = forms.IntegerField(label="Should have of its own", min_value=0, max_value=GPUS_MAX)
    starts_at = MomentField(label="From")
    ends_at = MomentField(label="Until")
    expires_at = MomentField(
        label="Decided by", required=False, help_text="Empty: until its time is over."
    )

    def offer(self, choices: Choices) -> None:
        """Offer the units that stand somewhere in the market."""
        placed = {str(each.subscriber_id) for each in choices.governed.units}
        self.choose("subscriber_id", [pair for pair in choices.units if pair[0] in placed])
        self.fields["gpu_class"].widget.attrs |= {"list": "classes", "autocomplete": "off"}


@require_http_methods(["GET", "HEAD", "POST"])
def new(request: HttpRequest) -> HttpResponse:
    """Ask for more quota."""
    actor = actor_of(request)
    actor.need("consumer", "operator")
    if request.method == "POST":
        return _asked(request, actor)
    now = timezone.now()
    initial: dict[str, Any] = {
        "starts_at": now,
        "ends_at": now + timedelta(days=DAYS_DEFAULT),
        **request.GET.dict(),
    }
    choices = choices_of(actor, market_of(request), settings.ENV.currency)
    return _form(request, AskForm(choices=choices, initial=initial))


def _form(request: HttpRequest, form: PolicyForm, refusal: Refusal | None = None) -> HttpResponse:
    context = {**choice_of(form.choices.market, "/fairness/requests/new"), "form": form}
    invalid = bool(form.errors)
    return page(request, "pages/policy.html", context, refusal=refusal, invalid=invalid)


def _asked(request: HttpRequest, actor: Actor) -> HttpResponse:
    market, now = market_sent(request), timezone.now()
    choices = choices_of(actor, market, settings.ENV.currency)
    form = AskForm(request.POST, choices=choices)
    if not form.is_valid():
        return _form(request, form)
    data = form.cleaned_data
    unit = UUID(data["subscriber_id"])
    asked = QuotaRequested(
        market=market,
        request_id=data["token"],
        tenant_id=_tenant_of(actor, unit),
        subscriber_id=SubscriberId(unit),
        user_id=actor.user_id,
        gpu_class=data["gpu_class"],
        nominal=data["nominal"],
        starts_at=data["starts_at"],
        ends_at=data["ends_at"],
        why=data["why"],
        expires_at=data["expires_at"] or data["ends_at"],
        at=now,
    )
    try:
        by = meta_of(actor, data["token"])
        position = set_policy(default_store(), policy=asked, setter=setter_of(actor), by=by)
    except Refusal as refusal:
        at_field = form.refuse(refusal)
        return _form(request, form, None if at_field else refusal)
    return done(request, f"{HERE}?market={market}", position, "Asked. An operator decides.")


def _tenant_of(actor: Actor, unit: UUID) -> TenantId:
    """Return whose a unit is; a member of one unit asks for that one only.

    Raises: SubscriberUnknown.
    """
    tenant_id = unit_tenants(actor).get(unit)
    bound = "operator" not in actor.roles
    if tenant_id is None or (bound and unit != actor.subscriber_id):
        raise SubscriberUnknown(subscriber_id=unit)
    return TenantId(tenant_id)


@require_POST
def decide(request: HttpRequest, request_id: UUID) -> HttpResponse:
    """Approve a request, whose token is shown this once, or decline it with a reason."""
    actor, market = actor_of(request), market_sent(request)
    actor.need_platform()
    store, now = default_store(), timezone.now()
    about: dict[str, Any] = {
        "market": market,
        "request_id": request_id,
        "setter": setter_of(actor),
        "by": meta_of(actor),
        "now": now,
    }
    try:
        if request.POST.get("do") != "approve":
            why = request.POST.get("why", "").strip()
            if not why:
                raise ReasonMissing()
            position = decline_request(store, why=why, **about)
            return done(request, f"{HERE}?market={market}", position, "Declined.")
        position = approve_request(store, **about)
        token_id, expires_at = token_of(store, market, request_id)
    except Refusal as refusal:
        return show(request, actor, market, refusal=refusal)
    context = {
        **choice_of(market, HERE),
        "request_id": request_id,
        "token_id": token_id,
        "expires_at": expires_at,
        "position": position,
    }
    return page(request, "pages/quota_token.html", context)


@require_POST
def take(request: HttpRequest, request_id: UUID) -> HttpResponse:
    """Take approved quota up, by the token that the approval gave."""
    actor, market = actor_of(request), market_sent(request)
    actor.need("consumer", "operator")
    quota_request(actor, market, request_id)
    try:
        position = take_up(
            default_store(),
            market=market,
            request_id=request_id,
            token_id=_token(request, request_id),
            setter=setter_of(actor),
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return show(request, actor, market, refusal=refusal)
    return done(request, f"{HERE}?market={market}", position, "Taken up: the quota is yours.")


def _token(request: HttpRequest, request_id: UUID) -> UUID:
    try:
        return UUID(request.POST.get("token_id", "").strip())
    except ValueError:
        raise EscalationTokenWrong(request_id=request_id) from None
