"""What is owed of an invoice: transfers that came in, and what is given up by two people."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST

from config.site.forms.answers import done, meta_of
from config.site.pages.invoices.forms import PaymentForm, WriteOffForm
from config.site.pages.invoices.views import issuer_of, show_one, token_of
from ledger.commands import receivables as commands
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.queries import receivables as queries


@require_POST
def enter(request: HttpRequest, number: str) -> HttpResponse:
    """Enter a transfer that pays it."""
    actor, user_id = issuer_of(request)
    row = queries.receivable(actor, number)
    form = PaymentForm(request.POST, currency=row.currency)
    if not form.is_valid():
        return show_one(request, number, payment=form)
    try:
        position = commands.enter_payment(
            default_store(),
            row.pk,
            money=form.cleaned_data["amount"],
            reference=form.cleaned_data["reference"],
            user_id=user_id,
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return show_one(request, number, payment=form, refusal=refusal)
    return done(request, f"/invoices/{number}", position, "The payment is on the account.")


@require_POST
def write_off(request: HttpRequest, number: str) -> HttpResponse:
    """Ask to give up what is owed of it."""
    actor, user_id = issuer_of(request)
    row = queries.receivable(actor, number)
    form = WriteOffForm(request.POST)
    if not form.is_valid():
        return show_one(request, number, write_off=form)
    try:
        position = commands.ask_write_off(
            default_store(),
            row.pk,
            write_off_id=token_of(request),
            reason=form.cleaned_data["reason"],
            user_id=user_id,
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return show_one(request, number, write_off=form, refusal=refusal)
    return done(request, f"/invoices/{number}", position, "Asked. Somebody else has to approve.")


@require_POST
def decide(request: HttpRequest, number: str) -> HttpResponse:
    """Give up what somebody else asked to, or not."""
    actor, user_id = issuer_of(request)
    row = queries.receivable(actor, number)
    declining = "decline" in request.POST
    act = commands.decline_write_off if declining else commands.approve_write_off
    said: dict[str, Any] = {"user_id": user_id, "by": meta_of(actor), "now": timezone.now()}
    try:
        position = act(default_store(), row.pk, **said)
    except Refusal as refusal:
        return show_one(request, number, refusal=refusal)
    told = "Nothing is given up." if declining else "It is written off."
    return done(request, f"/invoices/{number}", position, told)
