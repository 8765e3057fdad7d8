"""How a host does: its GPUs, what was the matter with them, and its maintenance windows.

And the same of all hosts on one page, for the platform's operators.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from config.site.forms.answers import done, meta_of, page
from config.site.forms.fields import MomentField, TokenField
from ledger.access import Actor, PlatformOnly
from ledger.access.visits import actor_of
from ledger.domain.ids import HostId, MaintenanceId
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.eventstore.port import Meta, Position
from listings import queries
from listings.commands import turn_switch
from listings.commands.maintenance import announce_maintenance, cancel_maintenance
from listings.domain.maintenance import REASON_CHARS_MAX
from listings.domain.windows import read_window
from listings.queries.health import HostRow, history
from metering.queries import health

SPANS_SHOWN_MAX = 50
HOSTS_SHOWN_MAX = 1_000
TURNS = ("drain", "undrain")


class MaintenanceForm(forms.Form):
    """A window to announce. since: left out, from now on; gpus: none are all of them."""

    token = TokenField()
    since = MomentField(label="From", required=False)
    until = MomentField(label="Until")
    reason = forms.CharField(label="For", max_length=REASON_CHARS_MAX)
    gpus = forms.MultipleChoiceField(
        label="GPUs", required=False, widget=forms.CheckboxSelectMultiple
    )

    def __init__(self, host: HostRow, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        gpus = self.fields["gpus"]
        assert isinstance(gpus, forms.MultipleChoiceField)
        gpus.choices = [(each.uuid, each.uuid) for each in queries.gpus_of_row(host)]


@require_http_methods(["GET", "HEAD", "POST"])
def of_host(request: HttpRequest, host_id: UUID) -> HttpResponse:
    """Show how a host does; sent, announce maintenance of it."""
    actor = actor_of(request)
    actor.need("owner", "operator")
    host = _host(actor, host_id)
    form, refusal = MaintenanceForm(host, request.POST or None), None
    if request.method == "POST" and form.is_valid():
        try:
            position = _announce(actor, host, form.cleaned_data)
        except Refusal as refused:
            refusal = refused
        else:
            said = "Announced. Leases that would run into it are told, and end by its start."
            return done(request, f"/owner/hosts/{host_id}/health", position, said)
    now, poll = timezone.now(), settings.ENV.agent_poll_seconds
    context = {
        "host": host,
        "doing": health.doing(actor, host_id, now=now, poll_seconds=poll),
        "spans": history(actor, host_id, since=now - health.KEPT_FOR)[:SPANS_SHOWN_MAX],
        "form": form,
        "now": now,
    }
    return page(
        request, "pages/host_health.html", context, refusal=refusal, invalid=bool(form.errors)
    )


@require_POST
def cancel(request: HttpRequest, host_id: UUID, maintenance_id: UUID) -> HttpResponse:
    """Cancel a maintenance window, or end it now."""
    actor = actor_of(request)
    actor.need("owner", "operator")
    host = _host(actor, host_id)
    position = cancel_maintenance(
        default_store(),
        host_id=HostId(host.host_id),
        maintenance_id=MaintenanceId(maintenance_id),
        by=_by(actor, host),
        now=timezone.now(),
    )
    said = "Cancelled: what is offered is leased again."
    return done(request, f"/owner/hosts/{host_id}/health", position, said)


@require_POST
def drain(request: HttpRequest, host_id: UUID) -> HttpResponse:
    """Drain a host, or take work on it again."""
    actor = actor_of(request)
    actor.need("owner", "operator")
    host, word = _host(actor, host_id), request.POST.get("turn", "")
    if word not in TURNS:
        return HttpResponseBadRequest("A host is drained, or undrained.")
    position = turn_switch(
        default_store(),
        host_id=HostId(host.host_id),
        on_market="draining" if word == "drain" else "all",
        by=_by(actor, host),
        now=timezone.now(),
    )
    said = "Draining: what runs ends with its notice." if word == "drain" else "Takes work again."
    return done(request, f"/owner/hosts/{host_id}/health", position, said)


@require_safe
def everywhere(request: HttpRequest) -> HttpResponse:
    """Show how all hosts do, those to be looked after first."""
    actor = actor_of(request)
    if not actor.sees_all:
        raise PlatformOnly()
    now, poll = timezone.now(), settings.ENV.agent_poll_seconds
    hosts = health.all_doing(actor, now=now, poll_seconds=poll, limit=HOSTS_SHOWN_MAX)
    context = {"hosts": hosts, "amiss": sum(not each.is_well for each in hosts)}
    return page(request, "pages/ops_health.html", context)


def _host(actor: Actor, host_id: UUID) -> HostRow:
    host = queries.host(actor, host_id)
    if host.tenant_id != actor.tenant_id:
        actor.need_platform()
    return host


def _by(actor: Actor, host: HostRow, token: UUID | None = None) -> Meta:
    """Return what the events carry; an operator of the platform reaches the hosts of all."""
    by = meta_of(actor, token)
    return by if host.tenant_id == actor.tenant_id else replace(by, tenant_id=None)


def _announce(actor: Actor, host: HostRow, data: dict[str, Any]) -> Position:
    now = timezone.now()
    return announce_maintenance(
        default_store(),
        host_id=HostId(host.host_id),
        maintenance_id=MaintenanceId(data["token"]),
        window=read_window(data["since"] or now.replace(microsecond=0), data["until"]),
        gpu_uuids=data["gpus"],
        reason=data["reason"],
        by=_by(actor, host, data["token"]),
        now=now,
    )
