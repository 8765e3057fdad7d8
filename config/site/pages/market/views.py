"""The market at a glance: what GPUs cost, how deep the book is, what is free and when, and news."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from config.site.forms.answers import page
from config.site.live import tape
from config.site.live.shown import shown_through
from config.site.pages.market.choosing import choice_of, market_of
from config.site.parts.charts import Level, Slot
from config.site.parts.figures import duration_text, percent_ppm
from config.site.parts.zone import zone_of
from ledger.access.visits import actor_of
from ledger.domain.money import Rate, decimal_of
from ledger.domain.span import Window
from ledger.eventstore import default_store
from marketplace.queries.leases import leased_gpus
from marketplace.queries.market import (
    WITHIN_MILLIS,
    Goods24h,
    PriceOfHour,
    Within,
    depth,
    free_gpus,
    market_now,
    prices,
    trades,
)
from marketplace.queries.price_index import HALF_LIFE, price_index
from marketplace.queries.promised import Promised, promised_together
from marketplace.queries.quotes import WindowQuote, window_quotes

DAY = timedelta(days=1)
SLOT = timedelta(minutes=30)
SLOTS = 48
KINDS_MAX = 8
NO_BREAK = "\N{NO-BREAK SPACE}"
POINTS_MAX = 600
TAPE_LINES = 30
NIGHT_FROM, NIGHT_UNTIL = 20, 6
WITHINS: dict[Within, str] = {"now": "Now", "day": "Within a day", "week": "Within a week"}


@dataclass(frozen=True, slots=True)
class Kind:
    """One GPU model on the market. values: hourly mean prices of the last day, oldest first."""

    goods: Goods24h
    last: Rate | None
    floor: Rate | None
    change_ppm: int | None
    values: list[float]

    @property
    def model(self) -> str:
        """Return its name."""
        return self.goods.gpu_model


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show the market of one GPU model: the one asked for, or the one with most supply."""
    actor_of(request)
    return page(request, "pages/market.html", _context(request))


@require_safe
def figures(request: HttpRequest) -> HttpResponse:
    """The part of the page that changes with every trade."""
    actor_of(request)
    return page(request, "pages/market_figures.html", _context(request))


def _context(request: HttpRequest) -> dict[str, Any]:
    now, actor = timezone.now(), actor_of(request)
    through = shown_through(request)
    market = market_of(request)
    kinds = _kinds(market, now)
    chosen = next((kind for kind in kinds if kind.model == request.GET.get("gpu")), None)
    if chosen is None and kinds:
        chosen = kinds[0]
    context: dict[str, Any] = {
        **choice_of(market, "/"),
        "kinds": kinds[:KINDS_MAX],
        "chosen": chosen,
        "shown_through": through,
        "lines": [
            {"position": row.position, "line": tape.line_of_row(row)}
            for row in tape.latest(TAPE_LINES)
        ],
        "zone": str(zone_of(request)),
        "sets_up": actor.is_platform and "operator" in actor.roles,
    }
    asked = request.GET.get("within")
    within: Within = next((each for each in WITHIN_MILLIS if each == asked), "now")
    return context if chosen is None else context | _book_of(market, chosen, now, within)


def _kinds(market: str, now: datetime) -> list[Kind]:
    """Return every model on the market, the most listed first."""
    hourly: dict[tuple[str, str], list[PriceOfHour]] = defaultdict(list)
    for price in prices(market=market, gpu_model=None, since=now - DAY, until=now):
        hourly[price.gpu_model, price.currency].append(price)
    found = []
    for goods in market_now(default_store(), market=market, now=now):
        hours = hourly[goods.gpu_model, goods.currency]
        first, last = (hours[0].mean_nanos, goods.last_nanos) if hours else (0, goods.last_nanos)
        found.append(
            Kind(
                goods=goods,
                last=None if last is None else Rate(last, goods.currency),
                floor=None
                if goods.floor_nanos is None
                else Rate(goods.floor_nanos, goods.currency),
                change_ppm=(last - first) * 1_000_000 // first if first and last else None,
                values=[float(decimal_of(hour.mean_nanos)) for hour in hours],
            )
        )
    return sorted(found, key=lambda kind: (-kind.goods.listed, kind.model))


def _book_of(market: str, kind: Kind, now: datetime, within: Within) -> dict[str, Any]:
    goods, store = kind.goods, default_store()
    depths = depth(store, market=market, gpu_model=kind.model, now=now, within=within)
    book = next((each for each in depths if each.currency == goods.currency), None)
    return {
        **_index_of(market, kind, now),
        **_line_of(market, kind, now),
        "within": within,
        "withins": WITHINS.items(),
        "floor_within": book.asks[0].price_nanos if book and book.asks else None,
        "promised": _promised_of(goods.promised),
        "service": _service_of(goods),
        "quotes": _quotes_of(market, kind, now),
        "asks": [Level(each.price_nanos, each.gpus) for each in book.asks] if book else [],
        "bids": [Level(each.price_nanos, each.gpus) for each in book.bids] if book else [],
        "slots": _slots(market, kind.model, now),
        "day_millis": goods.free_day_gpu_millis,
        "week_millis": goods.free_week_gpu_millis,
    }


def _line_of(market: str, kind: Kind, now: datetime) -> dict[str, Any]:
    """Return the prices of the last day's trades, and the one that held when the day began."""
    begin = now - DAY
    traded = trades(market).filter(gpu_model=kind.model, currency=kind.goods.currency)
    recent = list(traded.filter(at__gte=begin)[:POINTS_MAX])
    before = traded.filter(at__lt=begin).first() if len(recent) < POINTS_MAX else None
    points = [
        [int(max(row.at, begin).timestamp()), float(decimal_of(row.price_nanos_per_gpu_hour))]
        for row in (*([before] if before else ()), *reversed(recent))
    ]
    return {
        "points": json.dumps(points),
        "day_from": int(begin.timestamp()),
        "day_until": int(now.timestamp()),
    }


def _index_of(market: str, kind: Kind, now: datetime) -> dict[str, Any]:
    """Return the index of the last day: its values, the latest, and how old its last trade is."""
    found = price_index(market=market, gpu_model=kind.model, since=now - DAY, until=now)
    points = [point for point in found if point.currency == kind.goods.currency]
    if not points:
        return {"index": None, "half_life": HALF_LIFE}
    first, last = points[0].index_nanos, points[-1].index_nanos
    traded = [point.hour for point in points if point.gpu_millis]
    return {
        "index": Rate(last, kind.goods.currency),
        "index_change_ppm": (last - first) * 1_000_000 // first if first else None,
        "index_values": [float(decimal_of(point.index_nanos)) for point in points],
        "index_traded": traded[-1] + timedelta(hours=1) if traded else None,
        "half_life": HALF_LIFE,
    }


def _quotes_of(market: str, kind: Kind, now: datetime) -> list[dict[str, Any]]:
    """Return a line for each count and length, with what it costs now, in a day, in a week."""
    quotes = window_quotes(
        default_store(),
        market=market,
        gpu_model=kind.model,
        currency=kind.goods.currency,
        now=now,
    )
    lines: dict[tuple[int, timedelta], list[WindowQuote]] = defaultdict(list)
    for quote in quotes:
        lines[quote.gpus, quote.length].append(quote)
    return [
        {
            "gpus": gpus,
            "length": length,
            "quotes": found,
            "promised": _promised_of(promised_together(each.promised for each in found)),
        }
        for (gpus, length), found in lines.items()
    ]


def _promised_of(found: Promised | None) -> dict[str, str] | None:
    """Return each promise as a text: one figure, or from the least to the most."""
    if found is None:
        return None
    return {
        "notice": _lengths(found.notice_seconds_min, found.notice_seconds_max),
        "fee": _from_to(
            percent_ppm(found.reclaim_fee_ppm_min), percent_ppm(found.reclaim_fee_ppm_max)
        ),
        "grace": _lengths(found.grace_seconds_min, found.grace_seconds_max),
    }


def _service_of(goods: Goods24h) -> str:
    """Return what is promised of the service of what is listed, at best; empty: nothing."""
    found = goods.service
    if found is None:
        return ""
    told = [f"on {found.gpus} of {goods.listed} GPUs"]
    if found.start_seconds is not None:
        told.append(f"start within {duration_text(timedelta(seconds=found.start_seconds))}")
    if found.availability_ppm is not None:
        told.append(f"availability {percent_ppm(found.availability_ppm)}")
    return ", ".join(told)


def _lengths(least: int, most: int) -> str:
    texts = (duration_text(timedelta(seconds=seconds)) for seconds in (least, most))
    return _from_to(*(text.replace(" ", NO_BREAK) for text in texts))


def _from_to(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


def _slots(market: str, model: str, now: datetime) -> list[Slot]:
    """Count free and leased GPUs in each half hour of the next day."""
    since = now.astimezone(UTC).replace(minute=30 * (now.minute // 30), second=0, microsecond=0)
    until = since + SLOT * SLOTS
    store = default_store()
    listed = free_gpus(store, market=market, model=model, now=now, until=until)
    leased = leased_gpus(since=since, until=until, market=market, model=model)
    slots = []
    for number in range(SLOTS):
        starts = since + SLOT * number
        here = Window(starts, starts + SLOT)
        taken = {uuid for uuid, window in leased if window.overlaps(here)}
        free = {uuid for uuid, window in listed if window.overlaps(here)} - taken
        local = timezone.localtime(starts)
        night = local.hour >= NIGHT_FROM or local.hour < NIGHT_UNTIL
        slots.append(Slot(f"{local:%H:%M}", len(free), len(taken), night))
    return slots
