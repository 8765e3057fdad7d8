"""JSON over HTTP for what would change it: for a bid that waits, for an offer nobody takes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.rest import AmountField, Endpoint, MomentField
from listings import queries as listings
from marketplace.api.market import LevelShape
from marketplace.explain.bid_advice import Change, advise
from marketplace.explain.unsold_offer import Looked, OfferChange, Unsold, explain_offer
from marketplace.queries import bids


class ChangeShape(serializers.Serializer[Any]):
    """One change that alone would let the bid be placed now.

    what: the term to change; limit, deadline, gpus or duration_seconds has its new value, and
    where none of them has, the term is to be left out. `quota`: its unit would have that many gpus
    more of its own, of gpu_class.
    """

    what = serializers.CharField()
    limit = AmountField(source="limit.nanos_per_gpu_hour", default=None)
    deadline = MomentField(allow_null=True)
    gpus = serializers.IntegerField(allow_null=True)
    gpu_class = serializers.CharField(allow_null=True)
    duration_seconds = serializers.SerializerMethodField()
    floor = AmountField(source="floor.nanos_per_gpu_hour")
    currency = serializers.CharField(source="floor.currency")
    gpu_models = serializers.ListField(child=serializers.CharField())
    region = serializers.CharField()
    starts_at = MomentField()

    def get_duration_seconds(self, change: Change) -> int | None:
        """Return the shorter duration."""
        return None if change.duration is None else int(change.duration.total_seconds())


class BidAdviceShape(serializers.Serializer[Any]):
    """waits: whether it is still open. changes: empty where it fits now, or nothing helps."""

    waits = serializers.BooleanField()
    changes = ChangeShape(many=True)


class RemovedShape(serializers.Serializer[Any]):
    """Bids that one constraint stood in the way of; reason null: nothing does.

    gpus: that they want together; limit: of the best of them.
    """

    reason = serializers.CharField(allow_null=True)
    bids = serializers.IntegerField()
    gpus = serializers.IntegerField()
    limit = AmountField(source="limit.nanos_per_gpu_hour")


class TogetherShape(serializers.Serializer[Any]):
    """How an offer would serve a bid with others: with `mine` of its GPUs and so many of theirs."""

    mine = serializers.IntegerField()
    offers = serializers.IntegerField()
    gpus = serializers.IntegerField()


class LookedShape(serializers.Serializer[Any]):
    """A bid that waits, without a name, and what stands in its way; left: GPUs before that.

    together: where the offer would serve it with others; null: alone, or not at all.
    """

    limit = AmountField(source="limit.nanos_per_gpu_hour")
    gpus = serializers.IntegerField()
    duration_seconds = serializers.SerializerMethodField()
    deadline = MomentField()
    reason = serializers.CharField(allow_null=True)
    left = serializers.IntegerField()
    together = TogetherShape(allow_null=True)

    def get_duration_seconds(self, looked: Looked) -> int:
        """Return its least length."""
        return int(looked.length.total_seconds())


class OfferChangeShape(serializers.Serializer[Any]):
    """One change that alone would let bids be served: how many, each alone, up to which limit.

    together: how many of them with other offers only.

    what: floor, resume, lease-minimum, workload-kind or window; floor, duration_seconds and
    starts_at have the new value where there is one.
    """

    what = serializers.CharField()
    bids = serializers.IntegerField()
    together = serializers.IntegerField()
    gpus = serializers.IntegerField()
    limit = AmountField(source="limit.nanos_per_gpu_hour")
    floor = AmountField(source="floor.nanos_per_gpu_hour", default=None, allow_null=True)
    duration_seconds = serializers.SerializerMethodField()
    starts_at = MomentField(allow_null=True)

    def get_duration_seconds(self, change: OfferChange) -> int | None:
        """Return the length of a lease, or of the window."""
        return None if change.duration is None else int(change.duration.total_seconds())


class UnsoldShape(serializers.Serializer[Any]):
    """Which bids looked at an offer, what stood in their way, and what would change it.

    listed: false for an offer that is over; then nothing else is said. floor_needed: the highest
    floor at which one would be served. together: of those in time, for how many it takes other
    offers too.
    """

    listed = serializers.BooleanField()
    waiting = serializers.IntegerField(required=False)
    looked = serializers.IntegerField(required=False)
    fitting = serializers.IntegerField(required=False)
    in_time = serializers.IntegerField(required=False)
    together = serializers.IntegerField(required=False)
    limits = LevelShape(many=True, required=False)
    floor = AmountField(source="floor.nanos_per_gpu_hour", required=False)
    floor_needed = AmountField(
        source="floor_needed.nanos_per_gpu_hour", default=None, allow_null=True
    )
    currency = serializers.CharField(source="floor.currency", required=False)
    removed = RemovedShape(many=True, required=False)
    changes = OfferChangeShape(many=True, required=False)
    bids = LookedShape(many=True, required=False)


class AdviseBid(Endpoint):
    """What would let a bid be placed."""

    scopes: ClassVar = {"GET": "bids:read"}
    reads: ClassVar = ("marketplace.bids",)

    @extend_schema(responses=BidAdviceShape)
    def get(self, request: Request, bid_id: UUID) -> Response:
        """Try the smallest change of each kind on the market as it is, by the code that clears."""
        row = bids.bid(self.actor, bid_id)
        found = advise(self.store(), market=row.market, bid_id=bid_id, now=timezone.now())
        return Response(BidAdviceShape({"waits": found is not None, "changes": found or []}).data)


class ExplainOffer(Endpoint):
    """Why nobody takes an offer."""

    scopes: ClassVar = {"GET": "offers:read"}
    reads: ClassVar = ("listings.offers",)

    @extend_schema(responses=UnsoldShape)
    def get(self, request: Request, offer_id: UUID) -> Response:
        """Say which bids looked at it, what stood in their way, and what would change it."""
        row = listings.offer(self.actor, offer_id)
        found = explain_offer(
            self.store(), market=row.market, offer_id=offer_id, now=timezone.now()
        )
        return Response(_unsold(found))


def _unsold(found: Unsold | None) -> dict[str, Any]:
    if found is None:
        return {"listed": False}
    said = {each.name: getattr(found, each.name) for each in fields(found)}
    return UnsoldShape({"listed": True, **said}).data
