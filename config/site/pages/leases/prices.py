"""The price of a lease on its page: what it was, is and may become."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from config.site.forms.answers import done, meta_of
from config.site.forms.fields import MomentField, RateField, TokenField
from config.site.parts import refusals
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.domain.ids import LeaseId
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from marketplace.commands.price_changes import agree_price, decline_price, propose_price
from marketplace.domain.leases.price_changes import WHY_LENGTH_MAX, Wish
from marketplace.models.leases import LeaseRow
from marketplace.queries import leases, prices

SHOWN_MAX = 10
STATES = {
    "open": "waits for an answer",
    "agreed": "agreed",
    "declined": "declined",
    "withdrawn": "withdrawn",
    "overtaken": "overtaken by another",
    "lapsed": "not answered in time",
}


class PriceForm(forms.Form):
    """Another price, from when on, and until when it can be answered."""

    token = TokenField()
    since = MomentField(label="From")
    answer_by = MomentField(label="Answer by", required=False)
    why = forms.CharField(label="Reason", required=False, max_length=WHY_LENGTH_MAX)

    def __init__(self, *args: Any, currency: str, **kwargs: Any) -> None:
        super().__init__(*args, **{"auto_id": "price_%s", **kwargs})
        self.fields["price"] = RateField(label="New price", currency=currency)


def prices_of_lease(actor: Actor, row: LeaseRow, actions: tuple[str, ...], now: datetime) -> Any:
    """Return what the page shows of its price: now, by when, and what was proposed."""
    proposed = [
        {
            "row": each,
            "state": each.state_at(now),
            "said": STATES[each.state_at(now)],
            "is_yours": each.tenant_id == actor.tenant_id,
            "waits_for_you": "reprice" in actions and each.waits_for(actor.tenant_id, now=now),
            "is_dearer": each.price_nanos > each.before_nanos,
        }
        for each in prices.prices_of(actor, row.lease_id)[:SHOWN_MAX]
    ]
    return {
        "now_nanos": prices.price_of(row, now=now),
        "steps": [(row.starts_at, row.price_nanos_per_gpu_hour)]
        + [(each.since, each.price.nanos_per_gpu_hour) for each in row.agreed],
        "proposed": proposed,
        "why_max": WHY_LENGTH_MAX,
        "form": PriceForm(
            currency=row.currency,
            initial={
                "price": row.price_at(row.ends_at),
                "since": min(now + timedelta(hours=1), row.ends_at - timedelta(minutes=1)),
            },
        ),
    }


@require_POST
def propose(request: HttpRequest, lease_id: UUID) -> HttpResponse:
    """Propose another price."""
    actor = actor_of(request)
    tenant_id = prices.speaks_for(actor, lease_id)
    row, address = leases.lease(actor, lease_id), f"/leases/{lease_id}"
    form = PriceForm(request.POST, currency=row.currency)
    if not form.is_valid():
        field, errors = next(iter(form.errors.items()))
        label = form.fields[field].label or field
        messages.error(request, f"{label}: {errors[0]}")
        return redirect(address)
    asked = form.cleaned_data
    try:
        position = propose_price(
            default_store(),
            lease_id=LeaseId(lease_id),
            wish=Wish(
                proposal_id=asked["token"],
                tenant_id=tenant_id,
                user_id=actor.user_id,
                price=asked["price"],
                since=asked["since"],
                answer_by=asked["answer_by"],
                why=asked["why"],
            ),
            by=meta_of(actor, asked["token"]),
            now=timezone.now(),
        )
    except Refusal as refusal:
        messages.error(request, refusals.whole(refusal))
        return redirect(address)
    return done(request, address, position, "Proposed. The price changes once all sides agree.")


@require_POST
def answer(request: HttpRequest, lease_id: UUID, proposal_id: UUID) -> HttpResponse:
    """Agree to a price, or decline it: the button says which."""
    actor = actor_of(request)
    tenant_id = prices.speaks_for(actor, lease_id)
    address, now = f"/leases/{lease_id}", timezone.now()
    agrees = request.POST.get("do") == "agree"
    why = request.POST.get("why", "").strip()
    common: dict[str, Any] = {
        "lease_id": LeaseId(lease_id),
        "proposal_id": proposal_id,
        "tenant_id": tenant_id,
        "user_id": actor.user_id,
        "by": meta_of(actor),
        "now": now,
    }
    try:
        if agrees:
            position = agree_price(default_store(), **common)
        else:
            position = decline_price(default_store(), why=why, **common)
    except Refusal as refusal:
        messages.error(request, refusals.whole(refusal))
        return redirect(address)
    said = "Agreed." if agrees else "The price stays as it is."
    return done(request, address, position, said)
