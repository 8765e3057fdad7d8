"""One payout: its statement, its steps, and what may be done with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from config.site.forms.answers import done, meta_of, page
from config.site.pages.payouts.earned import KINDS
from config.site.pages.payouts.forms import PaidForm, ReasonForm, ReversalForm
from config.site.parts.figures import places_of
from ledger import paying
from ledger.access.visits import actor_of
from ledger.commands import payouts as commands
from ledger.domain.events import Role
from ledger.domain.ids import AccountId
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.eventstore.port import Position
from ledger.exports.payout_statements import lines as statement_csv
from ledger.models import PayoutRow
from ledger.papers import file_of_payout
from ledger.queries import connect as over_stripe
from ledger.queries import money, people
from ledger.queries import payouts as queries
from ledger.queries.papers import papers

LINES_SHOWN = 200
"""Lines of a statement on the page; the CSV has all."""
ROLES: tuple[Role, ...] = ("owner", "finance", "operator", "auditor")


@require_safe
def one(request: HttpRequest, payout_id: UUID) -> HttpResponse:
    """Show a payout: its statement, its steps, and what may be done with it."""
    return show_one(request, payout_id)


def show_one(
    request: HttpRequest,
    payout_id: UUID,
    *,
    refusal: Refusal | None = None,
    reason: ReasonForm | None = None,
    paid: PaidForm | None = None,
    reversal: ReversalForm | None = None,
) -> HttpResponse:
    """Show a payout, with what is wrong with a form of it."""
    actor = actor_of(request)
    actor.need(*ROLES)
    row = queries.payout(actor, payout_id)
    lines = queries.statement_lines(row)
    amounts = [each.nanos for each in lines]
    more = lines[LINES_SHOWN:]
    who = [*row.approved_by, *([row.requested_by] if row.requested_by else [])]
    names = people(who)
    today = timezone.now().date()
    context: dict[str, Any] = {
        "row": row,
        "owner": money.party_names({row.tenant_id}).get(row.tenant_id, ""),
        "lines": [
            (KINDS.get(each.kind, each.kind.replace("-", " ")), each)
            for each in lines[:LINES_SHOWN]
        ],
        "more": len(more),
        "more_nanos": sum(each.nanos for each in more),
        "places": places_of(
            [*amounts, row.opening_nanos, row.closing_nanos, row.nanos], row.currency
        ),
        "names": {key: names[key].title if key in names else "somebody" for key in who},
        "bills": papers(actor).filter(payout_id=row.payout_id),
        "pays": actor.has_platform_money,
        "asked_by_me": row.requested_by is not None and row.requested_by == actor.user_id,
        "approved_by_me": actor.user_id in row.approved_by,
        "reason_form": reason or ReasonForm(),
        "over_stripe": over_stripe.channel_of(row) == "stripe",
        "came_back": over_stripe.reversals(row),
        "left": row.nanos - row.reversed_nanos,
        "reversal_form": reversal or ReversalForm(),
        "paid_form": paid or PaidForm(initial={"paid_on": today}),
    }
    invalid = any(form is not None and form.errors for form in (reason, paid, reversal))
    return page(request, "pages/payout.html", context, refusal=refusal, invalid=invalid)


@require_safe
def statement(request: HttpRequest, payout_id: UUID) -> HttpResponse:
    """Send a payout's statement as CSV."""
    actor = actor_of(request)
    actor.need(*ROLES)
    row = queries.payout(actor, payout_id)
    name = f"payout-{row.period}-{row.payout_id}.csv"
    return HttpResponse(
        "".join(statement_csv(row, queries.statement_lines(row))),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@require_safe
def paper(request: HttpRequest, payout_id: UUID) -> HttpResponse:
    """Send a payout's statement as PDF."""
    actor = actor_of(request)
    actor.need(*ROLES)
    row = queries.payout(actor, payout_id)
    names = money.party_names({row.tenant_id, PLATFORM_ID})
    data = file_of_payout(
        row,
        queries.statement_lines(row),
        owner=names.get(row.tenant_id, ""),
        payer=names.get(PLATFORM_ID, "Offpeak"),
        words=KINDS,
    )
    name = f"payout-{row.period}-{row.payout_id}.pdf"
    return HttpResponse(
        data,
        content_type="application/pdf",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@require_POST
def approve(request: HttpRequest, payout_id: UUID) -> HttpResponse:
    """Approve a payout that somebody else asked for."""
    actor = actor_of(request)
    row = queries.payout(actor, payout_id)
    is_own = queries.is_of(paying.need_to_pay(actor), row.tenant_id)
    return _do(request, row, commands.approve_payout, "Approved.", is_own=is_own)


@require_POST
def cancel(request: HttpRequest, payout_id: UUID) -> HttpResponse:
    """Cancel a payout that was not sent."""
    row, form = queries.payout(actor_of(request), payout_id), ReasonForm(request.POST)
    if not form.is_valid():
        return show_one(request, payout_id, reason=form)
    reason = form.cleaned_data["reason"]
    return _do(request, row, commands.cancel_payout, "Cancelled.", reason=reason)


@require_POST
def paid(request: HttpRequest, payout_id: UUID) -> HttpResponse:
    """Note that the bank paid."""
    row, form = queries.payout(actor_of(request), payout_id), PaidForm(request.POST)
    if not form.is_valid():
        return show_one(request, payout_id, paid=form)
    return _do(
        request,
        row,
        commands.mark_paid,
        "Marked as paid.",
        currency=row.currency,
        platform_id=PLATFORM_ID,
        **form.cleaned_data,
    )


@require_POST
def returned(request: HttpRequest, payout_id: UUID) -> HttpResponse:
    """Note that the money came back, or never went."""
    row, form = queries.payout(actor_of(request), payout_id), ReasonForm(request.POST)
    if not form.is_valid():
        return show_one(request, payout_id, reason=form)
    return _do(
        request,
        row,
        commands.mark_returned,
        "It is the owner's earnings again.",
        currency=row.currency,
        platform_id=PLATFORM_ID,
        **form.cleaned_data,
    )


def _do(
    request: HttpRequest, row: PayoutRow, doing: Callable[..., Position], said: str, **more: Any
) -> HttpResponse:
    actor = actor_of(request)
    user_id, by, now = paying.need_to_pay(actor), meta_of(actor), timezone.now()
    try:
        position = doing(
            default_store(),
            AccountId(row.account_id),
            row.payout_id,
            user_id=user_id,
            by=by,
            now=now,
            **more,
        )
    except Refusal as refused:
        return show_one(request, row.payout_id, refusal=refused)
    paying.tell_outcome(default_store(), row.account_id, row.payout_id, by=by, now=now)
    return done(request, f"/payouts/{row.payout_id}", position, said)
