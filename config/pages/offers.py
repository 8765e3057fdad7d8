"""An owner's offers: list GPUs for idle windows, see what that may earn, change and withdraw."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from config.figures import amount_text
from config.pages.answers import done, meta_of, page
from config.pages.offer_form import FOLDED, ISOLATIONS, OfferForm, RepriceForm, terms_of
from config.pages.offer_ways import ways_of
from config.pages.parts import part_of
from config.pages.terms_form import TermsForm
from config.pages.window_grid import Grid, Held, build_grid
from config.visitors import zone_of
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.domain.ids import HostId, OfferId
from ledger.domain.refusal import Refusal
from ledger.domain.span import Window
from ledger.eventstore import default_store
from listings import commands, queries
from listings.domain.divisions import PPM, card_of, compute_ppm, read_share
from listings.domain.earnings import Earnings, preview_earnings
from listings.domain.events import Gpu
from listings.domain.terms import OfferTerms, leased_gpus
from listings.domain.windows import windows_between
from listings.models import HostRow, OfferRow
from marketplace.queries.leases import leases

LIST_MAX = 200
DAY = timedelta(days=1)
WEEK = timedelta(days=7)
COMING_MAX = 12
NIGHT_LENGTH = timedelta(hours=8)
NIGHTS_LOOKED_AT = 14
HOUR = timedelta(hours=1)
HOURS_LOOKED_AT, HOURS_MAX = 7 * 24, 8
SAID = {
    "pause": "Paused: no new leases for now.",
    "resume": "On the market again.",
    "withdraw": "Withdrawn.",
    "reprice": "The new floor holds for leases to come.",
    "terms": "The new terms hold for leases to come.",
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
def new(request: HttpRequest) -> HttpResponse:
    """Put GPUs on the market."""
    actor = actor_of(request)
    actor.need("owner", "operator")
    hosts = _own_hosts(actor)
    host = _chosen(hosts, request.POST.get("host") or request.GET.get("host"))
    if host is None:
        return page(request, "pages/offer_new.html", {"hosts": [], "host": None})
    since = _since(request)
    form = _form(request, actor, host, since)
    refusal: Refusal | None = None
    if request.method == "POST" and form.is_valid():
        try:
            offer_id = OfferId(form.cleaned_data["token"])
            position = commands.publish_offer(
                default_store(),
                offer_id=offer_id,
                host_id=HostId(host.host_id),
                terms=terms_of(form, zone_of(request)),
                by=meta_of(actor, form.cleaned_data["token"]),
                now=timezone.now(),
            )
            return done(request, f"/offers/{offer_id}", position, "On the market.")
        except Refusal as refused:
            refusal = refused
    context = {
        "hosts": hosts,
        "host": host,
        "form": form,
        "has_folded_errors": any(name in form.errors for name in FOLDED),
        "grid": _grid(request, actor, host, since),
        "since": since,
        "earlier": since - DAY,
        "later": since + DAY,
    }
    return page(
        request, "pages/offer_new.html", context, refusal=refusal, invalid=bool(form.errors)
    )


@require_POST
def preview(request: HttpRequest) -> HttpResponse:
    """What the offer in the form may earn: a part of its page, refreshed as it is filled in."""
    actor = actor_of(request)
    actor.need("owner", "operator")
    host = _chosen(_own_hosts(actor), request.POST.get("host"))
    context: dict[str, Any] = {"earnings": None}
    if host is not None:
        form = OfferForm(request.POST, host=host, currency=settings.ENV.currency)
        if form.is_valid():
            try:
                terms = terms_of(form, zone_of(request))
                context |= {"earnings": _earnings(terms), "weekly": terms.weekly is not None}
            except Refusal as refusal:
                context["refusal"] = refusal
        else:
            wrong = form.errors.as_data()
            told = {
                name: [m for e in errors if e.code != "required" for m in e.messages]
                for name, errors in wrong.items()
            }
            context["floor_errors"] = told.pop("floor", [])
            context["errors"] = [message for each in told.values() for message in each]
    return render(request, "pages/offer_preview.html", context)


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
            case _:
                return HttpResponseBadRequest("unknown button")
    except Refusal as refusal:
        asked = terms if verb == "terms" else None
        return _show(request, offer_id, refusal=refusal, terms=asked)
    return done(request, f"/offers/{offer_id}", position, SAID[verb])


def _show(
    request: HttpRequest,
    offer_id: UUID,
    *,
    refusal: Refusal | None = None,
    form: RepriceForm | None = None,
    terms: TermsForm | None = None,
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
    invalid = any(asked is not None and asked.errors for asked in (form, terms))
    return page(request, "pages/offer.html", context, refusal=refusal, invalid=invalid)


def _with_compute(gpu: Gpu) -> Gpu:
    """Return a GPU that says what part of its card's compute it has."""
    return replace(gpu, compute_percent=compute_ppm(gpu) * 100 // PPM)


def _own_hosts(actor: Actor) -> list[HostRow]:
    """Return the hosts of the visitor's own organisation that have GPUs to list."""
    rows = queries.hosts(actor).filter(tenant_id=actor.tenant_id, gpu_count__gt=0)
    return list(rows.exclude(state="retired")[:LIST_MAX])


def _chosen(hosts: list[HostRow], wanted: str | None) -> HostRow | None:
    for row in hosts:
        if str(row.host_id) == wanted:
            return row
    return hosts[0] if hosts else None


def _since(request: HttpRequest) -> datetime:
    """Return the start of the grid: the hour of the reader's clock asked for, or the present one.

    In zones that are off by half hours it begins within an hour of UTC.
    """
    try:
        asked = datetime.fromisoformat(request.GET.get("since", ""))
    except ValueError:
        asked = timezone.now()
    if asked.tzinfo is None or not 2000 < asked.year < 3000:
        asked = timezone.now()
    hour = timezone.localtime(asked).replace(minute=0, second=0, microsecond=0)
    return hour.astimezone(UTC)


def _form(request: HttpRequest, actor: Actor, host: HostRow, since: datetime) -> OfferForm:
    if request.method == "POST":
        return OfferForm(request.POST, host=host, currency=settings.ENV.currency)
    evening, gpus = _first_free(actor, host, since)
    initial = {
        "host": host.host_id,
        "gpu": gpus,
        "starts_at": evening.starts_at,
        "ends_at": evening.ends_at,
    }
    return OfferForm(initial=initial, host=host, currency=settings.ENV.currency)


def _first_free(actor: Actor, host: HostRow, since: datetime) -> tuple[Window, list[str]]:
    """Return the first night to come in which GPUs of the host are not listed yet, and which.

    Where all of them are in every night that is looked at, the first hours that are free; where
    there are none, the first night and all GPUs.
    """
    uuids = [gpu.uuid for gpu in queries.gpus_of_row(host)]
    evening = timezone.localtime(since).replace(hour=22, minute=0)
    if evening <= timezone.now():
        evening += DAY
    nights = [
        Window(
            (evening + night * DAY).astimezone(UTC),
            (evening + night * DAY + NIGHT_LENGTH).astimezone(UTC),
        )
        for night in range(NIGHTS_LOOKED_AT)
    ]
    spans = queries.grid(actor, since=timezone.now(), until=nights[-1].ends_at)
    for night in nights:
        taken = _taken(spans, night)
        if free := [uuid for uuid in uuids if uuid not in taken]:
            return night, free
    hour = timezone.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0) + HOUR
    free_by_hour = [
        (starts, set(uuids) - _taken(spans, Window(starts, starts + HOUR)))
        for starts in (hour + number * HOUR for number in range(HOURS_LOOKED_AT))
    ]
    for at, (starts, found) in enumerate(free_by_hour):
        if found:
            ends = starts + HOUR
            for later, also in free_by_hour[at + 1 : at + HOURS_MAX]:
                if not also >= found:
                    break
                ends = later + HOUR
            return Window(starts, ends), [uuid for uuid in uuids if uuid in found]
    return nights[0], uuids


