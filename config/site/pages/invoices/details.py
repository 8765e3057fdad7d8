"""How the visitor's organisation and its units are named on invoices; for the platform, as who
issues them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from config.site.forms.answers import done, meta_of, page
from config.site.pages.invoices.forms import DetailsForm, IssuerForm
from config.site.parts import refusals
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.commands.invoices import set_billing_details
from ledger.domain import billing_details as rules
from ledger.domain.parties import PLATFORM_ID, SubscriberUnknown
from ledger.domain.refusal import Refusal
from ledger.domain.tax import VatIdUnreadable
from ledger.eventstore import default_store
from ledger.models import SubscriberRow
from ledger.queries import subscribers
from ledger.queries.invoices import billing_details

PATH = "/invoices/billing-details"
UNITS_SHOWN = 200
FIELD_OF: Mapping[type[Refusal], str] = MappingProxyType(
    {
        rules.BillingNameMissing: "name",
        rules.AddressTooLong: "address",
        rules.CountryUnreadable: "country",
        VatIdUnreadable: "vat_id",
        rules.EmailUnreadable: "email",
        rules.PurchaseOrderTooLong: "purchase_order",
        rules.DueDaysOutOfRange: "due_days",
    }
)


@require_http_methods(["GET", "HEAD", "POST"])
def index(request: HttpRequest) -> HttpResponse:
    """Show the details of the organisation, or with `unit` of one of its units, or set them."""
    actor = actor_of(request)
    actor.need("finance", "operator")
    unit = _unit(request, actor)
    issues = unit is None and actor.tenant_id == PLATFORM_ID
    kind = IssuerForm if issues else DetailsForm
    if request.method != "POST":
        return _show(request, actor, unit, kind(initial=_known(actor, unit)))
    form = kind(request.POST)
    if not form.is_valid():
        return _show(request, actor, unit, form)
    said = form.cleaned_data
    try:
        position = set_billing_details(
            default_store(),
            party_id=unit.pk if unit else actor.tenant_id,
            tenant_id=actor.tenant_id,
            details=form.details(),
            scheme=said.get("scheme") or "none",
            due_days=said.get("due_days", rules.DUE_DAYS_DEFAULT),
            issues_by_itself=said.get("issues_by_itself", False),
            user_id=actor.need_person(),
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refusal:
        field = FIELD_OF.get(type(refusal), "")
        if field not in form.fields:
            return _show(request, actor, unit, form, refusal=refusal)
        form.add_error(field, refusals.whole(refusal))
        return _show(request, actor, unit, form)
    path = f"{PATH}?{urlencode({'unit': unit.pk})}" if unit else PATH
    return done(request, path, position, "Saved, for invoices from now on.")


def _unit(request: HttpRequest, actor: Actor) -> SubscriberRow | None:
    """Return the unit that is asked for; None: the organisation. Raises: SubscriberUnknown."""
    asked = request.GET.get("unit", "")
    if not asked:
        return None
    try:
        return subscribers(actor).get(pk=UUID(asked))
    except (ValueError, SubscriberRow.DoesNotExist):
        raise SubscriberUnknown(subscriber_id=asked[:40]) from None


def _known(actor: Actor, unit: SubscriberRow | None) -> dict[str, Any]:
    row = billing_details(actor).filter(pk=unit.pk if unit else actor.tenant_id).first()
    if row is None:
        return {"name": unit.title if unit else actor.title}
    said = row.details
    return {
        **said,
        "address": "\n".join(said["address"]),
        "scheme": row.scheme,
        "due_days": row.due_days,
        "issues_by_itself": row.issues_by_itself,
    }


def _show(
    request: HttpRequest,
    actor: Actor,
    unit: SubscriberRow | None,
    form: DetailsForm,
    *,
    refusal: Refusal | None = None,
) -> HttpResponse:
    units = list(subscribers(actor).order_by("title", "subscriber_id")[:UNITS_SHOWN])
    own = set(
        billing_details(actor)
        .filter(pk__in=[each.pk for each in units])
        .values_list("party_id", flat=True)
    )
    context = {
        "form": form,
        "issues": isinstance(form, IssuerForm),
        "unit": unit,
        "units": [{"row": each, "own": each.pk in own} for each in units],
    }
    invalid = bool(form.is_bound and form.errors)
    return page(request, "pages/billing_details.html", context, refusal=refusal, invalid=invalid)
