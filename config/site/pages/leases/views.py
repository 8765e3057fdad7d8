"""The leases of a tenant: what runs, what it has cost so far, and how to end or extend it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from bursting.queries import home_moves
from config.site.forms.answers import done, meta_of, page
from config.site.forms.fields import MomentField, RateField, TokenField
from config.site.live.shown import shown_through
from config.site.pages.leases.connect import PortForm, address_of, connect_of
from config.site.pages.leases.facts import (
    ENDED,
    cost_of,
    ended_because,
    extension_of,
    is_resumed,
    paused_from_of,
    sale_of,
    undisturbed_until_of,
    work_of,
)
from config.site.pages.leases.files import files_of
from config.site.pages.leases.idle import idle_of
from config.site.pages.leases.outcome import outcome_of
from config.site.pages.leases.prices import prices_of_lease
from config.site.pages.leases.promises import sla_of_lease
from config.site.pages.leases.timeline import saved_at, steps_of
from config.site.pages.leases.usage import axis_of_lease, corrections_of, use_of
from config.site.parts.again import again_at
from config.site.parts.paging import part_of
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.domain.events import Role
from ledger.domain.ids import LeaseId
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.queries.disputes import disputed
from marketplace.commands.leases import (
    close_lease,
    keep_rest_of_lease,
    reclaim_lease,
    request_extension,
    save_work,
    sell_rest,
    take_rest_first,
)
from marketplace.domain.leases.actions import LeaseOver
from marketplace.domain.leases.attempts import attempts_of
from marketplace.domain.leases.reclaim_schedule import Choice
from marketplace.models.leases import LeaseRow
from marketplace.queries import bids
from marketplace.queries import leases as queries
from marketplace.queries.folders import left_by
from metering.domain.access import NoWorkDomain
from metering.queries.access import permit_for

HOME_MOVES_MAX = 3
"""So many tries to move its work home are told of, the newest."""
CONTESTING: frozenset[Role] = frozenset({"consumer", "finance", "operator"})
"""Roles that may contest a charge of a lease of theirs."""
OPEN = ("scheduled", "starting", "active", "reclaiming", "ending")


class ReclaimForm(forms.Form):
    """With how much notice capacity is taken back."""

    notice_seconds = forms.IntegerField(min_value=0, required=False)


class ResaleForm(forms.Form):
    """From when on, and for how much at least, the rest of a lease is for sale."""

    token = TokenField()
    since = MomentField(label="From", required=False)
    shortest = forms.IntegerField(label="Shortest lease", min_value=1, initial=15)

    def __init__(self, *args: Any, currency: str, **kwargs: Any) -> None:
        super().__init__(*args, **{"auto_id": "resale_%s", **kwargs})
        self.fields["floor"] = RateField(label="Floor price", currency=currency)


class ExtendForm(forms.Form):
    """Until when a lease should go on."""

    token = TokenField()
    ends_at = MomentField(label="Extend until")


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Every lease the visitor consumes or owns; those that run come first."""
    through = shown_through(request)
    actor = actor_of(request)
    now = timezone.now()
    only = request.GET.get("show", "open")
    states = OPEN if only == "open" else ()
    part = part_of(request, queries.leases(actor, states=states), "page")
    context = {
        "leases": [
            {
                "row": row,
                "cost": cost_of(row, now),
                "mine": _is_mine(actor, row),
                "own": row.tenant_id in row.owner_ids and not row.price_nanos_per_gpu_hour,
                "why": queries.sees_why(actor, row),
            }
            for row in part.rows
        ],
        "only": only,
        "sees_files": actor.may("files:read"),
        "shown_through": through,
        "part": part,
    }
    return page(request, "pages/leases.html", context)


@require_safe
def one(request: HttpRequest, lease_id: UUID) -> HttpResponse:
    """One lease with its timeline."""
    return _show(request, lease_id)


@require_safe
def state(request: HttpRequest, lease_id: UUID) -> HttpResponse:
    """What changes on a lease's page while it runs: its forms only once they are others.

    So what somebody is typing stays.
    """
    return _show(
        request,
        lease_id,
        template="pages/lease_refreshed.html",
        shown=request.GET.get("shown", ""),
    )


@require_POST
def end(request: HttpRequest, lease_id: UUID) -> HttpResponse:
    """End a lease now."""
    actor = actor_of(request)
    actor.need("consumer", "operator")
    queries.consumed_lease(actor, lease_id)
    try:
        position = close_lease(
            default_store(), lease_id=LeaseId(lease_id), by=meta_of(actor), now=timezone.now()
        )
    except Refusal as refusal:
        return _show(request, lease_id, refusal=refusal)
    return done(request, f"/leases/{lease_id}", position, "The lease is ending.")


