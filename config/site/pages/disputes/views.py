"""Disputes: the list, one with its evidence, and what may be done with it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from config.site.forms.answers import done, meta_of, page
from config.site.pages.disputes.evidence import evidence_of
from config.site.pages.disputes.forms import CHARGES_MAX, ContestForm, DecideForm, SayForm
from config.site.pages.finance.kinds import KINDS
from config.site.pages.leases.timeline import steps_of
from config.site.parts.figures import places_of
from config.site.parts.paging import part_of
from ledger import disputing
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.domain.dispute_events import Outcome
from ledger.domain.disputes import CONTESTED_WITHIN
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.models import DisputeRow
from ledger.queries import disputes as queries
from ledger.queries import people
from ledger.queries.money import party_names
from marketplace.queries import leases
from metering.domain.instants import MILLI

STEPS_MAX = 30
OUTCOMES: dict[str, Outcome] = {"uphold": "upheld", "dismiss": "dismissed"}


def _need(request: HttpRequest) -> Actor:
    actor = actor_of(request)
    actor.need("consumer", "owner", "finance", "auditor", "operator")
    return actor


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Disputes that the visitor's organisation is part of; all for the platform's finance."""
    actor = _need(request)
    only = request.GET.get("show", "open")
    rows = queries.disputes(actor)
    if only == "open":
        rows = rows.filter(state="open")
    part = part_of(request, rows.order_by("-opened_at", "dispute_id"), "page")
    tenants = {row.tenant_id for row in part.rows}
    context = {
        "part": part,
        "only": only,
        "names": party_names(tenants | {each for row in part.rows for each in row.owner_ids}),
        "mine": actor.tenant_id,
        "decides": actor.has_platform_money,
        "sees_leases": _sees_leases(actor),
    }
    return page(request, "pages/disputes.html", context)


@require_safe
def one(request: HttpRequest, dispute_id: UUID) -> HttpResponse:
    """One dispute with its evidence."""
    return _show(request, dispute_id)


@require_POST
def say(request: HttpRequest, dispute_id: UUID) -> HttpResponse:
    """Put a statement on record."""
    actor, form = _need(request), SayForm(request.POST)
    if not form.is_valid():
        return _show(request, dispute_id, say_form=form)
    try:
        position = disputing.say(
            default_store(),
            actor,
            dispute_id,
            form.cleaned_data["text"],
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return _show(request, dispute_id, say_form=form, refusal=refusal)
    return done(
        request, f"/finance/disputes/{dispute_id}", position, "Your statement is on record."
    )


@require_POST
def decide(request: HttpRequest, dispute_id: UUID) -> HttpResponse:
    """Decide a dispute: uphold it, in whole or in part, or dismiss it."""
    actor = _need(request)
    row = queries.dispute(actor, dispute_id)
    form = DecideForm(request.POST, currency=row.currency)
    if not form.is_valid():
        return _show(request, dispute_id, decide_form=form)
    part, outcome = form.cleaned_data["part"], OUTCOMES[request.POST.get("outcome", "dismiss")]
    if outcome == "upheld" and part is not None:
        outcome = "in-part"
    try:
        position = disputing.decide(
            default_store(),
            actor,
            dispute_id,
            outcome,
            reason=form.cleaned_data["reason"],
            by=meta_of(actor),
            now=timezone.now(),
            given_back=part,
        )
    except Refusal as refusal:
        return _show(request, dispute_id, decide_form=form, refusal=refusal)
    return done(request, f"/finance/disputes/{dispute_id}", position, "Decided.")


@require_http_methods(["GET", "HEAD", "POST"])
def contest(request: HttpRequest, lease_id: UUID) -> HttpResponse:
    """Contest a charge of a lease."""
    actor = _need(request)
    row = leases.consumed_lease(actor, lease_id)
    now = timezone.now()
    known = queries.disputed(actor, lease_id)
    charges = queries.charges_of_lease(
        actor, lease_id, since=now - CONTESTED_WITHIN, limit=CHARGES_MAX
    )
    left = [each for each in charges if each.entry_id not in {it.entry_id for it in known}]
    choices = [
        (
            str(each.entry_id),
            f"{each.starts_at:%Y-%m-%d %H:%M} to {each.ends_at:%H:%M} UTC:"
            f" {each.gpu_millis / 3_600_000:.4f} GPU-hours",
        )
        for each in left
    ]
    form = ContestForm(request.POST or None, charges=choices)
    refusal = None
    if request.method == "POST" and form.is_valid():
        used: timedelta = form.cleaned_data["used"]
        try:
            dispute_id, position = disputing.contest(
                default_store(),
                actor,
                UUID(form.cleaned_data["entry_id"]),
                used_millis=used // MILLI,
                reason=form.cleaned_data["reason"],
                by=meta_of(actor),
                now=now,
            )
        except Refusal as refused:
            refusal = refused
        else:
            return done(request, f"/finance/disputes/{dispute_id}", position, "It is contested.")
    context = {"row": row, "form": form, "choices": choices, "known": known}
    invalid = request.method == "POST" and bool(form.errors)
    return page(request, "pages/dispute_new.html", context, refusal=refusal, invalid=invalid)


def _show(
    request: HttpRequest,
    dispute_id: UUID,
    *,
    refusal: Refusal | None = None,
    say_form: SayForm | None = None,
    decide_form: DecideForm | None = None,
) -> HttpResponse:
    actor = _need(request)
    row = queries.dispute(actor, dispute_id)
    said = queries.statements_of(row)
    who = {each.said_by for each in said} | {row.opened_by, row.decided_by}
    persons = people([each for each in who if each is not None])
    parties = {row.tenant_id, *row.owner_ids, *(each.tenant_id for each in said)}
    invalid = any(form is not None and form.errors for form in (say_form, decide_form))
    context: dict[str, Any] = {
        "row": row,
        "names": party_names(parties),
        "people": {key: each.title for key, each in persons.items()},
        "said": said,
        "evidence": evidence_of(actor, row),
        "minutes": (row.ends_at - row.starts_at) // timedelta(minutes=1),
        "steps": _steps(row),
        "sees_lease": _sees_leases(actor),
        **_entries(actor, row),
        "decides": row.state == "open" and actor.has_platform_money and _is_no_party(actor, row),
        "says": row.state == "open",
        "say_form": say_form or SayForm(),
        "decide_form": decide_form or DecideForm(currency=row.currency),
    }
    return page(request, "pages/dispute.html", context, refusal=refusal, invalid=invalid)


def _sees_leases(actor: Actor) -> bool:
    """Tell if the pages of the leases are there for the actor: finance of the platform has none."""
    return actor.sees_all or not actor.has_platform_money


def _is_no_party(actor: Actor, row: DisputeRow) -> bool:
    return actor.user_id != row.opened_by and actor.tenant_id not in (row.tenant_id, *row.owner_ids)


def _steps(row: DisputeRow) -> list[Any]:
    return steps_of(leases.timeline(default_store(), row.lease_id))[-STEPS_MAX:]


def _entries(actor: Actor, row: DisputeRow) -> dict[str, Any]:
    """Return the lines of its entries, with the accounts' titles."""
    lines = queries.entries_of(actor, row)
    titles = queries.titles_of(lines)
    return {
        "lines": [
            (
                KINDS.get(line.kind, line.kind.replace("-", " ")),
                titles.get(line.account_id, ""),
                line,
            )
            for line in lines
        ],
        "places": places_of([line.nanos for line in lines], row.currency),
    }
