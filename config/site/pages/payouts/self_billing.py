"""Whether the platform issues an owner's invoices: agreed to, or ended, on the page of payouts."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST

from config.site.forms.answers import done, meta_of
from config.site.pages.payouts.views import show
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.commands import self_billing as commands
from ledger.domain.ids import TenantId
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store


@require_POST
def set_agreement(request: HttpRequest) -> HttpResponse:
    """Agree to it, or end it, for the visitor's own organisation."""
    actor: Actor = actor_of(request)
    actor.need("owner", "finance", "operator")
    tenant_id = TenantId(actor.tenant_id)
    said: dict[str, Any] = {
        "user_id": actor.need_person(),
        "by": meta_of(actor),
        "now": timezone.now(),
    }
    if request.POST.get("agreed") != "yes":
        position = commands.end_self_billing(default_store(), tenant_id, **said)
        return done(request, "/payouts", position, "Ended: you issue your invoices yourself.")
    small = request.POST.get("small_business") == "on"
    try:
        position = commands.agree_to_self_billing(
            default_store(), tenant_id, small_business=small, **said
        )
    except Refusal as refusal:
        return show(request, refusal=refusal)
    return done(request, "/payouts", position, "Agreed: your next settlement is invoiced for you.")