@require_POST
def extend(request: HttpRequest, lease_id: UUID) -> HttpResponse:
    """Ask to go on until later."""
    actor = actor_of(request)
    actor.need("consumer", "operator")
    queries.consumed_lease(actor, lease_id)
    form = ExtendForm(request.POST)
    if not form.is_valid():
        return _show(request, lease_id, form=form)
    try:
        position = request_extension(
            default_store(),
            lease_id=LeaseId(lease_id),
            ends_at=form.cleaned_data["ends_at"],
            by=meta_of(actor, form.cleaned_data["token"]),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return _show(request, lease_id, refusal=refusal, form=form)
    said = "Asked for. The market answers within its next round."
    return done(request, f"/leases/{lease_id}", position, said)


@require_POST
def checkpoint(request: HttpRequest, lease_id: UUID) -> HttpResponse:
    """Note that the work is safe up to now."""
    actor = actor_of(request)
    actor.need("consumer", "operator")
    queries.consumed_lease(actor, lease_id)
    now = timezone.now()
    try:
        position = save_work(
            default_store(),
            lease_id=LeaseId(lease_id),
            host_id=None,
            safe_at=now,
            by=meta_of(actor),
            now=now,
        )
    except Refusal as refusal:
        return _show(request, lease_id, refusal=refusal)
    said = "Checkpoint noted. If the lease is interrupted, its work resumes from here."
    return done(request, f"/leases/{lease_id}", position, said)


@require_POST
def sell(request: HttpRequest, lease_id: UUID) -> HttpResponse:
    """Put the rest of a lease back on the market, or keep it: the button says which."""
    actor = actor_of(request)
    actor.need("consumer", "operator")
    row = queries.consumed_lease(actor, lease_id)
    store, now = default_store(), timezone.now()
    keep = request.POST.get("do") == "keep"
    form = ResaleForm(request.POST, currency=row.currency)
    if not keep and not form.is_valid():
        return _show(request, lease_id, resale=form)
    try:
        if keep:
            position = keep_rest_of_lease(
                store, lease_id=LeaseId(lease_id), by=meta_of(actor), now=now
            )
            return done(request, f"/leases/{lease_id}", position, "You keep the rest.")
        data = form.cleaned_data
        position = sell_rest(
            store,
            lease_id=LeaseId(lease_id),
            since=data["since"],
            floor=data["floor"],
            lease_min_seconds=data["shortest"] * 60,
            by=meta_of(actor, data["token"]),
            now=now,
        )
    except Refusal as refusal:
        return _show(request, lease_id, refusal=refusal, resale=None if keep else form)
    said = "For sale. The owner may take it first, then the market is asked."
    return done(request, f"/leases/{lease_id}", position, said)


@require_POST
def take(request: HttpRequest, lease_id: UUID) -> HttpResponse:
    """As the owner, take the rest that is for sale before the market is asked."""
    actor = actor_of(request)
    actor.need("owner", "operator")
    queries.lease(actor, lease_id)
    try:
        position = take_rest_first(
            default_store(),
            lease_id=LeaseId(lease_id),
            owner_id=actor.tenant_id,
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return _show(request, lease_id, refusal=refusal)
    return done(request, f"/leases/{lease_id}", position, "The rest is yours.")


@require_POST
def reclaim(request: HttpRequest, lease_id: UUID) -> HttpResponse:
    """Take the owner's capacity back, after the agreed notice."""
    actor = actor_of(request)
    actor.need("owner", "operator")
    queries.lease(actor, lease_id)
    form = ReclaimForm(request.POST)
    seconds = form.cleaned_data["notice_seconds"] if form.is_valid() else None
    try:
        position = reclaim_lease(
            default_store(),
            lease_id=LeaseId(lease_id),
            owner_id=actor.tenant_id,
            notice=None if seconds is None else timedelta(seconds=seconds),
            by=meta_of(actor),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return _show(request, lease_id, refusal=refusal)
    return done(request, f"/leases/{lease_id}", position, "Reclaim announced to the consumer.")


@require_POST
def open_port(request: HttpRequest, lease_id: UUID) -> HttpResponse:
    """Send the browser on to a port of the work, on an origin that is the work's own."""
    actor = actor_of(request)
    actor.need_scope("leases:write")
    queries.consumed_lease(actor, lease_id)
    form = PortForm(request.POST)
    try:
        if not settings.ENV.work_domain:
            raise NoWorkDomain()
        port = form.cleaned_data["port"] if form.is_valid() else None
        permit = permit_for(actor, lease_id, what="port", port=port, key=None)
    except Refusal as refusal:
        return _show(request, lease_id, refusal=refusal)
    return HttpResponseRedirect(address_of(request, permit))


def _show(
    request: HttpRequest,
    lease_id: UUID,
    *,
    refusal: Refusal | None = None,
    form: ExtendForm | None = None,
    resale: ResaleForm | None = None,
    template: str = "pages/lease.html",
    shown: str | None = None,
) -> HttpResponse:
    through, actor = shown_through(request), actor_of(request)
    context = _context(actor, lease_id)
    context["shown_through"] = through
    context["disputes"] = disputed(actor, lease_id)
    context["contestable"] = context["mine"] and bool(actor.roles & CONTESTING)
    context["are_others"] = shown != " ".join(context["actions"])
    row = context["row"]
    later = ExtendForm(initial={"ends_at": row.ends_at + timedelta(hours=1)})
    invalid = any(each is not None and each.errors for each in (form, resale))
    context["form"] = form or later
    price = row.price_at(row.ends_at)
    context["resale_form"] = resale or ResaleForm(initial={"floor": price}, currency=row.currency)
    return page(request, template, context, refusal=refusal, invalid=invalid)


def _context(actor: Actor, lease_id: UUID) -> dict[str, Any]:
    row = queries.lease(actor, lease_id)
    now = timezone.now()
    over = row.state not in OPEN
    actions, use = queries.actions_of(actor, [row], now=now)[lease_id], use_of(actor, lease_id)
    choices = _choices(actor, lease_id, now) if row.state not in ENDED else []
    timeline, cost = queries.timeline(default_store(), lease_id), cost_of(row, now)
    left = left_by(actor, row)
    steps, attempts = steps_of(timeline, left), attempts_of(each.event for each in timeline)
    resumes, resumed_by = queries.resumed(actor, row)
    mine, rest = _is_mine(actor, row), None if resumed_by else queries.rest_of(actor, row)
    return {
        "row": row,
        "cost": cost,
        "use": use,
        "axis": axis_of_lease(
            actor, row, at_most=cost.at_most, steps=steps, saved=saved_at(timeline), now=now
        ),
        "corrections": corrections_of(actor, lease_id),
        "files": files_of(actor, row, left),
        "steps": list(reversed(list(enumerate(steps, start=1)))),
        "attempts": attempts,
        "again": again_at(bids.bid(actor, row.bid_id)) if over and mine else "",
        "outcome": outcome_of(
            (each.event for each in timeline),
            attempts,
            mine=mine,
            goes_on=bool(resumed_by or rest),
        ),
        "resumes": resumes,
        "resumed_by": resumed_by,
        "rest": rest if mine else None,
        "logs_kept_days": settings.ENV.logs_kept_days,
        "over": over,
        "actions": actions,
        "choices": choices,
        "cut": queries.cut_of(actor, default_store(), row),
        "home_moves": list(home_moves(actor, lease_id=row.lease_id)[:HOME_MOVES_MAX]),
        "ends_at": queries.right_ends_at(row),
        "ended_because": ended_because(row),
        "resumed": is_resumed(actor, row),
        "mine": _is_mine(actor, row),
        "why": queries.sees_why(actor, row),
        "owned": actor.tenant_id in row.owner_ids,
        "now": now,
        "sale": sale_of(row, now),
        "extension": extension_of(row),
        "promises": [
            (each["gpus"], [(_seconds(step), step["fee_ppm"]) for step in each["steps"]])
            for each in row.reclaim_schedule
        ],
        "grace": timedelta(seconds=row.grace_seconds),
        "length": row.ends_at - row.starts_at,
        "undisturbed_until": undisturbed_until_of(row),
        "paused_from": paused_from_of(actor, row),
        "work": work_of(row, now) | {"sla": sla_of_lease(row)},
        "connect": connect_of(actor, row),
        "prices": prices_of_lease(actor, row, actions, now),
        "idle": idle_of(actor, row, now),
    }


def _seconds(step: dict[str, int]) -> timedelta:
    return timedelta(seconds=step["notice_seconds"])


def _choices(actor: Actor, lease_id: UUID, now: datetime) -> list[tuple[timedelta, Choice]]:
    """Return what a reclaim would cost now, by its notice; none while the lease is ending."""
    try:
        found = queries.reclaim_quote(actor, default_store(), lease_id, now=now)
    except LeaseOver:
        return []
    return [(timedelta(seconds=each.notice_seconds), each) for each in found.choices]


def _is_mine(actor: Actor, row: LeaseRow) -> bool:
    return row.tenant_id == actor.tenant_id
