"""Payouts: what an owner earned and when it is paid; for finance all of them, step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from config.site.forms.answers import done, meta_of, page
from config.site.pages.payouts.earned import WAYS, earned_by
from config.site.pages.payouts.forms import (
    BankNoticeForm,
    CountryForm,
    DetailsForm,
    FileForm,
    ScheduleForm,
)
from config.site.parts.paging import part_of
from ledger import paying
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.bank_notices import Heard
from ledger.commands import payouts as commands
from ledger.connect.accounts import is_offered
from ledger.domain.bank_details import read_details
from ledger.domain.events import Role
from ledger.domain.ids import AccountId
from ledger.domain.money import decimal_of, nanos_of
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.periods import Period
from ledger.domain.refusal import Refusal
from ledger.domain.self_billing import AGREEMENT
from ledger.eventstore import default_store
from ledger.eventstore.port import Position
from ledger.exports.bank_files import MEDIA_TYPES, name_of
from ledger.models import PayeeRow
from ledger.queries import money
from ledger.queries import payouts as queries
from ledger.queries.connect import bank_payouts
from ledger.queries.papers import self_billing
from ledger.queries.platform_earnings import kept_by_platform
from ledger.vault import default_vault

ROLES: tuple[Role, ...] = ("owner", "finance", "operator", "auditor")
MONTHS_SHOWN = 6
PLACES_SHOWN = 100
MISSING_SHOWN, BANK_PAYOUTS_SHOWN = 5, 5
WAITING = ("requested", "approved", "sent")


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show earnings and payouts of the visitor's organisation; all payouts to finance."""
    return show(request)


def show(
    request: HttpRequest,
    *,
    refusal: Refusal | None = None,
    details: DetailsForm | None = None,
    schedule: ScheduleForm | None = None,
    country: CountryForm | None = None,
    links: Mapping[UUID, str] | None = None,
    told: BankNoticeForm | None = None,
    heard: Sequence[Heard] = (),
) -> HttpResponse:
    """Show the page, with what is wrong with a form of it.

    links: to Stripe, by earnings. heard: what came of a file of the bank.
    """
    actor = actor_of(request)
    actor.need(*ROLES)
    now = timezone.now()
    mine = queries.own_payees(actor)
    by = request.GET.get("by", "gpu")
    rows = queries.payouts(actor)
    waiting = list(rows.filter(state__in=WAITING)[:PLACES_SHOWN]) if _pays(actor) else []
    part = part_of(request, rows if _pays(actor) else _own(actor), "payouts")
    known = money.party_names({row.tenant_id for row in [*waiting, *part.rows]})
    owners = {row.tenant_id: known.get(row.tenant_id, "") for row in [*waiting, *part.rows]}
    context: dict[str, Any] = {
        "payees": [
            {**_payee(row, now, schedule), "link": (links or {}).get(row.account_id, "")}
            for row in mine
        ],
        "by": by if by in WAYS else "gpu",
        "ways": WAYS,
        "pays": _pays(actor),
        "may_change": bool(actor.roles & {"owner", "finance", "operator"}),
        "waiting": waiting,
        "owed": _owed(actor, now),
        "files": part_of(request, queries.bank_files(actor), "files"),
        "sendable": _sendable(actor),
        "kept": kept_by_platform(_months(now)) if _pays(actor) else [],
        "payouts": part,
        "owners": owners,
        "details_form": details or DetailsForm(),
        "country_form": country or CountryForm(),
        "told_form": told or BankNoticeForm(),
        "heard": heard,
        "stripe_offered": is_offered(),
        "came_from_stripe": request.GET.get("stripe", ""),
        "wait": paying.terms().details_wait_seconds * 1_000,  # shown as a duration
        "token": uuid4(),
        "agreement": AGREEMENT,
        "self_billing": self_billing(actor).filter(pk=actor.tenant_id, ended_at=None).first(),
    }
    context["earned"] = earned_by(actor, context["payees"], context["by"])
    invalid = any(form is not None and form.errors for form in (details, schedule, country, told))
    return page(request, "pages/payouts.html", context, refusal=refusal, invalid=invalid)


