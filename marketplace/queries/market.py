"""What everybody may know of a market: prices, depth, supply, tape, rounds. Nobody's name.

Supply and depth come from the order book as this process knows it (`queries.books`), prices and
the tape from rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from django.db.models import Count, Max, Min, QuerySet

from ledger.domain.ids import HostId
from ledger.domain.money import MILLIS_PER_HOUR
from ledger.domain.refusal import Unknown
from ledger.domain.span import Window
from ledger.eventstore.port import EventStore
from listings.domain.sla import ServiceLevel
from marketplace.domain.book.book import Book
from marketplace.domain.facts.instants import from_above, from_below, moment
from marketplace.domain.orderbook.host_reliability import Record, together
from marketplace.domain.orderbook.listed_offer import Listed
from marketplace.domain.orderbook.open_bid import Shape
from marketplace.models.rounds import PriceRow, RoundRow, TradeRow
from marketplace.queries.books import book_of
from marketplace.queries.promised import Promised, promised_by
from marketplace.queries.service import ServiceListed, service_listed

DAY_MILLIS = 24 * MILLIS_PER_HOUR
WEEK_MILLIS = 7 * DAY_MILLIS
Within = Literal["now", "day", "week"]
WITHIN_MILLIS: Mapping[Within, int] = {"now": 0, "day": DAY_MILLIS, "week": WEEK_MILLIS}
PRICE_HOURS_MAX = 24 * 31
LEVELS_MAX = 50

Goods = tuple[str, str]
"""GPU model and currency: what has one price."""


class RoundUnknown(Unknown):
    """There is no such round, or it decided nothing."""


@dataclass(frozen=True, slots=True)
class Level:
    """GPUs asked for or offered at one price."""

    price_nanos: int
    gpus: int


@dataclass(slots=True)
class Depth:
    """Supply and demand of one GPU model, now.

    asks: GPUs free at this moment by floor, lowest first. bids: GPUs that waiting bids want and
    this model can serve, by limit, highest first; a bid that several models can serve counts
    in each.
    """

    gpu_model: str
    currency: str
    asks: list[Level] = field(default_factory=list)
    bids: list[Level] = field(default_factory=list)


@dataclass(slots=True)
class Goods24h:
    """One GPU model on one page of the market.

    listed, free: GPUs. free_*_gpu_millis: free GPU-time within the next day, and week.
    floor_nanos: the lowest among GPUs free now. Prices are None where nothing traded.
    reliability_ppm: the share of leases that the listed hosts together did not break off; None:
    too few have ended. promised: by the owners of what is listed; None: nothing is. service: what
    they promise of their service; None: nothing.
    """

    gpu_model: str
    currency: str
    listed: int = 0
    free: int = 0
    free_day_gpu_millis: int = 0
    free_week_gpu_millis: int = 0
    floor_nanos: int | None = None
    limit_nanos: int | None = None
    wanted: int = 0
    last_nanos: int | None = None
    mean_nanos: int | None = None
    low_nanos: int | None = None
    high_nanos: int | None = None
    trades: int = 0
    reliability_ppm: int | None = None
    promised: Promised | None = None
    service: ServiceListed | None = None


def market_now(store: EventStore, *, market: str, now: datetime) -> list[Goods24h]:
    """Return supply, demand and the prices of the last 24 hours by model, in order of name."""
    goods: dict[Goods, Goods24h] = {}

    def one(key: Goods) -> Goods24h:
        return goods.setdefault(key, Goods24h(*key))

    with book_of(store, market) as book:
        _add_supply(book, from_above(now), one)
        for depth in _depths(book, from_above(now)):
            each = one((depth.gpu_model, depth.currency))
            each.wanted = sum(level.gpus for level in depth.bids)
            each.limit_nanos = max((level.price_nanos for level in depth.bids), default=None)
    for key, rows in _prices_by_goods(market, now - timedelta(hours=24)).items():
        _add_prices(one(key), rows)
    return [goods[key] for key in sorted(goods)]


def _add_supply(book: Book, now: int, one: Callable[[Goods], Goods24h]) -> None:
    records: dict[Goods, dict[HostId, Record]] = {}
    promises: dict[Goods, set[tuple[int, int, int]]] = defaultdict(set)
    levels: dict[Goods, list[ServiceLevel]] = defaultdict(list)
    for listed, uuid, model in _for_everybody(book):
        each = one((model, listed.terms.floor.currency))
        each.listed += 1
        spans = listed.free(uuid, book.calendar, since=now, until=now + WEEK_MILLIS)
        if any(opens <= now < closes for opens, closes in spans):
            each.free += 1
            least = listed.floor if each.floor_nanos is None else each.floor_nanos
            each.floor_nanos = min(least, listed.floor)
        key, terms = (model, each.currency), listed.terms
        records.setdefault(key, {})[terms.host_id] = listed.record
        levels[key].append(listed.kind.level)
        promises[key].add((terms.notice_seconds, terms.reclaim_fee_ppm, terms.grace_seconds))
        each.free_day_gpu_millis += _overlap(spans, now, now + DAY_MILLIS)
        each.free_week_gpu_millis += _overlap(spans, now, now + WEEK_MILLIS)
    for key, by_host in records.items():
        one(key).reliability_ppm = together(by_host.values())
        one(key).promised = promised_by(promises[key])
        one(key).service = service_listed(levels[key])


def free_gpus(
    store: EventStore, *, market: str, model: str, now: datetime, until: datetime
) -> list[tuple[str, Window]]:
    """Return when each GPU of a model is free in [now, until), by its UUID.

    Not what an owner took back, nor the gap after a lease in which a GPU is cleaned. For counting
    only: UUIDs are not for everybody's eyes.
    """
    since, end = from_above(now), from_below(until)
    with book_of(store, market) as book:
        return [
            (uuid, Window(moment(max(opens, since)), moment(min(closes, end))))
            for listed, uuid, its_model in _for_everybody(book)
            if its_model == model
            for opens, closes in listed.free(uuid, book.calendar, since=since, until=end)
            if max(opens, since) < min(closes, end)
        ]


def _for_everybody(book: Book) -> Iterator[tuple[Listed, str, str]]:
    """Yield each GPU that is listed for whoever bids."""
    for listed in book.offers.values():
        if not listed.paused and listed.terms.reserved_for is None:
            for gpu in listed.terms.gpus:
                yield listed, gpu.uuid, gpu.model


def _overlap(spans: Iterable[tuple[int, int]], since: int, until: int) -> int:
    return sum(max(0, min(closes, until) - max(opens, since)) for opens, closes in spans)


def depth(
    store: EventStore,
    *,
    market: str,
    gpu_model: str | None,
    now: datetime,
    within: Within = "now",
) -> list[Depth]:
    """Return the depth of each model (or of one), in order of name.

    within: GPUs that are free now, or at some time within a day or a week from now; and bids that
    may begin by then.
    """
    with book_of(store, market) as book:
        found = _depths(book, from_above(now), WITHIN_MILLIS[within])
    return [each for each in found if gpu_model is None or each.gpu_model == gpu_model]


def _depths(book: Book, now: int, within: int = 0) -> list[Depth]:
    asks: dict[Goods, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for listed, uuid, model in _for_everybody(book):
        spans = listed.free(uuid, book.calendar, since=now, until=now + max(within, DAY_MILLIS))
        if any(opens <= now + within and now < closes for opens, closes in spans):
            asks[model, listed.terms.floor.currency][listed.floor] += 1
    bids: dict[Goods, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    models: dict[Shape, frozenset[str]] = {}
    for bid in book.bids.values():
        if bid.earliest > now + within and within:
            continue
        if bid.shape not in models:
            entries = book.entries(bid.shape)
            models[bid.shape] = frozenset().union(*(entry.models for entry in entries))
        for model in models[bid.shape]:
            bids[model, bid.shape.currency][bid.limit] += bid.gpus
    return [
        Depth(
            *key,
            asks=[Level(*level) for level in sorted(asks[key].items())][:LEVELS_MAX],
            bids=[Level(*level) for level in sorted(bids[key].items(), reverse=True)][:LEVELS_MAX],
        )
        for key in sorted({*asks, *bids})
    ]


@dataclass(frozen=True, slots=True)
class PriceOfHour:
    """What a model traded at in one hour."""

    gpu_model: str
    currency: str
    hour: datetime
    mean_nanos: int
    low_nanos: int
    high_nanos: int
    last_nanos: int
    trades: int
    gpu_millis: int


def prices(
    *, market: str, gpu_model: str | None, since: datetime, until: datetime
) -> list[PriceOfHour]:
    """Return prices by model and hour, oldest first; hours without a trade are not there."""
    rows = PriceRow.objects.filter(market=market, hour__gte=since, hour__lt=until)
    if gpu_model is not None:
        rows = rows.filter(gpu_model=gpu_model)
    return [
        PriceOfHour(
            row.gpu_model,
            row.currency,
            row.hour,
            mean_price([row]),
            row.low_nanos,
            row.high_nanos,
            row.last_nanos,
            row.trades,
            row.gpu_millis,
        )
        for row in rows.order_by("hour", "key")
    ]


def _prices_by_goods(market: str, since: datetime) -> dict[Goods, list[PriceRow]]:
    found: dict[Goods, list[PriceRow]] = defaultdict(list)
    rows = PriceRow.objects.filter(market=market, hour__gte=since - timedelta(hours=1))
    for row in rows.order_by("hour", "key"):
        found[row.gpu_model, row.currency].append(row)
    return found


def _add_prices(each: Goods24h, rows: Sequence[PriceRow]) -> None:
    each.last_nanos = rows[-1].last_nanos
    each.mean_nanos = mean_price(rows)
    each.low_nanos = min(row.low_nanos for row in rows)
    each.high_nanos = max(row.high_nanos for row in rows)
    each.trades = sum(row.trades for row in rows)


def mean_price(rows: Sequence[PriceRow]) -> int:
    """Return the mean price per GPU-hour, each trade weighing as much as its GPU-time.

    A trade's value is kept in whole nano-units, rounded down, which of a short lease is too little
    to tell its price again: so the mean stays between the lowest and the highest price.
    """
    value = sum(row.value_nanos for row in rows)
    mean = value * MILLIS_PER_HOUR // sum(row.gpu_millis for row in rows)
    low, high = min(row.low_nanos for row in rows), max(row.high_nanos for row in rows)
    return min(max(mean, low), high)


def trades(market: str) -> QuerySet[TradeRow]:
    """Return the tape, newest first."""
    return TradeRow.objects.filter(market=market).order_by("-position")


def rounds(market: str, *, lane: str | None = None) -> QuerySet[RoundRow]:
    """Return the rounds that decided something, newest first."""
    rows = RoundRow.objects.filter(market=market).order_by("-position")
    return rows if lane is None else rows.filter(lane=lane)


@dataclass(frozen=True, slots=True)
class RoundPrices:
    """What a round's grants are paid with. own: how many are an owner's own use, which costs
    nothing and is no price; None for both prices where all are."""

    low_nanos: int | None
    high_nanos: int | None
    own: int


def prices_of(rows: Sequence[RoundRow]) -> dict[UUID, RoundPrices]:
    """Return the prices that each round's trades were made at, apart from own use."""
    traded = {
        each["round_id"]: each
        for each in TradeRow.objects.filter(round_id__in=[row.round_id for row in rows])
        .values("round_id")
        .annotate(
            trades=Count("position"),
            low=Min("price_nanos_per_gpu_hour"),
            high=Max("price_nanos_per_gpu_hour"),
        )
        .order_by()
    }
    found = {}
    for row in rows:
        each = traded.get(row.round_id)
        if each is not None:
            own = max(0, row.grants - each["trades"])
            found[row.round_id] = RoundPrices(each["low"], each["high"], own)
        elif row.grants and row.price_high_nanos:  # a row from before trades knew their round
            found[row.round_id] = RoundPrices(row.price_low_nanos, row.price_high_nanos, 0)
        else:
            found[row.round_id] = RoundPrices(None, None, row.grants)
    return found


def trades_of(round_id: UUID) -> QuerySet[TradeRow]:
    """Return the grants of one round, in the order made."""
    return TradeRow.objects.filter(round_id=round_id).order_by("position")


def round_of(round_id: UUID) -> RoundRow:
    """Return one round.

    Raises: RoundUnknown.
    """
    row = RoundRow.objects.filter(round_id=round_id).first()
    if row is None:
        raise RoundUnknown(round_id=round_id)
    return row
