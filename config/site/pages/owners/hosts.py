"""An owner's hosts: made known with a code for the agent, and taken off the market for good."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from config.site.forms.answers import done, meta_of, page
from config.site.forms.fields import TokenField
from config.site.pages.owners.agents import Code, make_code
from config.site.parts import refusals
from ledger.access import Actor
from ledger.access.visits import actor_of, site_address
from ledger.domain.ids import HostId
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from listings import queries
from listings.commands import register_host, retire_host, turn_switch
from listings.domain.events import Taking
from listings.domain.markets import market_of_region, named
from listings.domain.terms import check_labels

LABELS_LENGTH_MAX = 2_000
SAID: dict[str, str] = {
    "all": "the market takes work for it again, as far as the switch at the host lets it.",
    "paused": "nothing new is started there; what runs goes on.",
    "draining": "nothing new is started there; what runs ends with its notice.",
    "released": "what runs there is ended now, and nothing new is started.",
}


class HostForm(forms.Form):
    """What an owner says of a host; its agent reports the GPUs."""

    token = TokenField()
    title = forms.CharField(label="Name", max_length=200)
    region = forms.CharField(
        label="Region",
        max_length=200,
        widget=forms.TextInput(attrs={"list": "regions", "autocomplete": "off"}),
    )
    market = forms.ChoiceField(label="Market", required=False)
    labels = forms.CharField(label="Labels", max_length=LABELS_LENGTH_MAX, required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        market = self.fields["market"]
        assert isinstance(market, forms.ChoiceField)
        names = [(each.name, each.name) for each in settings.MARKETS]
        market.choices = [("", "that of its region"), *names]
        if len(names) == 1:
            del self.fields["market"]

    def clean_labels(self) -> tuple[tuple[str, str], ...]:
        """Read `rack=7 team=vision`."""
        parts = [each.partition("=") for each in self.cleaned_data["labels"].split()]
        try:
            return check_labels([(name, value) for name, _, value in parts])
        except Refusal as refusal:
            raise forms.ValidationError(refusals.whole(refusal), code=refusal.code) from refusal


@require_http_methods(["GET", "HEAD", "POST"])
def new(request: HttpRequest) -> HttpResponse:
    """Ask for a host's name and place; sent, make it known and show a code for its agent."""
    actor = actor_of(request)
    actor.need("owner", "operator")
    form, refusal = HostForm(request.POST or None), None
    if request.method == "POST" and form.is_valid():
        try:
            code = _register(actor, form.cleaned_data)
        except Refusal as refused:
            refusal = refused
        else:
            context = {
                "title": form.cleaned_data["title"],
                "code": code,
                "position": code.position,
                "base_url": site_address(request),
            }
            return page(request, "pages/host_made.html", context)
    context = {"form": form, "regions": _regions(actor)}
    invalid = bool(form.errors)
    return page(request, "pages/host_new.html", context, refusal=refusal, invalid=invalid)


@require_POST
def turn(request: HttpRequest, host_id: UUID) -> HttpResponse:
    """Turn the owner's switch of a host on the market."""
    actor = actor_of(request)
    actor.need("owner", "operator")
    host, taking = queries.host(actor, host_id), request.POST.get("taking", "")
    if taking not in SAID:
        return HttpResponseBadRequest("There is no such position of the switch.")
    store, by, now = default_store(), meta_of(actor), timezone.now()
    position = turn_switch(
        store, host_id=HostId(host_id), on_market=cast(Taking, taking), by=by, now=now
    )
    return done(request, "/owner", position, f"{host.title}: {SAID[taking]}")


@require_POST
def retire(request: HttpRequest, host_id: UUID) -> HttpResponse:
    """Take a host off the market for good."""
    actor = actor_of(request)
    actor.need("owner", "operator")
    host = queries.host(actor, host_id)
    store, by, now = default_store(), meta_of(actor), timezone.now()
    position = retire_host(store, host_id=HostId(host_id), by=by, now=now)
    said = f"{host.title} is off the market: its offers are withdrawn, what runs there runs on."
    return done(request, "/owner", position, said)


def _register(actor: Actor, data: dict[str, Any]) -> Code:
    """Register a host and make a code for its agent."""
    host_id = HostId(data["token"])
    store, by, now = default_store(), meta_of(actor, data["token"]), timezone.now()
    asked, by_region = data.get("market"), market_of_region(settings.MARKETS, data["region"])
    register_host(
        store,
        host_id=host_id,
        tenant_id=actor.tenant_id,
        title=data["title"],
        market=named(settings.MARKETS, asked).name if asked else by_region,
        region=data["region"],
        labels=data["labels"],
        by=by.step("host"),
        now=now,
    )
    return make_code(host_id=host_id, by=by.step("code"), now=now)


def _regions(actor: Actor) -> list[str]:
    """Return regions that there are already, to be chosen from."""
    covered = {region for market in settings.MARKETS for region in market.regions}
    own = queries.hosts(actor).filter(tenant_id=actor.tenant_id).values_list("region", flat=True)
    return sorted(covered | set(own))
