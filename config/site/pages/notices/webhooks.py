"""An organisation's webhooks on pages; its operators have them."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from config.site.forms.answers import page
from config.site.parts.paging import part_of
from ledger import webhooks
from ledger.access.visits import actor_of
from ledger.domain.deliveries import URL_LENGTH_MAX, WebhookOff
from ledger.domain.notices import TOPICS
from ledger.domain.refusal import Refusal
from ledger.models import WebhookRow
from ledger.webhooks import WebhookMade

WHERE = "/settings/webhooks"


class WebhookForm(forms.Form):
    """Where to post, and what of; no topic chosen: all."""

    url = forms.CharField(label="Address", max_length=URL_LENGTH_MAX)
    topics = forms.MultipleChoiceField(
        label="Topics",
        required=False,
        choices=[(topic, terms.title) for topic, terms in TOPICS.items()],
        widget=forms.CheckboxSelectMultiple,
    )


@require_http_methods(["GET", "HEAD", "POST"])
def index(request: HttpRequest) -> HttpResponse:
    """Show the webhooks; sent, set one up and show its secret this once."""
    actor = actor_of(request)
    actor.need_scope("admin")
    form, refusal = WebhookForm(), None
    if request.method == "POST":
        form = WebhookForm(request.POST)
        if form.is_valid():
            try:
                made = webhooks.add_webhook(
                    actor,
                    webhook_id=uuid4(),
                    url=form.cleaned_data["url"],
                    topics=form.cleaned_data["topics"],
                    now=timezone.now(),
                )
            except Refusal as refused:
                refusal = refused
            else:
                return _secret(request, made, "It signs every message from now on.")
    context: dict[str, Any] = {
        "webhooks": [
            {"row": row, "state": state_of(row), "topics": _topics(row)}
            for row in webhooks.webhooks(actor)
        ],
        "form": form,
        "is_private": webhooks.private_allowed(),
    }
    return page(request, "pages/webhooks.html", context, refusal=refusal, invalid=bool(form.errors))


@require_safe
def one(request: HttpRequest, webhook_id: UUID) -> HttpResponse:
    """Show a webhook and what was posted to it."""
    actor = actor_of(request)
    actor.need_scope("admin")
    row = webhooks.webhook(actor, webhook_id)
    part = part_of(request, webhooks.deliveries(actor, webhook_id), "page")
    tried = webhooks.attempts([each.delivery_id for each in part.rows])
    context: dict[str, Any] = {
        "row": row,
        "state": state_of(row),
        "topics": _topics(row),
        "deliveries": [
            {"row": each, "attempts": tried[each.delivery_id], "last": _last(tried, each)}
            for each in part.rows
        ],
        "part": part,
        "overlaps": row.old_until is not None and row.old_until > timezone.now(),
    }
    return page(request, "pages/webhook.html", context)


@require_POST
def act(request: HttpRequest, webhook_id: UUID, step: str) -> HttpResponse:
    """Do one thing with a webhook: test, on, secret or remove."""
    actor, now = actor_of(request), timezone.now()
    actor.need_scope("admin")
    try:
        match step:
            case "test":
                webhooks.send_test(actor, webhook_id, now=now)
                said = "A test message is on its way: its line below says how it arrived."
            case "on":
                webhooks.switch_on(actor, webhook_id)
                said = "It is posted to again."
            case "secret":
                made = webhooks.rotate_secret(actor, webhook_id, now=now)
                return _secret(request, made, "The one before signs beside it for 24 hours.")
            case _:
                webhooks.remove_webhook(actor, webhook_id)
                messages.success(request, "The webhook is removed.")
                return HttpResponseRedirect(WHERE)
    except WebhookOff as off:
        messages.error(request, f"{off.message()} {off.advice()}")
        return HttpResponseRedirect(f"{WHERE}/{webhook_id}")
    messages.success(request, said)
    return HttpResponseRedirect(f"{WHERE}/{webhook_id}")


@require_POST
def again(request: HttpRequest, webhook_id: UUID, delivery_id: UUID) -> HttpResponse:
    """Post a message once more."""
    actor = actor_of(request)
    actor.need_scope("admin")
    try:
        webhooks.send_again(actor, webhook_id, delivery_id, now=timezone.now())
    except WebhookOff as off:
        messages.error(request, f"{off.message()} {off.advice()}")
    else:
        messages.success(request, "The message is sent again.")
    return HttpResponseRedirect(f"{WHERE}/{webhook_id}")


def state_of(row: WebhookRow) -> str:
    """Return the state of a webhook, as badges show it."""
    if row.off_at is not None:
        return "stopped"
    return "late" if row.failures else "active"


def _topics(row: WebhookRow) -> list[str]:
    return [terms.title for topic, terms in TOPICS.items() if topic in row.topics]


def _last(tried: dict[UUID, list[Any]], row: Any) -> Any:
    attempts = tried[row.delivery_id]
    return attempts[-1] if attempts else None


def _secret(request: HttpRequest, made: WebhookMade, said: str) -> HttpResponse:
    context = {"made": made, "said": said}
    answer = page(request, "pages/webhook_secret.html", context)
    answer["Cache-Control"] = "no-store"
    return answer
