"""An organisation's rule on idle leases: whoever reads leases sees it, its operators set it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from config.site.forms.answers import done, meta_of, page
from config.site.parts.idle import MEBIBYTE, THOUSAND, figures_of_terms, minutes_field
from ledger.access.visits import actor_of
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from metering.domain.idle import WARNING
from metering.domain.idle_events import IdleTerms
from metering.idling import set_idle_rule
from metering.queries.idle import rule_of

WHERE = "/settings/idle"
DEFAULTS = IdleTerms(after_seconds=0)
MIB_MAX = 10**6


class OrganisationRuleForm(forms.Form):
    """After how many idle minutes the leases of an organisation are ended; empty: never."""

    minutes = minutes_field("Idle for")
    busy_percent = forms.IntegerField(label="GPU busy below", min_value=0, max_value=100)
    cpu_cores = forms.DecimalField(
        label="Processor below", min_value=0, max_value=1_024, decimal_places=3
    )
    disk_mib = forms.DecimalField(
        label="Disk below", min_value=0, max_value=MIB_MAX, decimal_places=3
    )
    network_mib = forms.DecimalField(
        label="Network below", min_value=0, max_value=MIB_MAX, decimal_places=3
    )

    def terms(self) -> IdleTerms | None:
        """Return what it says; None: there is no rule."""
        said = self.cleaned_data
        if said["minutes"] is None:
            return None
        return IdleTerms(
            after_seconds=said["minutes"] * 60,
            busy_percent=said["busy_percent"],
            cpu_millicores=int(said["cpu_cores"] * THOUSAND),
            disk_bytes=int(said["disk_mib"] * MEBIBYTE),
            network_bytes=int(said["network_mib"] * MEBIBYTE),
        )


def _shown(terms: IdleTerms | None) -> dict[str, Any]:
    known = terms or DEFAULTS
    return {
        "minutes": None if terms is None else terms.after_seconds // 60,
        "busy_percent": known.busy_percent,
        "cpu_cores": f"{known.cpu_millicores / THOUSAND:g}",
        "disk_mib": f"{known.disk_bytes / MEBIBYTE:g}",
        "network_mib": f"{known.network_bytes / MEBIBYTE:g}",
    }


def _told(terms: IdleTerms | None) -> str:
    if terms is None:
        return "No lease is ended for idleness by this rule any more."
    return f"Leases end after {terms.after_seconds // 60} idle minutes and a warning."


@require_http_methods(["GET", "HEAD", "POST"])
def index(request: HttpRequest) -> HttpResponse:
    """Show the rule of the visitor's organisation; sent, set it."""
    actor = actor_of(request)
    actor.need_scope("leases:read")
    terms = rule_of(actor.tenant_id)
    form, refusal = OrganisationRuleForm(initial=_shown(terms)), None
    if request.method == "POST":
        actor.need_scope("admin")
        form = OrganisationRuleForm(request.POST)
        if form.is_valid():
            said = form.terms()
            try:
                position = set_idle_rule(
                    default_store(),
                    rule_id=actor.tenant_id,
                    of="tenant",
                    tenant_id=actor.tenant_id,
                    terms=said,
                    by=meta_of(actor),
                    now=timezone.now(),
                )
            except Refusal as refused:
                refusal = refused
            else:
                told = "No lease is ended for idleness by this rule any more."
                if said is not None:
                    told = (
                        f"Leases end after {said.after_seconds // 60} idle minutes and a warning."
                    )
                return done(request, WHERE, position, told)
    minutes, warning = (0 if terms is None else terms.after_seconds) // 60, WARNING.seconds // 60
    context: dict[str, Any] = {
        "terms": terms,
        "below": figures_of_terms(terms or DEFAULTS),
        "idle_minutes": minutes,
        "warning_minutes": warning,
        "earliest": minutes + warning,
        "form": form,
        "may_set": actor.may("admin"),
    }
    return page(
        request, "pages/idle_rule.html", context, refusal=refusal, invalid=bool(form.errors)
    )