def _months(now: datetime) -> list[Period]:
    newest = Period.of(now)
    months = newest.year * 12 + newest.month - 1
    return [Period((months - back) // 12, (months - back) % 12 + 1) for back in range(MONTHS_SHOWN)]


def _pays(actor: Actor) -> bool:
    return actor.has_platform_money


def _own(actor: Actor) -> Any:
    return queries.payouts(actor).filter(tenant_id=actor.tenant_id)


def _payee(row: PayeeRow, now: datetime, form: ScheduleForm | None = None) -> dict[str, Any]:
    found = paying.estimate(row, now=now)
    chosen = "" if row.minimum_nanos is None else decimal_of(row.minimum_nanos)
    initial = {"schedule": found.schedule, "minimum": chosen}
    return {
        "row": row,
        "form": form or ScheduleForm(initial=initial),
        "next": found,
        "usable": row.usable_from is not None and row.usable_from <= now,
        "channel_waits": row.channel_from is not None and row.channel_from > now,
        "missing": [_readable(each) for each in row.stripe_missing[:MISSING_SHOWN]],
        "missing_more": max(0, len(row.stripe_missing) - MISSING_SHOWN),
        "bank_payouts": bank_payouts(row)[:BANK_PAYOUTS_SHOWN],
        "left": found.payable.owed - found.payable.nanos,
        "pays": found.payable.nanos >= found.minimum_nanos and found.payable.nanos > 0,
    }


def _readable(wanted: str) -> str:
    """Return what Stripe wants to know, such as `individual.dob.day`, for people."""
    return wanted.replace(".", " ").replace("_", " ")


def _owed(actor: Actor, now: datetime) -> list[dict[str, Any]]:
    """Return what the platform owes each owner, for finance; the most first."""
    if not _pays(actor):
        return []
    rows = [row for row in queries.payees(actor) if row.tenant_id != PLATFORM_ID]
    rows = [row for row in rows if row.earned_nanos != row.paid_nanos]
    rows.sort(key=lambda row: row.paid_nanos - row.earned_nanos)
    names = money.party_names({row.tenant_id for row in rows[:PLACES_SHOWN]})
    return [
        {
            "owner": names.get(row.tenant_id, ""),
            **_payee(row, now),
        }
        for row in rows[:PLACES_SHOWN]
    ]


def _sendable(actor: Actor) -> list[dict[str, Any]]:
    """Return by currency how many payouts a bank file would have."""
    if not _pays(actor):
        return []
    found = []
    for currency in sorted(set(queries.payees(actor).values_list("currency", flat=True))):
        rows = paying.sendable(actor, currency)
        if rows:
            found.append(
                {
                    "currency": currency,
                    "count": len(rows),
                    "nanos": sum(row.nanos for row in rows),
                    "form": FileForm(initial={"currency": currency}),
                }
            )
    return found


# --- an owner's own, and files for the bank -----------------------------------------------------


@require_POST
def settle(request: HttpRequest, account_id: UUID) -> HttpResponse:
    """Request the payout of what is payable to an owner now."""
    actor = actor_of(request)
    user_id, row = paying.need_to_pay(actor), queries.payee(actor, account_id)
    try:
        payout_id, position = paying.settle_now(
            default_store(), row, user_id=user_id, by=meta_of(actor), now=timezone.now()
        )
    except Refusal as refused:
        return show(request, refusal=refused)
    return done(request, f"/payouts/{payout_id}", position, "Requested. Somebody else approves it.")


@require_POST
def details(request: HttpRequest, account_id: UUID) -> HttpResponse:
    """Propose another bank account."""
    actor = actor_of(request)
    row, form = paying.need_payee(actor, account_id), DetailsForm(request.POST)
    if not form.is_valid():
        return show(request, details=form)
    try:
        position = paying.propose_details(
            default_store(),
            default_vault(),
            row,
            read_details(**form.cleaned_data),
            details_id=uuid4(),
            user_id=actor.need_person(),
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refused:
        return show(request, refusal=refused, details=form)
    return done(request, "/payouts", position, "Entered. It waits to be confirmed.")


@require_POST
def confirm(request: HttpRequest, account_id: UUID, details_id: UUID) -> HttpResponse:
    """Confirm a bank account that waited long enough."""
    said = "You are paid to this account from now on."
    return _decide(request, account_id, details_id, commands.confirm_bank_details, said)


@require_POST
def withdraw(request: HttpRequest, account_id: UUID, details_id: UUID) -> HttpResponse:
    """Withdraw a bank account that waits."""
    said = "Withdrawn. The account before stays."
    return _decide(request, account_id, details_id, commands.withdraw_bank_details, said)


def _decide(
    request: HttpRequest,
    account_id: UUID,
    details_id: UUID,
    doing: Callable[..., Position],
    said: str,
) -> HttpResponse:
    actor = actor_of(request)
    row = paying.need_payee(actor, account_id)
    try:
        position = doing(
            default_store(),
            AccountId(row.account_id),
            details_id,
            user_id=actor.need_person(),
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refused:
        return show(request, refusal=refused)
    return done(request, "/payouts", position, said)


@require_POST
def schedule(request: HttpRequest, account_id: UUID) -> HttpResponse:
    """Choose how often to be paid."""
    actor = actor_of(request)
    row, form = paying.need_payee(actor, account_id), ScheduleForm(request.POST)
    if not form.is_valid():
        return show(request, schedule=form)
    try:
        minimum = form.cleaned_data["minimum"].strip()
        position = commands.set_payout_schedule(
            default_store(),
            paying.of_row(row),
            schedule=form.cleaned_data["schedule"],
            minimum_nanos=nanos_of(minimum) if minimum else None,
            user_id=actor.need_person(),
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refused:
        return show(request, refusal=refused, schedule=form)
    return done(request, "/payouts", position, "Saved.")


@require_POST
def write_file(request: HttpRequest) -> HttpResponse:
    """Put approved payouts into a file for the bank."""
    actor = actor_of(request)
    user_id, form = paying.need_to_pay(actor), FileForm(request.POST)
    if not form.is_valid():
        return show(request)
    currency = form.cleaned_data["currency"]
    try:
        position = paying.write_bank_file(
            default_store(),
            default_vault(),
            paying.sendable(actor, currency),
            file_id=uuid4(),
            form=form.cleaned_data["format"],
            currency=currency,
            user_id=user_id,
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refused:
        return show(request, refusal=refused)
    return done(request, "/payouts", position, "Written. Load it under Bank files.")


@require_POST
def load_file(request: HttpRequest, file_id: UUID) -> HttpResponse:
    """Send a bank file; again it has the same bytes."""
    actor = actor_of(request)
    paying.need_to_pay(actor)
    row = queries.bank_file(actor, file_id)
    try:
        event, data = paying.file_bytes(default_store(), default_vault(), row)
    except Refusal as refused:
        return show(request, refusal=refused)
    name = name_of(event.message_id, event.format)
    return HttpResponse(
        data,
        content_type=f"{MEDIA_TYPES[event.format]}; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )
