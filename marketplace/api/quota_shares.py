"""JSON over HTTP for fair shares with their arithmetic."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.domain.money import MILLIS_PER_HOUR
from ledger.domain.refusal import Invalid
from ledger.rest import AmountField, Endpoint, MomentField
from marketplace.api.counted import CountedField
from marketplace.api.market import MARKET, market_of
from marketplace.domain.quotas.fair_share_order import FairShare
from marketplace.fairness.levels import Level
from marketplace.fairness.standings import (
    LimitFigures,
    NodeFigures,
    Place,
    Shares,
    shares_at,
    shares_now,
)


class RoundIdUnreadable(Invalid):
    """`round` takes the id of a round."""


class NodeShape(serializers.Serializer[Any]):
    """A unit or cohort and one class of GPUs; null is not set.

    total: with what its members lend. pool: of a cohort, what its members use of its pool.
    """

    node = serializers.CharField()
    is_cohort = serializers.BooleanField()
    depth = serializers.IntegerField()
    nominal = serializers.IntegerField(allow_null=True)
    borrowing = serializers.IntegerField(allow_null=True)
    lending = serializers.IntegerField(allow_null=True)
    gpu_hours = serializers.IntegerField(allow_null=True)
    gpu_seconds_used = serializers.IntegerField()
    total = serializers.IntegerField()
    used = CountedField()
    pool = CountedField()
    borrowed = CountedField()
    lent = CountedField()
    available = CountedField()


class ClassShape(serializers.Serializer[Any]):
    """The nodes of a class, cohorts before what is in them."""

    gpu_class = serializers.CharField()
    nodes = NodeShape(many=True)


class PlaceShape(serializers.Serializer[Any]):
    """A unit's place in the order of fair shares, with the arithmetic; share null: goes last."""

    place = serializers.IntegerField()
    node = serializers.CharField()
    gpu_class = serializers.CharField()
    remembered_gpu_hours = serializers.FloatField()
    fraction = serializers.FloatField()
    entitled = serializers.FloatField()
    weight_ppm = serializers.IntegerField()
    share = serializers.FloatField(allow_null=True)
    told = serializers.CharField()
    before_the_next = serializers.CharField()
    bids_waiting = serializers.IntegerField()
    gpus_waiting = serializers.IntegerField()


class ShareLevelShape(serializers.Serializer[Any]):
    """A unit or cohort against those beside it, in whose order it comes; share null: goes last.

    within: the cohort around it. depth: how many there are. turn: of so many `beside` each other.
    entitled: its part of everything, by the weights on the way to it. units: how many are in it.
    """

    node = serializers.CharField()
    is_cohort = serializers.BooleanField()
    within = serializers.CharField(allow_null=True)
    depth = serializers.IntegerField()
    turn = serializers.IntegerField()
    beside = serializers.IntegerField()
    units = serializers.IntegerField()
    gpu_class = serializers.CharField()
    remembered_gpu_hours = serializers.FloatField()
    fraction = serializers.FloatField()
    entitled = serializers.FloatField()
    weight_ppm = serializers.IntegerField()
    share = serializers.FloatField(allow_null=True)
    told = serializers.CharField()
    before_the_next = serializers.CharField()


class LimitShape(serializers.Serializer[Any]):
    """A limit that applies; null figures are not limited. `used` is null for the limit of each."""

    scope = serializers.CharField()
    subject = serializers.UUIDField(allow_null=True)
    period = serializers.CharField()
    gpus = serializers.IntegerField(allow_null=True)
    memory_mib = serializers.IntegerField(allow_null=True)
    gpu_hours = serializers.IntegerField(allow_null=True)
    money = AmountField(allow_null=True)
    currency = serializers.CharField(allow_null=True)
    used = serializers.DictField(allow_null=True)


