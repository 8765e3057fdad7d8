"""Being paid over Stripe, on the pages of payouts: set up, gone on with, chosen, taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST

from config.site.forms.answers import done, meta_of
from config.site.pages.payouts.forms import ChannelForm, CountryForm, ReversalForm
from config.site.pages.payouts.one import show_one
from config.site.pages.payouts.views import show
from ledger import paying
from ledger.access.visits import actor_of, site_address
from ledger.commands import connect as commands
from ledger.connect import accounts
from ledger.domain.ids import AccountId
from ledger.domain.money import Money, nanos_of
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.eventstore.port import Position
from ledger.models import PayeeRow
from ledger.queries import payouts as queries
from ledger.queries.connect import reversals_asked


@require_POST
def begin(request: HttpRequest, account_id: UUID) -> HttpResponse:
    """Ask for an account at Stripe, and show the way there."""
    actor, form = actor_of(request), CountryForm(request.POST)
    row = paying.need_payee(actor, account_id)
    if not form.is_valid():
        return show(request, country=form)
    try:
        accounts.begin(
            default_store(),
            row,
            country=form.cleaned_data["country"].strip(),
            user_id=actor.need_person(),
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refused:
        return show(request, refusal=refused, country=form)
    return _to(request, row, onboards=True)


@require_POST
def onboard(request: HttpRequest, account_id: UUID) -> HttpResponse:
    """Show the way to where Stripe asks what it wants to know."""
    return _to(request, paying.need_payee(actor_of(request), account_id), onboards=True)


@require_POST
def dashboard(request: HttpRequest, account_id: UUID) -> HttpResponse:
    """Show the way to the owner's account at Stripe."""
    return _to(request, paying.need_payee(actor_of(request), account_id), onboards=False)


def _to(request: HttpRequest, row: PayeeRow, *, onboards: bool) -> HttpResponse:
    """Show a link to Stripe. It is good for once and a few minutes, so it is kept nowhere."""
    store = default_store()
    try:
        if onboards:
            link = accounts.onboarding(row, store, site=site_address(request))
        else:
            link = accounts.dashboard(row, store)
    except Refusal as refused:
        return show(request, refusal=refused)
    return show(request, links={row.account_id: link})


@require_POST
def look(request: HttpRequest, account_id: UUID) -> HttpResponse:
    """Ask Stripe how the account stands."""

    def act(row: PayeeRow) -> Position:
        by = meta_of(actor_of(request))
        return accounts.look(row, default_store(), by=by, now=timezone.now())

    return _do(request, account_id, act, "Asked. This is what Stripe says.")


@require_POST
def channel(request: HttpRequest, account_id: UUID) -> HttpResponse:
    """Choose how payouts go out."""
    actor, form = actor_of(request), ChannelForm(request.POST)
    paying.need_payee(actor, account_id)
    if not form.is_valid():
        return show(request)

    def act(row: PayeeRow) -> Position:
        return accounts.choose(
            default_store(),
            row,
            form.cleaned_data["channel"],
            user_id=actor.need_person(),
            by=meta_of(actor),
            now=timezone.now(),
        )

    return _do(request, account_id, act, "Saved.")


def _do(
    request: HttpRequest, account_id: UUID, act: Callable[[PayeeRow], Position], said: str
) -> HttpResponse:
    row = paying.need_payee(actor_of(request), account_id)
    try:
        position = act(row)
    except Refusal as refused:
        return show(request, refusal=refused)
    return done(request, "/payouts", position, said)


@require_POST
def reverse(request: HttpRequest, payout_id: UUID) -> HttpResponse:
    """Take a part of a transfer back."""
    actor, form = actor_of(request), ReversalForm(request.POST)
    user_id, row = paying.need_to_pay(actor), queries.payout(actor, payout_id)
    if not form.is_valid():
        return show_one(request, payout_id, reversal=form)
    asked: dict[str, Any] = form.cleaned_data
    number = reversals_asked(row) + 1
    try:
        accounts.need_connect()
        position = commands.ask_transfer_back(
            default_store(),
            AccountId(row.account_id),
            payout_id,
            number=number,
            money=Money(nanos_of(asked["amount"].strip()), row.currency),
            unit=paying.unit_of(row.currency),
            reason=asked["reason"],
            user_id=user_id,
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refused:
        return show_one(request, payout_id, refusal=refused, reversal=form)
    return done(request, f"/payouts/{payout_id}", position, "Asked of Stripe.")
