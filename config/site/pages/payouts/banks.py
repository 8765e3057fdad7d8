"""What the bank told in a file: uploaded on the page of payouts, and shown line by line."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST

from config.site.forms.answers import meta_of
from config.site.pages.payouts.forms import BankNoticeForm
from config.site.pages.payouts.views import show
from ledger import bank_notices, camt054, paying
from ledger.access.visits import actor_of
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.following import wait_until_read
from ledger.projections.money import MONEY

SECONDS = 2.0


@require_POST
def hear(request: HttpRequest) -> HttpResponse:
    """Mark what the bank paid or sent back, and say what became of each line."""
    actor = actor_of(request)
    user_id, form = paying.need_to_pay(actor), BankNoticeForm(request.POST, request.FILES)
    if not form.is_valid():
        return show(request, told=form)
    store = default_store()
    try:
        lines = camt054.read(form.cleaned_data["file"].read())
        heard = bank_notices.hear(
            store, lines, user_id=user_id, by=meta_of(actor), now=timezone.now()
        )
    except Refusal as refused:
        return show(request, refusal=refused, told=form)
    # Shown with what it did, where the rows come in time.
    wait_until_read([MONEY.name], store.head(), timeout_seconds=SECONDS)
    return show(request, heard=heard)