class SharesShape(serializers.Serializer[Any]):
    """Quotas, shares and limits at a moment. units: in all; `places` has those you may see.

    levels: the same order level by level, each cohort before what stands in it.
    counts: `whole`, or `parts` where a part of a card counts as the part it is.
    """

    at = MomentField()
    counts = serializers.CharField()
    half_life_seconds = serializers.IntegerField()
    period_starts_at = MomentField()
    period_ends_at = MomentField()
    classes = ClassShape(many=True)
    places = PlaceShape(many=True)
    levels = ShareLevelShape(many=True)
    units = serializers.IntegerField()
    limits = LimitShape(many=True)


class QuotaShares(Endpoint):
    """Fair shares."""

    scopes: ClassVar = {"GET": "market:read"}
    reads: ClassVar = ("marketplace.rounds", "ledger.parties")

    @extend_schema(
        responses=SharesShape,
        parameters=[
            MARKET,
            OpenApiParameter("round", description="as the engine had them in this round"),
        ],
    )
    def get(self, request: Request) -> Response:
        """Show quotas, use, shares and limits as of now, or as they were in a round."""
        asked, market = request.query_params.get("round"), market_of(request)
        if asked is None:
            found = shares_now(self.store(), self.actor, market=market, now=timezone.now())
        else:
            found = shares_at(self.store(), self.actor, market=market, round_id=_round_id(asked))
        return Response(None if found is None else shares_json(found))


def _round_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise RoundIdUnreadable(given=text[:40]) from None


def shares_json(found: Shares) -> dict[str, Any]:
    """Return what an actor may see of quotas, as it is sent."""
    starts_at, ends_at = found.period
    said = SharesShape(
        {
            "at": found.at,
            "counts": found.counts,
            "half_life_seconds": found.half_life_seconds,
            "period_starts_at": starts_at,
            "period_ends_at": ends_at,
            "classes": [
                {"gpu_class": each.gpu_class, "nodes": [_node(node) for node in each.nodes]}
                for each in found.classes
            ],
            "places": [_place(each, found) for each in found.places],
            "levels": [_level(each, found) for each in found.levels],
            "units": found.units,
            "limits": [_limit(each) for each in found.limits],
        }
    ).data
    return dict(said)


def _node(node: NodeFigures) -> dict[str, Any]:
    said = asdict(node)
    return {**said, **said["quota"], "gpu_seconds_used": node.hours_used // 1000}


def _place(place: Place, found: Shares) -> dict[str, Any]:
    return {
        "place": place.place,
        **_share(place.share),
        "entitled": place.entitled,
        "before_the_next": "" if place.before is None else place.before.told(found.named),
        "bids_waiting": place.waiting,
        "gpus_waiting": place.waiting_gpus,
    }


def _level(level: Level, found: Shares) -> dict[str, Any]:
    return {
        **_share(level.share),
        "is_cohort": level.is_cohort,
        "within": None if level.within is None else found.named(level.within),
        "depth": level.depth,
        "turn": level.turn,
        "beside": level.beside,
        "units": level.units,
        "entitled": level.entitled,
        "before_the_next": "" if level.next is None else level.next.told(found.named),
    }


def _share(share: FairShare) -> dict[str, Any]:
    return {
        "node": share.node,
        "gpu_class": share.dominant,
        "remembered_gpu_hours": share.gpu_millis / MILLIS_PER_HOUR,
        "fraction": share.fraction,
        "weight_ppm": share.weight_ppm,
        "share": None if share.weight_ppm <= 0 else share.share,
        "told": share.in_words(),
    }


def _limit(found: LimitFigures) -> dict[str, Any]:
    limit, used = found.limit, found.used
    return {
        "scope": limit.scope,
        "subject": limit.subject,
        "period": limit.period,
        "gpus": limit.gpus,
        "memory_mib": limit.memory_mib,
        "gpu_hours": limit.gpu_hours,
        "money": None if limit.money is None else limit.money.nanos,
        "currency": None if limit.money is None else limit.money.currency,
        "used": None
        if used is None
        else {
            "gpus": used.gpus,
            "memory_mib": used.memory_mib,
            "gpu_seconds": used.gpu_millis // 1000,
            "money_nanos": used.money,
        },
    }
