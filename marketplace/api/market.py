"""JSON over HTTP for the market itself: prices, depth, supply, tape, workloads.

Nothing here says who offers, bids or leases.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.domain.refusal import Invalid
from ledger.domain.whole_numbers import whole_number
from ledger.rest import AmountField, Endpoint, MomentField
from listings.domain.markets import named
from marketplace.api.promises import PromisedShape, ServiceListedShape
from marketplace.domain.bids.query_language import CONDITIONS
from marketplace.domain.bids.workload_profiles import ENVELOPES
from marketplace.domain.placement.eligibility import REASONS
from marketplace.queries import market as queries
from marketplace.queries.market import WITHIN_MILLIS, Within
from marketplace.queries.price_index import IndexPoint, price_index
from marketplace.queries.quotes import WindowQuote, models_listed, window_quotes

MARKET = OpenApiParameter(
    "market", description="name of the market; the installation's own if left out"
)
MODEL = OpenApiParameter("gpu_model", description="one GPU model as the market names it, H100-80GB")
SECONDS_PER_HOUR = 3_600
HOURS_DEFAULT = 24
HOURS = OpenApiParameter(
    "hours",
    {
        "type": "integer",
        "minimum": 1,
        "maximum": queries.PRICE_HOURS_MAX,
        "default": HOURS_DEFAULT,
    },
)


class HoursOutOfRange(Invalid):
    """Prices are kept by the hour; ask for the last 1 to 744 hours."""


class GoodsShape(serializers.Serializer[Any]):
    """One GPU model: supply, demand, and the prices of the last 24 hours.

    reliability_ppm: the share of leases that its hosts did not break off, in millionths. promised:
    by the owners of what is listed; null: nothing is. service: what they promise of it; null:
    nothing.
    """

    gpu_model = serializers.CharField()
    currency = serializers.CharField()
    listed = serializers.IntegerField()
    free = serializers.IntegerField()
    free_day_gpu_seconds = serializers.SerializerMethodField()
    free_week_gpu_seconds = serializers.SerializerMethodField()
    lowest_floor = AmountField(source="floor_nanos", allow_null=True)
    highest_limit = AmountField(source="limit_nanos", allow_null=True)
    wanted = serializers.IntegerField()
    last_price = AmountField(source="last_nanos", allow_null=True)
    mean_price = AmountField(source="mean_nanos", allow_null=True)
    low_price = AmountField(source="low_nanos", allow_null=True)
    high_price = AmountField(source="high_nanos", allow_null=True)
    trades = serializers.IntegerField()
    reliability_ppm = serializers.IntegerField(allow_null=True)
    promised = PromisedShape(allow_null=True)
    service = ServiceListedShape(allow_null=True)

    def get_free_day_gpu_seconds(self, goods: queries.Goods24h) -> int:
        """Return the free GPU-time of the next day."""
        return goods.free_day_gpu_millis // 1000

    def get_free_week_gpu_seconds(self, goods: queries.Goods24h) -> int:
        """Return the free GPU-time of the next week."""
        return goods.free_week_gpu_millis // 1000


class LevelShape(serializers.Serializer[Any]):
    """GPUs at one price."""

    price = AmountField(source="price_nanos")
    gpus = serializers.IntegerField()


class DepthShape(serializers.Serializer[Any]):
    """Supply and demand of one model, by price."""

    gpu_model = serializers.CharField()
    currency = serializers.CharField()
    asks = LevelShape(many=True)
    bids = LevelShape(many=True)


class PriceShape(serializers.Serializer[Any]):
    """What a model traded at in one hour."""

    gpu_model = serializers.CharField()
    currency = serializers.CharField()
    hour = MomentField()
    mean_price = AmountField(source="mean_nanos")
    low_price = AmountField(source="low_nanos")
    high_price = AmountField(source="high_nanos")
    last_price = AmountField(source="last_nanos")
    trades = serializers.IntegerField()
    gpu_seconds = serializers.SerializerMethodField()

    def get_gpu_seconds(self, price: queries.PriceOfHour) -> int:
        """Return the GPU-time that was leased."""
        return price.gpu_millis // 1000


class TradeShape(serializers.Serializer[Any]):
    """One grant on the tape."""

    position = serializers.IntegerField()
    lane = serializers.CharField()
    gpu_model = serializers.CharField()
    gpus = serializers.IntegerField()
    price = AmountField(source="price_nanos_per_gpu_hour")
    currency = serializers.CharField()
    starts_at = MomentField()
    ends_at = MomentField()
    source = serializers.CharField()  # type: ignore[assignment]  # a field of that name
    at = MomentField()


class IndexShape(serializers.Serializer[Any]):
    """The index of a model at the end of an hour; nothing traded in an hour without GPU-time."""

    gpu_model = serializers.CharField()
    currency = serializers.CharField()
    hour = MomentField()
    index = AmountField(source="index_nanos")
    gpu_seconds = serializers.SerializerMethodField()

    def get_gpu_seconds(self, point: IndexPoint) -> int:
        """Return the GPU-time that was leased in the hour."""
        return point.gpu_millis // 1000


class QuotedShape(serializers.Serializer[Any]):
    """What GPUs on one host would cost; price, cost and times null where they are not to be had.

    starts_within: `now`, `day` or `week`. Not binding, and nothing is kept free for it.
    """

    gpu_model = serializers.CharField()
    gpus = serializers.IntegerField()
    duration_seconds = serializers.SerializerMethodField()
    starts_within = serializers.CharField()
    price = AmountField(source="price.nanos_per_gpu_hour", default=None, allow_null=True)
    cost = AmountField(source="cost.nanos", default=None, allow_null=True)
    starts_at = MomentField(source="window.starts_at", default=None, allow_null=True)
    ends_at = MomentField(source="window.ends_at", default=None, allow_null=True)
    promised = PromisedShape(allow_null=True)

    def get_duration_seconds(self, quote: WindowQuote) -> int:
        """Return for how long."""
        return int(quote.length.total_seconds())


class WorkloadKindShape(serializers.Serializer[Any]):
    """A kind of workload and what it needs at least, over all its GPUs."""

    kind = serializers.CharField()
    family = serializers.CharField()
    title = serializers.CharField()
    memory_mib = serializers.IntegerField()
    compute_capability = serializers.CharField(allow_null=True)
    hours_typical = serializers.IntegerField(allow_null=True)
    because = serializers.CharField()


def market_of(request: Request) -> str:
    """Return the market that is asked about: the installation's own if none is named.

    Raises: MarketUnknown.
    """
    return market_named(request.query_params.get("market"))


def market_named(name: str | None) -> str:
    """Return the market of a name; that of the installation where there is none.

    Raises: MarketUnknown.
    """
    return named(settings.MARKETS, name).name if name else str(settings.ENV.market)


class MarketNow(Endpoint):
    """The market at a glance."""

    scopes: ClassVar = {"GET": "market:read"}
    reads: ClassVar = ("marketplace.rounds",)

    @extend_schema(responses=GoodsShape(many=True), parameters=[MARKET])
    def get(self, request: Request) -> Response:
        """Show supply, demand and prices by GPU model."""
        goods = queries.market_now(self.store(), market=market_of(request), now=timezone.now())
        return self.listed(GoodsShape(goods, many=True).data, ("gpu_model", "currency"))


class WithinUnreadable(Invalid):
    """`within` is now, day or week."""


def _within(request: Request) -> Within:
    asked = request.query_params.get("within", "now")
    for known in WITHIN_MILLIS:
        if known == asked:
            return known
    raise WithinUnreadable(given=asked[:40], known=list(WITHIN_MILLIS))


class MarketDepth(Endpoint):
    """Supply and demand by price."""

    scopes: ClassVar = {"GET": "market:read"}
    reads: ClassVar = ()

    @extend_schema(
        responses=DepthShape(many=True),
        parameters=[MARKET, MODEL, OpenApiParameter("within", enum=list(WITHIN_MILLIS))],
    )
    def get(self, request: Request) -> Response:
        """Show GPUs free now, or within a day or a week, by floor, and GPUs wanted by limit."""
        found = queries.depth(
            self.store(),
            market=market_of(request),
            gpu_model=request.query_params.get("gpu_model"),
            now=timezone.now(),
            within=_within(request),
        )
        return self.listed(DepthShape(found, many=True).data, ("gpu_model", "currency"))


class MarketPrices(Endpoint):
    """Prices by the hour."""

    scopes: ClassVar = {"GET": "market:read"}
    reads: ClassVar = ("marketplace.rounds",)

    @extend_schema(responses=PriceShape(many=True), parameters=[MARKET, MODEL, HOURS])
    def get(self, request: Request) -> Response:
        """Show what each model traded at, hour by hour, oldest first."""
        now = timezone.now()
        found = queries.prices(
            market=market_of(request),
            gpu_model=request.query_params.get("gpu_model"),
            since=now - timedelta(hours=_hours(request)),
            until=now + timedelta(hours=1),
        )
        return self.listed(PriceShape(found, many=True).data, ("gpu_model", "currency", "hour"))


def _hours(request: Request) -> int:
    text = request.query_params.get("hours", str(HOURS_DEFAULT))
    try:
        return whole_number(text, least=1, most=queries.PRICE_HOURS_MAX)
    except ValueError:
        raise HoursOutOfRange(hours_max=queries.PRICE_HOURS_MAX) from None


class MarketTape(Endpoint):
    """Every trade."""

    scopes: ClassVar = {"GET": "market:read"}
    reads: ClassVar = ("marketplace.rounds",)

    @extend_schema(responses=TradeShape(many=True), parameters=[MARKET])
    def get(self, request: Request) -> Response:
        """List trades, newest first."""
        return self.page(queries.trades(market_of(request)), TradeShape, ("-position",))


class MarketIndex(Endpoint):
    """The price index by the hour."""

    scopes: ClassVar = {"GET": "market:read"}
    reads: ClassVar = ("marketplace.rounds",)

    @extend_schema(responses=IndexShape(many=True), parameters=[MARKET, MODEL, HOURS])
    def get(self, request: Request) -> Response:
        """Show the index of the last `hours` (24), by model and hour; it is carried on."""
        now = timezone.now()
        found = price_index(
            market=market_of(request),
            gpu_model=request.query_params.get("gpu_model"),
            since=now - timedelta(hours=_hours(request)),
            until=now,
        )
        return self.listed(IndexShape(found, many=True).data, ("gpu_model", "currency", "hour"))


class MarketQuotes(Endpoint):
    """What GPUs would cost now, within a day, within a week."""

    scopes: ClassVar = {"GET": "market:read"}
    reads: ClassVar = ()

    @extend_schema(responses=QuotedShape(many=True), parameters=[MARKET, MODEL])
    def get(self, request: Request) -> Response:
        """Preview 1 and 8 GPUs for 1 hour, 8 hours and 3 days, of one model or of those listed."""
        market, now = market_of(request), timezone.now()
        asked = request.query_params.get("gpu_model")
        found = [
            quote
            for model in ([asked] if asked else models_listed(self.store(), market=market))
            for quote in window_quotes(
                self.store(),
                market=market,
                gpu_model=model,
                currency=settings.ENV.currency,
                now=now,
            )
        ]
        key = ("gpu_model", "gpus", "duration_seconds", "starts_within")
        return self.listed(QuotedShape(found, many=True).data, key)


class Workloads(Endpoint):
    """What can be said in a bid."""

    scopes: ClassVar = {"GET": "market:read"}
    reads: ClassVar = ()

    @extend_schema(responses=WorkloadKindShape(many=True))
    def get(self, request: Request) -> Response:
        """List the kinds of workload, the conditions of a query, and the reasons of a refusal."""
        return self.listed(
            WorkloadKindShape(list(ENVELOPES.values()), many=True).data,
            ("kind",),
            conditions=[
                {"name": each.name, "example": each.example, "meaning": each.meaning}
                for each in CONDITIONS.values()
            ],
            reasons=REASONS,
        )
