"""The markets of an installation, and how a bid came to one of them."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.rest import AmountField, Endpoint, MomentField
from marketplace.api.leases import KeptMomentField
from marketplace.queries.markets import markets_now
from marketplace.queries.moving import route


class MarketShape(serializers.Serializer[Any]):
    """A market. regions: it covers each and what begins with it and a dash; none: all others.

    gpus: listed to everybody, free: of those now. wanted: GPUs that bids wait for. cleared_at: when
    it last decided anything.
    """

    name = serializers.CharField()
    is_home = serializers.BooleanField()
    regions = serializers.ListField(child=serializers.CharField())
    gpus = serializers.IntegerField()
    free = serializers.IntegerField()
    bids = serializers.IntegerField()
    wanted = serializers.IntegerField()
    cleared_at = MomentField(allow_null=True)


class MarketsShape(serializers.Serializer[Any]):
    """All markets, the one that has the rest first."""

    data = MarketShape(many=True)  # type: ignore[assignment]  # a field of that name


class ConsideredShape(serializers.Serializer[Any]):
    """What one market would have done; price and start null where it had no room.

    fitting: GPUs that could serve the bid. wanted: GPUs that those ahead of it waited for.
    """

    market = serializers.CharField()
    price = AmountField(source="price.nanos_per_gpu_hour", default=None, allow_null=True)
    starts_at = MomentField(allow_null=True)
    fitting = serializers.IntegerField()
    wanted = serializers.IntegerField()


class MovedShape(serializers.Serializer[Any]):
    """A bid that waited in `market` was handed on to `to`, which would serve it."""

    market = serializers.CharField()
    to = serializers.CharField()
    at = KeptMomentField()


class RouteShape(serializers.Serializer[Any]):
    """Why a bid went to its market: the cheapest with room now, the soonest, the least crowded.

    because: `no-choice` where it named its market or only one could have what it asks for; then
    nothing was considered. market: the one it went to first; market_now: the one it is in.
    """

    bid_id = serializers.UUIDField()
    market = serializers.CharField()
    because = serializers.CharField()
    considered = ConsideredShape(many=True)
    at = MomentField()
    market_now = serializers.CharField()
    moves = MovedShape(many=True)


class Markets(Endpoint):
    """The markets of this installation."""

    scopes: ClassVar = {"GET": "market:read"}
    reads: ClassVar = ("marketplace.rounds",)

    @extend_schema(responses=MarketsShape)
    def get(self, request: Request) -> Response:
        """List them with what is on each now."""
        found = markets_now(self.store(), settings.MARKETS, now=timezone.now())
        return Response({"data": MarketShape(found, many=True).data})


class BidRoute(Endpoint):
    """How a bid came to its market."""

    scopes: ClassVar = {"GET": "bids:read"}
    reads: ClassVar = ("marketplace.bids",)

    @extend_schema(responses=RouteShape)
    def get(self, request: Request, bid_id: UUID) -> Response:
        """Show what each market would have done with it, which was chosen, and its moves since."""
        return Response(RouteShape(route(self.actor, self.store(), bid_id)).data)