def _taken(spans: Iterable[queries.ListedSpan], window: Window) -> set[str]:
    """Return the cards that are listed at some time of a window, whole or in part."""
    return {card_of(each.gpu_uuid) for each in spans if each.window.overlaps(window)}


def _earnings(terms: OfferTerms) -> Earnings:
    """Price the windows: one-off ones as they are, a weekly rule by its next seven days."""
    now = timezone.now()
    windows = windows_between(terms.windows, terms.weekly, since=now, until=now + WEEK)
    if terms.weekly is None:
        windows = list(terms.windows)
    return preview_earnings(
        windows,
        gpus=leased_gpus(terms),
        floor=terms.floor,
        fee_ppm=settings.ENV.fee_ppm,
        fill=queries.recent_fill(now=now),
    )


def _grid(request: HttpRequest, actor: Actor, host: HostRow, since: datetime) -> Grid:
    until = since + DAY
    held: dict[str, list[Held]] = {}
    for span in queries.grid(actor, since=since, until=until):
        floor = amount_text(span.floor.nanos_per_gpu_hour, span.floor.currency, exact=True)
        text = f"Listed {floor}" if span.state == "listed" else f"Paused {floor}"
        state = "offered" if span.state == "listed" else "own"
        href = f"/offers/{span.offer_id}"
        listed = Held(span.window, state, text, _span_text(span.window), href, rank=1)
        held.setdefault(span.gpu_uuid, []).append(listed)
        if read_share(span.gpu_uuid) is not None:
            held.setdefault(card_of(span.gpu_uuid), []).append(replace(listed, text="In shares"))
    running = leases(actor, states=HOLDING, host_id=host.host_id)
    for lease in running.filter(starts_at__lt=until, ends_at__gt=since):
        price = amount_text(lease.price_nanos_per_gpu_hour, lease.currency, exact=True)
        window = Window(lease.starts_at, lease.stop_at or lease.ends_at)
        state = "reclaiming" if lease.stop_at else "leased"
        text = f"Reclaim {price}" if lease.stop_at else f"Leased {price}"
        for uuid in lease.gpu_uuids:
            held.setdefault(uuid, []).append(
                Held(window, state, text, _span_text(window), f"/leases/{lease.lease_id}", rank=2)
            )
    gpus: list[tuple[str, str, str]] = []
    for number, gpu in enumerate(queries.gpus_of_row(host)):
        gpus.append((gpu.uuid, f"GPU {number}", gpu.model))
        gpus += _share_rows(gpu.uuid, number, held)
    return build_grid(gpus, held, since=since, zone=zone_of(request), now=timezone.now())


def _share_rows(card: str, number: int, held: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return the rows of a card's shares, each division by itself, in order."""
    found = [(share, uuid) for uuid in held if (share := read_share(uuid)) is not None]
    return [
        (
            uuid,
            f"GPU {number}, {share.kind} {share.number}",
            share.profile or f"{share.compute_percent} %, {share.memory_mib} MiB",
        )
        for share, uuid in sorted(found, key=lambda each: (each[0].division, each[0].number))
        if share.card_uuid == card
    ]


def _span_text(window: Window) -> str:
    starts, ends = timezone.localtime(window.starts_at), timezone.localtime(window.ends_at)
    return f"{starts:%H:%M} to {ends:%H:%M}"


def _next_window(row: OfferRow, now: datetime) -> Window | None:
    windows = queries.windows_of_row(row, since=now, until=now + 5 * WEEK)
    return windows[0] if windows else None
