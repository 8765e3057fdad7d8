"""How the visitor's organisation is named on invoices; for the platform, as who issues them."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from config.site.forms.answers import done, meta_of, page
from config.site.pages.invoices.forms import DetailsForm, IssuerForm
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.commands.invoices import set_billing_details
from ledger.domain.billing_details import DUE_DAYS_DEFAULT
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.queries.invoices import billing_details


@require_http_methods(["GET", "HEAD", "POST"])
def index(request: HttpRequest) -> HttpResponse:
    """Show the details, or set them."""
    actor = actor_of(request)
    actor.need("finance", "operator")
    kind = IssuerForm if actor.tenant_id == PLATFORM_ID else DetailsForm
    if request.method != "POST":
        return _show(request, kind(initial=_known(actor)))
    form = kind(request.POST)
    if not form.is_valid():
        return _show(request, form)
    said = form.cleaned_data
    try:
        position = set_billing_details(
            default_store(),
            party_id=actor.tenant_id,
            tenant_id=actor.tenant_id,
            details=form.details(),
            scheme=said.get("scheme") or "none",
            due_days=said.get("due_days", DUE_DAYS_DEFAULT),
            issues_by_itself=said.get("issues_by_itself", False),
            user_id=actor.need_person(),
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return _show(request, form, refusal=refusal)
    return done(request, "/invoices/billing-details", position, "Saved, for invoices from now on.")


def _known(actor: Actor) -> dict[str, Any]:
    row = billing_details(actor).filter(pk=actor.tenant_id).first()
    if row is None:
        return {"name": actor.title}
    said = row.details
    return {
        **said,
        "address": "\n".join(said["address"]),
        "scheme": row.scheme,
        "due_days": row.due_days,
        "issues_by_itself": row.issues_by_itself,
    }


def _show(
    request: HttpRequest, form: DetailsForm, *, refusal: Refusal | None = None
) -> HttpResponse:
    context = {"form": form, "issues": isinstance(form, IssuerForm)}
    invalid = bool(form.is_bound and form.errors)
    return page(request, "pages/billing_details.html", context, refusal=refusal, invalid=invalid)
