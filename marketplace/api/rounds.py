"""JSON over HTTP for what the engine decided: rounds, their certificates, their replay.

Nothing here says who offers, bids or leases.
"""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.rest import AmountField, Endpoint, MomentField
from marketplace.api.market import MARKET, LevelShape, market_of
from marketplace.domain.clearing.fills import PRICE_RULES
from marketplace.queries import market as queries
from marketplace.replay.round import replay_round
from marketplace.replay.under_other_rules import clear_otherwise, read_rules


class CertificateShape(serializers.Serializer[Any]):
    """What a round proves of itself. gap_ppm: the most that could be missing, of the bound;
    null where nothing worth speaking of could have been granted.

    weight: what waiting counted for when bids were compared; it is in the bound, and never paid.
    aside: how many bids were left out because the round breaks off with them.
    """

    welfare = AmountField(source="welfare_nanos")
    weight = AmountField(source="weight_nanos", required=False)
    bound = AmountField(source="bound_nanos")
    gap_ppm = serializers.IntegerField(allow_null=True)
    seed = serializers.IntegerField()
    iterations = serializers.DictField(child=serializers.IntegerField())
    slots = serializers.IntegerField()
    pools = serializers.IntegerField()
    price_mean = AmountField()
    capped = serializers.IntegerField()
    paradoxical = serializers.IntegerField()
    paradoxical_worth = AmountField(source="paradoxical_nanos")
    aside = serializers.IntegerField()


class RoundShape(serializers.Serializer[Any]):
    """One round. unmatched: how many bids were given each reason anew.

    certificate: of a round of patient bids; null in the instant lane and in old rounds.
    """

    id = serializers.UUIDField(source="round_id")
    position = serializers.IntegerField()
    lane = serializers.CharField()
    rule = serializers.CharField()
    through = serializers.IntegerField()
    bids = serializers.IntegerField()
    offers = serializers.IntegerField()
    grants = serializers.IntegerField()
    gpus = serializers.IntegerField()
    price_low = AmountField(source="price_low_nanos")
    price_high = AmountField(source="price_high_nanos")
    unmatched = serializers.DictField(child=serializers.IntegerField())
    certificate = CertificateShape(source="certified", allow_null=True)
    at = MomentField()


class CurveShape(serializers.Serializer[Any]):
    """Supply and demand of one model as the round found them; prices null where none traded."""

    gpu_model = serializers.CharField()
    currency = serializers.CharField()
    supply = LevelShape(many=True)
    demand = LevelShape(many=True)
    granted_gpus = serializers.IntegerField()
    price_low = AmountField(source="low_nanos", allow_null=True)
    price_mean = AmountField(source="mean_nanos", allow_null=True)
    price_high = AmountField(source="high_nanos", allow_null=True)


class ReplayShape(serializers.Serializer[Any]):
    """A round cleared again from the log as it was then.

    outcome: `identical`; `different`; `older-rule`: a rule that this version does not run cleared
    it; `too-long`: more facts lie before it than are gone through for one answer.
    """

    outcome = serializers.CharField()
    rule = serializers.CharField()
    facts = serializers.IntegerField()
    differences = serializers.ListField(child=serializers.CharField())
    curves = CurveShape(many=True)


class CameShape(serializers.Serializer[Any]):
    """What a round came to; price null where nothing was paid."""

    grants = serializers.IntegerField()
    gpus = serializers.IntegerField()
    gpu_seconds = serializers.SerializerMethodField()
    price_mean = AmountField(source="price_nanos", allow_null=True)
    welfare = AmountField(source="welfare_nanos")
    bidders_gain = AmountField(source="bidders_nanos")
    owners_gain = AmountField(source="owners_nanos")
    interrupted = serializers.IntegerField()

    def get_gpu_seconds(self, came: Any) -> int:
        """Return the GPU-time of its grants."""
        return int(came.gpu_millis // 1000)


class OtherwiseShape(serializers.Serializer[Any]):
    """A round as recorded, and under other rules; new, lost: bids granted in one of them only."""

    recorded = CameShape()
    otherwise = CameShape()
    new = serializers.IntegerField()
    lost = serializers.IntegerField()


class RoundOtherwise(Endpoint):
    """A round under other rules."""

    scopes: ClassVar = {"GET": "market:read"}
    reads: ClassVar = ("marketplace.rounds",)

    @extend_schema(
        responses=OtherwiseShape,
        parameters=[
            OpenApiParameter("price", enum=list(PRICE_RULES), description="price rule"),
            OpenApiParameter("preemption", enum=["yes", "no"], description="may leases be cut"),
        ],
    )
    def get(self, request: Request, round_id: UUID) -> Response:
        """Clear a round again from its place in the log, under other rules; nothing is written."""
        row, asked = queries.round_of(round_id), request.query_params
        rules = read_rules(asked.get("price", "market"), asked.get("preemption", "yes"))
        found = clear_otherwise(self.store(), market=row.market, round_id=round_id, rules=rules)
        return Response(OtherwiseShape(found).data)


class Rounds(Endpoint):
    """Rounds of the engine."""

    scopes: ClassVar = {"GET": "market:read"}
    reads: ClassVar = ("marketplace.rounds",)

    @extend_schema(responses=RoundShape(many=True), parameters=[MARKET, OpenApiParameter("lane")])
    def get(self, request: Request) -> Response:
        """List rounds that decided something, newest first; `lane=` narrows the list."""
        rows = queries.rounds(market_of(request), lane=request.query_params.get("lane"))
        return self.page(rows, RoundShape, ("-position",))


class OneRound(Endpoint):
    """One round of the engine."""

    scopes: ClassVar = {"GET": "market:read"}
    reads: ClassVar = ("marketplace.rounds",)

    @extend_schema(responses=RoundShape)
    def get(self, request: Request, round_id: UUID) -> Response:
        """Show a round."""
        return Response(RoundShape(queries.round_of(round_id)).data)


class ReplayRound(Endpoint):
    """A round, cleared again."""

    scopes: ClassVar = {"GET": "market:read"}
    reads: ClassVar = ("marketplace.rounds",)

    @extend_schema(responses=ReplayShape)
    def get(self, request: Request, round_id: UUID) -> Response:
        """Fold the book as it was, clear it again, and compare with what was recorded."""
        row = queries.round_of(round_id)
        replayed = replay_round(self.store(), market=row.market, round_id=round_id)
        return Response(ReplayShape(replayed).data)
