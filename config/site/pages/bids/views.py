"""A consumer's bids: say what to run, see what that would cost, and why it is (not) matched."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from bursting.queries import burst_instances, burst_wait
from config.site.forms.answers import done, meta_of, page
from config.site.forms.fields import MomentField, RateField, TokenField
from config.site.live.shown import shown_through
from config.site.pages.bids.again import again
from config.site.pages.bids.form import FOLDED, BidForm, RunForm, bid_terms
from config.site.pages.bids.funnel import funnel_of
from config.site.pages.bids.refusals_at_fields import place
from config.site.parts.again import again_at
from config.site.parts.paging import part_of
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.domain.ids import BidId
from ledger.domain.money import Money, Rate
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.queries.parties import subscribers
from marketplace.commands import chains
from marketplace.commands.bids import amend_bid, cancel_bid, place_bid
from marketplace.domain.bids.bid import cost_at_most
from marketplace.domain.bids.workload_profiles import advise
from marketplace.domain.facts.close_reasons import PAUSES
from marketplace.domain.leases.renewals import ENDED
from marketplace.domain.placement.eligibility import REASONS
from marketplace.explain.ended_bid import explain_ended
from marketplace.models.bids import BidRow
from marketplace.queries import bids as queries
from marketplace.queries.books import BookBusy, explain_bid, preview
from marketplace.queries.folders import folders
from marketplace.queries.leases import leases
from marketplace.queries.market import market_now
from marketplace.queries.money_waits import wait_of
from marketplace.queries.routing import routed
from marketplace.queries.secrets import secrets

BURST_TRIES_MAX = 20
CHAIN_MAX = 50
BOOK_SECONDS_MAX = 2.0
"""How long the page of a bid waits for the book: its state is shown without, too."""
FOLDERS_MAX = 100
RUN = {"kind": "other", "patience": "soonest"}
RUN_FOLDED = (
    "image", "query", "network", "starts_within", "availability", "volumes", "idle_minutes",
    "secrets", "secret_variables", "fetch_secret",
)  # fmt: skip
UNASKED = ("kind", "placement", "earliest_start", "deadline", "service_class", "patience")
"""Fields that a bid needs and the page of a run does not ask for."""
REFUSED = "The next one could not be placed: its money or its time did not suffice."
ENDED_BECAUSE = {
    "deadline": "It could no longer be met by its deadline.",
    "good-till": "The time that it was to wait is over.",
    "not-at-once": "It could not be met when it came, and was not to wait.",
    "not-covered": "The money set aside for it no longer covered what it was granted.",
}


class AmendForm(forms.Form):
    """A new limit, deadline and number of GPUs; the bid queues anew."""

    token = TokenField()
    deadline = MomentField(label="Done by")
    gpus = forms.IntegerField(label="How many", min_value=1, max_value=1_024, required=False)

    def __init__(self, *args: Any, currency: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["limit"] = RateField(label="Limit price", currency=currency)


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Every bid of the visitor's organisation."""
    actor = actor_of(request)
    only = request.GET.get("show", "open")
    part = part_of(request, queries.bids(actor, states=("open",) if only == "open" else ()), "page")
    context = {
        "bids": [
            {"row": row, "reason": REASONS.get(row.reason, ""), "length": _length(row)}
            for row in part.rows
        ],
        "only": only,
        "part": part,
    }
    return page(request, "pages/bids.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def new(request: HttpRequest) -> HttpResponse:
    """Place a bid."""
    return _placing(request, "pages/bid_new.html", BidForm, folded=FOLDED, initial={})


@require_http_methods(["GET", "HEAD", "POST"])
def run(request: HttpRequest) -> HttpResponse:
    """Run a command in a folder: a bid that starts as soon as it can, with few questions."""
    return _placing(request, "pages/run.html", RunForm, folded=RUN_FOLDED, initial=RUN)


def _placing(
    request: HttpRequest,
    template: str,
    kind: type[BidForm],
    *,
    folded: Sequence[str],
    initial: Mapping[str, str],
) -> HttpResponse:
    """Show a form of a bid, and place what it says. folded: its fields that are out of sight.

    initial: what fields hold before anybody writes into them.
    """
    actor = actor_of(request)
    actor.need("consumer", "operator")
    now = timezone.now()
    form = _form(request, actor, now, initial, kind)
    refusal: Refusal | None = None
    if request.method == "POST" and form.is_valid():
        try:
            terms = bid_terms(
                form, actor, market=settings.ENV.market, currency=settings.ENV.currency
            )
            by = meta_of(actor, form.cleaned_data["token"])
            terms, route = routed(default_store(), terms, markets=settings.MARKETS, now=now)
            position = place_bid(default_store(), terms=terms, by=by, now=now, route=route)
            return done(request, f"/bids/{terms.bid_id}", position, "Your bid is on the market.")
        except Refusal as refused:
            if not place(form, refused, unasked=UNASKED if kind is RunForm else ()):
                refusal = refused
    context = {
        "form": form,
        "has_unit": "unit" in form.fields,
        "has_folded_errors": any(name in form.errors for name in folded),
        "kept_fields": [form[name] for name in UNASKED],
    }
    invalid = bool(form.errors)
    return page(request, template, context, refusal=refusal, invalid=invalid)


@require_POST
def estimate(request: HttpRequest) -> HttpResponse:
    """What the bid in the form would get now: a part of its page, refreshed as it is filled in."""
    actor = actor_of(request)
    actor.need("consumer", "operator")
    now = timezone.now()
    form = _form(request, actor, now, {})
    context: dict[str, Any] = {}
    if form.is_valid():
        try:
            terms = bid_terms(
                form, actor, market=settings.ENV.market, currency=settings.ENV.currency
            )
            terms, _route = routed(default_store(), terms, markets=settings.MARKETS, now=now)
            quote = preview(default_store(), terms=terms, now=now)
            context |= {"quote": quote, "burst": terms.burst_allowed}
            context["promises"] = [
                (
                    each.gpus,
                    [(timedelta(seconds=step.notice_seconds), step.fee_ppm) for step in each.steps],
                    timedelta(seconds=each.grace_seconds),
                )
                for each in quote.promises
            ]
            context["advice"] = advise(
                terms.workload.kind,
                gpus=terms.gpus_min or terms.gpus,
                isolation=terms.request.isolation,
            )
            context |= funnel_of(quote.explanation, terms.gpus)
        except Refusal as refusal:
            context["refusal"] = refusal
    else:
        wrong = [e for errors in form.errors.as_data().values() for e in errors]
        context["errors"] = [m for e in wrong if e.code != "required" for m in e.messages]
    return render(request, "pages/bid_estimate.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def one(request: HttpRequest, bid_id: UUID) -> HttpResponse:
    """One bid. A form sent here amends it."""
    if request.method != "POST":
        return _show(request, bid_id)
    actor = actor_of(request)
    actor.need("consumer", "operator")
    row = queries.own_bid(actor, bid_id)
    form = AmendForm(request.POST, currency=row.currency)
    if not form.is_valid():
        return _show(request, bid_id, form=form)
    try:
        position = amend_bid(
            default_store(),
            bid_id=BidId(bid_id),
            limit=form.cleaned_data["limit"],
            deadline=form.cleaned_data["deadline"],
            gpus=form.cleaned_data["gpus"],
            by=meta_of(actor, form.cleaned_data["token"]),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return _show(request, bid_id, refusal=refusal, form=form)
    return done(
        request, f"/bids/{bid_id}", position, "Amended. The bid queues behind others at its price."
    )


@require_safe
def state(request: HttpRequest, bid_id: UUID) -> HttpResponse:
    """What changes on a bid's page while it waits: its forms only once they are others."""
    return _show(
        request, bid_id, template="pages/bid_refreshed.html", shown=request.GET.get("shown", "")
    )


@require_POST
def cancel(request: HttpRequest, bid_id: UUID) -> HttpResponse:
    """Withdraw a bid."""
    actor = actor_of(request)
    actor.need("consumer", "operator")
    queries.own_bid(actor, bid_id)
    try:
        position = cancel_bid(
            default_store(), bid_id=BidId(bid_id), by=meta_of(actor), now=timezone.now()
        )
    except Refusal as refusal:
        return _show(request, bid_id, refusal=refusal)
    return done(request, f"/bids/{bid_id}", position, "Withdrawn; its money is available again.")


@require_POST
def end_chain(request: HttpRequest, bid_id: UUID) -> HttpResponse:
    """Let no bid follow the last of a chain."""
    actor = actor_of(request)
    actor.need("consumer", "operator")
    queries.own_bid(actor, bid_id)
    try:
        position = chains.end_chain(
            default_store(), bid_id=BidId(bid_id), by=meta_of(actor), now=timezone.now()
        )
    except Refusal as refusal:
        return _show(request, bid_id, refusal=refusal)
    return done(request, f"/bids/{bid_id}", position, "Nothing follows any more.")


def _form(
    request: HttpRequest,
    actor: Actor,
    now: datetime,
    preset: Mapping[str, str],
    kind: type[BidForm] = BidForm,
) -> BidForm:
    # The bid goes to whichever market serves it best; the first that lists a model names its price.
    goods = {
        each.gpu_model: each
        for market in reversed(settings.MARKETS)
        for each in market_now(default_store(), market=market.name, now=now)
    }
    units: list[tuple[str, str]] = []
    if actor.subscriber_id is None:
        units = [
            (str(row.subscriber_id), row.title) for row in subscribers(actor).order_by("title")
        ]
    make = partial(
        kind,
        models=sorted(goods),
        units=units,
        currency=settings.ENV.currency,
        now=now,
        folders=[
            (str(row.folder_id), row.title or f"{row.kept_at:%d %b %H:%M}, {row.files} files")
            for row in folders(actor)[:FOLDERS_MAX]
        ],
        secrets=[row.name for row in secrets(actor)[:FOLDERS_MAX]],
    )
    if request.method == "POST":
        return make(request.POST)
    initial: dict[str, Any] = dict(preset)
    earlier = _earlier(request, actor)
    if earlier is not None:
        return make(initial=initial | again(earlier, models=goods))
    wanted = goods.get(request.GET.get("gpu", ""))
    if wanted is not None:
        price = wanted.floor_nanos if wanted.last_nanos is None else wanted.last_nanos
        initial |= {"gpu": wanted.gpu_model, "kind": "other"}
        if price is not None:
            initial["limit"] = Rate(price, wanted.currency)
    return make(initial=initial)


def _earlier(request: HttpRequest, actor: Actor) -> BidRow | None:
    """Return the bid that `again` names; None where it names none of the organisation's."""
    try:
        return queries.own_bid(actor, UUID(request.GET.get("again", "")))
    except (ValueError, Refusal):
        return None


def _show(
    request: HttpRequest,
    bid_id: UUID,
    *,
    refusal: Refusal | None = None,
    form: AmendForm | None = None,
    template: str = "pages/bid.html",
    shown: str | None = None,
) -> HttpResponse:
    through = shown_through(request)
    context = _context(actor_of(request), bid_id)
    context["shown_through"] = through
    context["are_others"] = shown != " ".join(context["actions"])
    row: BidRow = context["row"]
    initial = {"limit": context["limit"], "deadline": row.deadline, "gpus": row.gpus}
    invalid = form is not None and bool(form.errors)
    context["form"] = form or AmendForm(initial=initial, currency=row.currency)
    return page(request, template, context, refusal=refusal, invalid=invalid)


def _context(actor: Actor, bid_id: UUID) -> dict[str, Any]:
    row = queries.bid(actor, bid_id)
    limit = Rate(row.limit_nanos_per_gpu_hour, row.currency)
    most = cost_at_most(limit, row.gpus, row.duration_seconds)
    budget = None if row.budget_nanos is None else Money(row.budget_nanos, row.currency)
    shortest = row.duration_min_seconds
    context: dict[str, Any] = {
        "row": row,
        "several_markets": len(settings.MARKETS) > 1,
        "limit": limit,
        "length": _length(row),
        "most": most if budget is None else min(most, budget),
        "budget": budget,
        "done": timedelta(seconds=row.done_seconds),
        "shortest": None if shortest is None else timedelta(seconds=shortest),
        "ended_because": ENDED_BECAUSE.get(row.ended_because, ENDED_BECAUSE["deadline"]),
        "command_line": shlex.join(row.command),
        "again": again_at(row) if row.tenant_id == actor.tenant_id else "",
        "mine": row.tenant_id == actor.tenant_id,
        "may_write": row.tenant_id == actor.tenant_id and actor.may("bids:write"),
        "open": row.state == "open",
        "actions": queries.actions_of(actor, row),
        "burst_wait": burst_wait(actor, bid_id) if row.state == "open" else None,
        "burst_tries": list(
            burst_instances(actor, bid_id=bid_id).order_by("attempt")[:BURST_TRIES_MAX]
        ),
        "moves": [{**each, "at": datetime.fromisoformat(each["at"])} for each in row.moves],
    }
    if row.chain_id is not None:
        rows = list(queries.chain(actor, bid_id).reverse()[:CHAIN_MAX])
        context["chain"] = _chain(actor, list(reversed(rows)))
        because = rows[0].chain_ended or ("consumer" if rows[0].state == "cancelled" else "")
        context["money_wait"] = wait_of(actor, chain_id=row.chain_id)
        context["chain_ended"] = ENDED.get(because, REFUSED if because else "")
    if row.state == "open":
        context |= _why_open(row)
    elif row.state in ("expired", "cancelled"):
        ended = explain_ended(default_store(), market=row.market, bid_id=row.bid_id)
        if ended is not None:
            context |= {**funnel_of(ended.explanation, row.gpus), "as_of": ended.at}
    return context


def _why_open(row: BidRow) -> dict[str, Any]:
    """Return why a bid waits; or that the book cannot be asked just now."""
    try:
        told = explain_bid(
            default_store(),
            market=row.market,
            bid_id=row.bid_id,
            now=timezone.now(),
            wait_seconds=BOOK_SECONDS_MAX,
        )
    except BookBusy:
        return {"is_book_busy": True}
    return {} if told is None else funnel_of(told, row.gpus)


def _chain(actor: Actor, rows: Sequence[BidRow]) -> list[dict[str, Any]]:
    """Return the bids of a chain, each with what the lease before it left of the work."""
    ids = [row.resumes_lease_id for row in rows if row.resumes_lease_id is not None]
    left: dict[UUID | None, dict[str, Any]] = {
        lease.lease_id: {
            "lost_seconds": lease.lost_seconds,
            "kept": timedelta(seconds=lease.kept_seconds or 0),
            "lost": timedelta(seconds=lease.lost_seconds or 0),
            "paused_at": lease.closed_at if lease.close_reason in PAUSES else None,
        }
        for lease in leases(actor).filter(lease_id__in=ids)
    }
    return [
        {"row": row, "length": _length(row), "before": left.get(row.resumes_lease_id)}
        for row in rows
    ]


def _length(row: BidRow) -> timedelta:
    return timedelta(seconds=row.duration_seconds)
