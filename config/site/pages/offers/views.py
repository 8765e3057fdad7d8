"""The offers of an organisation: what they say, and changing, pausing and withdrawing them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from config.site.forms.answers import done, meta_of, page
from config.site.pages.offers.card_forms import ways_of
from config.site.pages.offers.form import ISOLATIONS, RepriceForm
from config.site.pages.offers.sla_form import SlaForm
from config.site.pages.offers.terms_form import TermsForm
from config.site.parts.paging import part_of
from config.site.parts.promised import promised_of
from ledger.access.visits import actor_of
from ledger.domain.ids import OfferId
from ledger.domain.refusal import Refusal
from ledger.domain.span import Window
from ledger.eventstore import default_store
from listings import commands, queries
from listings.commands.promising import set_offer_sla
from listings.domain.divisions import PPM, compute_ppm
from listings.domain.events import Gpu
from listings.models import OfferRow
from marketplace.queries.leases import leases

LIST_MAX = 200
WEEK = timedelta(days=7)
COMING_MAX = 12
SAID = {
    "pause": "Paused: no new leases for now.",
    "resume": "On the market again.",
    "withdraw": "Withdrawn.",
    "reprice": "The new floor price applies to future leases.",
    "terms": "The new terms apply to future leases.",
    "sla": "The promise applies to future leases.",
}
HOLDING = ("scheduled", "starting", "active", "reclaiming", "ending")


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Every offer of the visitor's organisation."""
    actor = actor_of(request)
    only = request.GET.get("show", "open")
    states = queries.OPEN if only == "open" else ()
    now = timezone.now()
    part = part_of(request, queries.offers(actor, states=states), "page")
    context = {
        "offers": [{"row": row, "next": _next_window(row, now)} for row in part.rows],
        "only": only,
        "part": part,
        "has_hosts": queries.hosts(actor).exists(),
    }
    return page(request, "pages/offers.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def page_of_offer(request: HttpRequest, offer_id: UUID) -> HttpResponse:
    """One offer: its terms, its windows to come, and what can be done with it."""
    return change(request, offer_id) if request.method == "POST" else _show(request, offer_id)


def change(request: HttpRequest, offer_id: UUID) -> HttpResponse:
    """Reprice, pause, resume or withdraw an offer, or change its terms: the button says which."""
    actor = actor_of(request)
    actor.need("owner", "operator")
    queries.offer(actor, offer_id)
    verb = request.POST.get("do", "")
    form, terms = RepriceForm(request.POST, currency=settings.ENV.currency), TermsForm(request.POST)
    if verb == "reprice" and not form.is_valid():
        return _show(request, offer_id, form=form)
    if verb == "terms" and not terms.is_valid():
        return _show(request, offer_id, terms=terms)
    sla = SlaForm(request.POST)
    if verb == "sla" and not sla.is_valid():
        return _show(request, offer_id, sla=sla)
    store, offer, by, now = default_store(), OfferId(offer_id), meta_of(actor), timezone.now()
    try:
        match verb:
            case "pause":
                position = commands.pause_offer(store, offer_id=offer, by=by, now=now)
            case "resume":
                position = commands.resume_offer(store, offer_id=offer, by=by, now=now)
            case "withdraw":
                position = commands.withdraw_offer(store, offer_id=offer, by=by, now=now)
            case "reprice":
                floor = form.cleaned_data["floor"]
                position = commands.reprice_offer(
                    store, offer_id=offer, floor=floor, by=by, now=now
                )
            case "terms":
                position = commands.change_offer(
                    store, offer_id=offer, terms=terms.change(), by=by, now=now
                )
            case "sla":
                position = set_offer_sla(
                    store, offer_id=offer, terms=sla.promised(), by=by, now=now
                )
            case _:
                return HttpResponseBadRequest("unknown button")
    except Refusal as refusal:
        asked = terms if verb == "terms" else None
        promise = sla if verb == "sla" else None
        return _show(request, offer_id, refusal=refusal, terms=asked, sla=promise)
    return done(request, f"/offers/{offer_id}", position, SAID[verb])


def _show(
    request: HttpRequest,
    offer_id: UUID,
    *,
    refusal: Refusal | None = None,
    form: RepriceForm | None = None,
    terms: TermsForm | None = None,
    sla: SlaForm | None = None,
) -> HttpResponse:
    actor = actor_of(request)
    row = queries.offer(actor, offer_id)
    now = timezone.now()
    windows = queries.windows_of_row(row, since=now, until=now + 4 * WEEK)
    context = {
        "row": row,
        "gpus": [_with_compute(gpu) for gpu in queries.gpus_of_row(row)],
        "isolation": dict(ISOLATIONS)[row.isolation],
        "windows": windows[:COMING_MAX],
        "form": form
        or RepriceForm(initial={"floor": queries.floor_of(row)}, currency=row.currency),
        "terms": terms or TermsForm.of(row),
        "sla": sla or SlaForm.of(row),
        "promised": promised_of(row.sla),
        "open": row.state in queries.OPEN,
        "actions": queries.actions_of(actor, row, now=now),
        "leases": leases(actor, states=HOLDING).filter(gpu_uuids__overlap=row.gpu_uuids)[:LIST_MAX],
        "notice": timedelta(seconds=row.notice_seconds),
        "grace": timedelta(seconds=row.grace_seconds),
        "steps": [
            (timedelta(seconds=step.notice_seconds), step.fee_ppm)
            for step in queries.steps_of_row(row)
        ],
        "lease_min": timedelta(seconds=row.lease_min_seconds),
        "cleaning": timedelta(seconds=row.cleaning_seconds),
        "ways": ways_of(row),
        "chosen": row.chosen,
        "form_min": timedelta(seconds=(row.by_demand or {}).get("form_min_seconds", 0)),
    }
    invalid = any(asked is not None and asked.errors for asked in (form, terms, sla))
    return page(request, "pages/offer.html", context, refusal=refusal, invalid=invalid)


def _with_compute(gpu: Gpu) -> Gpu:
    """Return a GPU that says what part of its card's compute it has."""
    return replace(gpu, compute_percent=compute_ppm(gpu) * 100 // PPM)


def _next_window(row: OfferRow, now: datetime) -> Window | None:
    windows = queries.windows_of_row(row, since=now, until=now + 5 * WEEK)
    return windows[0] if windows else None
