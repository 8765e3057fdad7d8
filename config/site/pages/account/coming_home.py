"""Whether an organisation's work in clouds moves home: whoever reads leases sees it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from bursting.commands.homing import set_home_policy
from bursting.domain.home_policy import PERCENT_MAX, HomePolicy
from bursting.queries import home_moves
from config.site.forms.answers import done, meta_of, page
from config.site.parts.paging import part_of
from ledger.access.visits import actor_of
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.eventstore.port import load

WHERE = "/settings/coming-home"


class HomePolicyForm(forms.Form):
    """Whether work moves home, and how much a move has to save at least."""

    moves = forms.BooleanField(label="Let work in a cloud move home", required=False)
    margin_percent = forms.IntegerField(
        label="Least saving", min_value=0, max_value=PERCENT_MAX, required=False
    )


@require_http_methods(["GET", "HEAD", "POST"])
def index(request: HttpRequest) -> HttpResponse:
    """Show the policy of the visitor's organisation and what moved; sent, set it."""
    actor = actor_of(request)
    actor.need_scope("leases:read")
    store, env = default_store(), settings.ENV
    policy = load(store, HomePolicy, actor.tenant_id)
    moves = True if policy is None else policy.said.moves
    margin = None if policy is None else policy.said.margin_percent
    form = HomePolicyForm(initial={"moves": moves, "margin_percent": margin})
    refusal = None
    if request.method == "POST":
        actor.need_scope("admin")
        form = HomePolicyForm(request.POST)
        if form.is_valid():
            try:
                position = set_home_policy(
                    store,
                    tenant_id=actor.tenant_id,
                    moves=form.cleaned_data["moves"],
                    margin_percent=form.cleaned_data["margin_percent"],
                    by=meta_of(actor),
                    now=timezone.now(),
                )
            except Refusal as refused:
                refusal = refused
            else:
                told = "Work in clouds moves home where that is cheaper."
                if not form.cleaned_data["moves"]:
                    told = "Work in clouds stays there until it ends."
                return done(request, WHERE, position, told)
    context: dict[str, Any] = {
        "moves": moves,
        "margin": env.burst_home_margin_percent if margin is None else margin,
        "is_own": margin is not None,
        "platform_moves": env.burst_home == "on" and env.burst_cloud != "none",
        "platform_margin": env.burst_home_margin_percent,
        "tries": part_of(request, home_moves(actor), "tries"),
        "form": form,
        "may_set": actor.may("admin"),
    }
    return page(
        request, "pages/coming_home.html", context, refusal=refusal, invalid=bool(form.errors)
    )
