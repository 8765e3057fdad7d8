"""JSON over HTTP for earnings by GPU, offer and host: what the ledger knows by lease alone."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.domain.periods import read_period
from ledger.domain.refusal import Invalid
from ledger.queries import payouts as queries
from ledger.rest import AmountField, Endpoint
from marketplace.queries.earnings import By, EarnedAt, earned_at

BY = OpenApiParameter("by", {"type": "string", "enum": ["gpu", "offer", "host"], "default": "gpu"})
MONTH = OpenApiParameter("period", str, description="a month such as 2026-11; none: all")


class PlaceUnknown(Invalid):
    """Earnings are told by gpu, offer or host."""


class EarnedAtShape(serializers.Serializer[Any]):
    """What a place earned; null and empty where it is of no lease that is known.

    gross: what consumers paid. fee: what of it the platform took. amount: what is left.
    """

    gpu_uuid = serializers.CharField(allow_blank=True)
    offer_id = serializers.UUIDField(allow_null=True)
    host_id = serializers.UUIDField(allow_null=True)
    sku = serializers.CharField(allow_blank=True)
    currency = serializers.CharField()
    gpu_milliseconds = serializers.IntegerField()
    gross = AmountField()
    fee = AmountField()
    amount = AmountField()


class EarningsByPlace(Endpoint):
    """What GPUs, offers and hosts earned."""

    scopes = {"GET": "payouts:read"}
    reads = ("ledger.money", "marketplace.leases")

    @extend_schema(parameters=[BY, MONTH], responses=EarnedAtShape(many=True))
    def get(self, request: Request) -> Response:
        """List what one's own earned, the most first; a lease on several is divided by GPUs."""
        by, period = _by(request.query_params.get("by", "gpu")), request.query_params.get("period")
        if period:
            read_period(period)
        found = [
            _shown(part)
            for row in queries.own_payees(self.actor)
            for part in earned_at(
                queries.earnings(self.actor, account_id=row.account_id, period=period or ""),
                owner_id=row.tenant_id,
                by=by,
            )
        ]
        return self.listed(found, ("gpu_uuid", "offer_id", "host_id", "currency"))


def _by(text: str) -> By:
    match text:
        case "gpu" | "offer" | "host":
            return text
        case _:
            raise PlaceUnknown(given=text[:40])


def _shown(part: EarnedAt) -> dict[str, Any]:
    amount, place = AmountField().to_representation, part.place
    return {
        "gpu_uuid": place.gpu_uuid,
        "offer_id": place.offer_id and str(place.offer_id),
        "host_id": place.host_id and str(place.host_id),
        "sku": part.sku,
        "currency": part.currency,
        "gpu_milliseconds": part.gpu_millis,
        "gross": amount(part.gross_nanos),
        "fee": amount(part.fee_nanos),
        "amount": amount(part.nanos),
    }
