"""An owner lists GPUs: the form of an offer, what it may earn, and what is listed already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid5
from zoneinfo import ZoneInfo

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from config.site.forms.answers import done, meta_of, page
from config.site.pages.offers.form import FOLDED, OfferForm, offers_of
from config.site.pages.offers.refusals_at_fields import place
from config.site.pages.offers.window_grid import Grid, Held, build_grid
from config.site.parts.figures import amount_text
from config.site.parts.zone import zone_of
from ledger.access import Actor
from ledger.access.visits import actor_of
from ledger.domain.ids import HostId, OfferId
from ledger.domain.money import Rate
from ledger.domain.refusal import Refusal
from ledger.domain.span import Window
from ledger.eventstore import default_store
from listings import commands, queries
from listings.commands.previewing import check_offer
from listings.domain.divisions import card_of, read_share
from listings.domain.earnings import Earnings, preview_earnings
from listings.domain.terms import OfferTerms, leased_gpus
from listings.domain.windows import windows_between
from listings.models import HostRow
from marketplace.queries.leases import leases
from marketplace.queries.price_index import price_index
from marketplace.queries.prices import price_of

HOSTS_MAX = 200
HOSTS_TRIED = 6
"""How many are looked at for one with hours that are not listed yet."""
NANOS_PER_CENT = 10_000_000
DAY = timedelta(days=1)
WEEK = timedelta(days=7)
NIGHT_LENGTH = timedelta(hours=8)
NIGHTS_LOOKED_AT = 14
HOUR = timedelta(hours=1)
HOURS_LOOKED_AT, HOURS_MAX = 7 * 24, 8
HOLDING = ("scheduled", "starting", "active", "reclaiming", "ending")


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
    if request.method != "POST" and "host" not in request.GET:
        free = (each for each in hosts[:HOSTS_TRIED] if _first_free(actor, each, since)[1])
        host = next(free, host)
    form = _form(request, actor, host, since)
    refusal: Refusal | None = None
    if request.method == "POST" and form.is_valid():
        try:
            return _publish(request, actor, host, form)
        except Refusal as refused:
            refusal = None if place(form, refused) else refused
    context = {
        "hosts": hosts,
        "host": host,
        "form": form,
        "priced": _index_of(host, form["gpu"].value()),
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
                context |= _estimate(request, actor, host, form)
            except Refusal as refusal:
                context["refusal"] = None if place(form, refusal) else refusal
        wrong = form.errors.as_data()
        context["said"] = {
            name: [m for e in wrong.get(name, ()) if e.code != "required" for m in e.messages]
            for name, field in form.fields.items()
            if not field.widget.is_hidden
        }
        context["is_wrong"] = any(context["said"].values())
    return render(request, "pages/offer_preview.html", context)


def _publish(request: HttpRequest, actor: Actor, host: HostRow, form: OfferForm) -> HttpResponse:
    """Publish the offers of a form, all of them or none but for a race, and show the first."""
    store, now = default_store(), timezone.now()
    offers = _identified(form, zone_of(request), now)
    if len(offers) > 1:
        _check(actor, host, offers, now)
    positions = [
        commands.publish_offer(
            store,
            offer_id=offer_id,
            host_id=HostId(host.host_id),
            terms=terms,
            by=meta_of(actor, offer_id),
            now=now,
        )
        for offer_id, terms in offers.items()
    ]
    said = "On the market." if len(offers) == 1 else f"On the market, as {len(offers)} offers."
    return done(request, f"/offers/{next(iter(offers))}", max(positions), said)


def _identified(form: OfferForm, zone: ZoneInfo, now: datetime) -> dict[OfferId, OfferTerms]:
    """Return each offer of a form by its id, which is the same when the form is sent again."""
    token = form.cleaned_data["token"]
    return {
        OfferId(uuid5(token, str(number)) if number else token): terms
        for number, terms in enumerate(offers_of(form, zone, now=now))
    }


def _check(
    actor: Actor, host: HostRow, offers: Mapping[OfferId, OfferTerms], now: datetime
) -> None:
    for offer_id, terms in offers.items():
        check_offer(
            default_store(),
            offer_id=offer_id,
            host_id=HostId(host.host_id),
            terms=terms,
            tenant_id=actor.tenant_id,
            now=now,
        )


def _own_hosts(actor: Actor) -> list[HostRow]:
    """Return the hosts of the visitor's own organisation that have GPUs to list."""
    rows = queries.hosts(actor).filter(tenant_id=actor.tenant_id, gpu_count__gt=0)
    return list(rows.exclude(state="retired")[:HOSTS_MAX])


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
        "floor": _index_of(host, gpus).get("index"),
        "host": host.host_id,
        "gpu": gpus,
        "starts_at": evening.starts_at,
        "ends_at": evening.ends_at,
    }
    return OfferForm(initial=initial, host=host, currency=settings.ENV.currency)


def _first_free(actor: Actor, host: HostRow, since: datetime) -> tuple[Window, list[str]]:
    """Return the first night to come in which GPUs of the host are not listed yet, and which.

    Where all of them are in every night that is looked at, the first hours that are free; where
    there are none, the first night and no GPU.
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
    return nights[0], []


def _taken(spans: Iterable[queries.ListedSpan], window: Window) -> set[str]:
    """Return the cards that are listed at some time of a window, whole or in part."""
    return {card_of(each.gpu_uuid) for each in spans if each.window.overlaps(window)}


def _index_of(host: HostRow, gpus: Iterable[str] | None) -> dict[str, Any]:
    """Return the model that most of these GPUs are, or of all, and its price index to the cent."""
    chosen = set(gpus or ())
    models = Counter(
        gpu.model for gpu in queries.gpus_of_row(host) if gpu.uuid in chosen or not chosen
    )
    if not models:
        return {}
    [(model, _)] = models.most_common(1)
    now, currency = timezone.now(), settings.ENV.currency
    found = price_index(market=host.market, gpu_model=model, since=now - DAY, until=now)
    values = [point.index_nanos for point in found if point.currency == currency]
    if not values:
        return {"model": model}
    cents = round(values[-1] / NANOS_PER_CENT) * NANOS_PER_CENT
    index = Rate(cents, currency)
    told = amount_text(index.nanos_per_gpu_hour, currency, exact=True)
    hint = f"The least you accept. Suggested: the price index of {model}, {told} per GPU-h."
    return {"model": model, "index": index, "hint": hint}


def _estimate(request: HttpRequest, actor: Actor, host: HostRow, form: OfferForm) -> dict[str, Any]:
    """Return what the offers of a form may earn, unless publishing them would be refused."""
    now = timezone.now()
    offers = _identified(form, zone_of(request), now)
    _check(actor, host, offers, now)
    weekly = any(terms.weekly for terms in offers.values())
    return {"earnings": _earnings(tuple(offers.values()), now), "weekly": weekly}


def _earnings(offers: Sequence[OfferTerms], now: datetime) -> Earnings:
    """Price the windows: one-off ones as they are, a weekly rule by its next seven days."""
    windows = [
        window
        for terms in offers
        for window in (
            windows_between(terms.windows, terms.weekly, since=now, until=now + WEEK)
            if terms.weekly
            else terms.windows
        )
    ]
    terms = offers[0]
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
        price = amount_text(price_of(lease, now=timezone.now()), lease.currency, exact=True)
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
