"""What is on the market, over HTTP; never whose it is."""

from __future__ import annotations

from typing import ClassVar

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.rest import Endpoint
from listings import queries
from listings.api.shapes import ListedShape, SupplyShape
from listings.api.spans import SPAN, read_span


class Listings(Endpoint):
    """What is on the market, whoever it belongs to."""

    scopes: ClassVar = {"GET": "market:read"}
    reads: ClassVar = ("listings.offers",)

    @extend_schema(
        responses=ListedShape(many=True),
        parameters=[
            *SPAN,
            OpenApiParameter("model"),
            OpenApiParameter("region"),
            OpenApiParameter("market"),
        ],
    )
    def get(self, request: Request) -> Response:
        """List open offers with a window between `since` and `until`, lowest floor first."""
        span = read_span(request.query_params, now=timezone.now())
        asked = request.query_params
        found = queries.listed_offers(
            since=span.since,
            until=span.until,
            market=asked.get("market"),
            model=asked.get("model"),
            region=asked.get("region"),
        )
        return self.listed(ListedShape(found, many=True).data, ("id",))


class SupplyNow(Endpoint):
    """How much is listed."""

    scopes: ClassVar = {"GET": "market:read"}
    reads: ClassVar = ("listings.offers",)

    @extend_schema(responses=SupplyShape(many=True), parameters=[OpenApiParameter("market")])
    def get(self, request: Request) -> Response:
        """Count the GPUs listed now, within a day and within a week, by model."""
        found = queries.supply(now=timezone.now(), market=request.query_params.get("market"))
        return self.listed(SupplyShape(found, many=True).data, ("model",))
