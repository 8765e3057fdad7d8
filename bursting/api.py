"""Rented instances over HTTP, for those who answer for them and those who pay."""

from __future__ import annotations

from typing import Any, ClassVar, get_args
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from bursting import queries
from bursting.domain.instances import InstanceState
from ledger.domain.refusal import Invalid
from ledger.rest import AmountField, Endpoint, MomentField
from marketplace.queries import bids

STATES: tuple[str, ...] = get_args(InstanceState)
ATTEMPTS_MAX = 100
ORDER = ("-intended_at", "instance_id")


class StateUnknown(Invalid):
    """There is no such state of a burst instance; `known` lists them."""


class BidIdUnreadable(Invalid):
    """`bid_id` takes the id of a bid."""


class BurstInstanceShape(serializers.Serializer[Any]):
    """An instance rented for a bid, or a try for one. Prices are per GPU-hour."""

    id = serializers.UUIDField(source="instance_id")
    bid_id = serializers.UUIDField()
    tenant_id = serializers.UUIDField()
    market = serializers.CharField()
    cloud = serializers.CharField()
    region = serializers.CharField()
    zone = serializers.CharField()
    instance_type = serializers.CharField()
    spot = serializers.BooleanField()
    gpu_model = serializers.CharField()
    gpus = serializers.IntegerField()
    attempt = serializers.IntegerField()
    state = serializers.ChoiceField(choices=STATES)
    reason = serializers.CharField()
    detail = serializers.CharField()
    price = AmountField(source="price_nanos")
    floor = AmountField(source="floor_nanos")
    cost_at_most = AmountField(source="worst_nanos")
    cost = AmountField(source="cost_nanos", allow_null=True)
    currency = serializers.CharField()
    cloud_ref = serializers.CharField()
    host_id = serializers.UUIDField(allow_null=True)
    offer_id = serializers.UUIDField(allow_null=True)
    intended_at = MomentField()
    launched_at = MomentField(allow_null=True)
    listed_at = MomentField(allow_null=True)
    over_at = MomentField(allow_null=True)


class BurstInstances(Endpoint):
    """The instances rented when local supply ran out."""

    scopes: ClassVar = {"GET": "billing:read"}
    many: ClassVar = frozenset({"state"})
    reads: ClassVar = ("bursting.instances",)

    @extend_schema(
        parameters=[
            OpenApiParameter("state", enum=STATES, many=True),
            OpenApiParameter("bid_id", type=UUID),
        ],
        responses=BurstInstanceShape(many=True),
    )
    def get(self, request: Request) -> Response:
        """List instances, newest first: the platform's all, a tenant's those for its bids."""
        rows = queries.burst_instances(self.actor, states=_states(request), bid_id=_bid_id(request))
        return self.page(rows, BurstInstanceShape, ORDER)


class StrayShape(serializers.Serializer[Any]):
    """A machine that ran in a cloud outside the record. `hourly` is the whole machine's price."""

    id = serializers.UUIDField(source="stray_id")
    bid_id = serializers.UUIDField(allow_null=True)
    tenant_id = serializers.UUIDField(allow_null=True)
    instance_id = serializers.UUIDField(allow_null=True)
    cloud = serializers.CharField()
    cloud_ref = serializers.CharField()
    instance_type = serializers.CharField()
    zone = serializers.CharField()
    spot = serializers.BooleanField()
    gpus = serializers.IntegerField()
    hourly = AmountField(source="hourly_nanos", allow_null=True)
    cost = AmountField(source="cost_nanos", allow_null=True)
    currency = serializers.CharField()
    launched_at = MomentField()
    found_at = MomentField()
    over_at = MomentField(allow_null=True)


class Strays(Endpoint):
    """The machines that ran outside the record: they were ended, and are booked."""

    scopes: ClassVar = {"GET": "billing:read"}
    reads: ClassVar = ("bursting.instances",)

    @extend_schema(
        parameters=[OpenApiParameter("bid_id", type=UUID)], responses=StrayShape(many=True)
    )
    def get(self, request: Request) -> Response:
        """List them, newest first: the platform's all, a tenant's those that name its bids.

        `cost` is what the ledger booked besides what the instance on record had; below zero where
        that was too much, null until the machine has ended.
        """
        rows = queries.strays(self.actor, bid_id=_bid_id(request))
        return self.page(rows, StrayShape, ("-found_at", "stray_id"))


class WaitShape(serializers.Serializer[Any]):
    """Why no cloud serves a bid now, how often that was so in a row, and when it is tried again."""

    reason = serializers.CharField()
    message = serializers.CharField(source="words")
    tries = serializers.IntegerField()
    next_at = MomentField()
    at = MomentField()


class AttemptShape(serializers.Serializer[Any]):
    """One attempt to rent a machine for a bid."""

    attempt = serializers.IntegerField()
    cloud = serializers.CharField()
    instance_type = serializers.CharField()
    zone = serializers.CharField()
    state = serializers.ChoiceField(choices=STATES)
    reason = serializers.CharField()
    detail = serializers.CharField()
    over_at = MomentField(allow_null=True)


class BidBurstShape(serializers.Serializer[Any]):
    """What bursting did for a bid so far. `waiting` is null while nothing stands in the way."""

    bid_id = serializers.UUIDField()
    waiting = WaitShape(allow_null=True)
    attempts = AttemptShape(many=True)


class BidBurst(Endpoint):
    """What bursting does for one bid."""

    scopes: ClassVar = {"GET": "bids:read"}
    reads: ClassVar = ("bursting.instances", "bursting.waiting-bids", "marketplace.bids")

    @extend_schema(responses=BidBurstShape)
    def get(self, request: Request, bid_id: UUID) -> Response:
        """Show why no cloud serves it, and the attempts made; empty for one that never tried."""
        bids.bid(self.actor, bid_id)
        attempts = queries.burst_instances(self.actor, bid_id=bid_id).order_by("attempt")
        said = {
            "bid_id": bid_id,
            "waiting": queries.burst_wait(self.actor, bid_id),
            "attempts": list(attempts[:ATTEMPTS_MAX]),
        }
        return Response(BidBurstShape(said).data)


class OneBurstInstance(Endpoint):
    """One rented instance."""

    scopes: ClassVar = {"GET": "billing:read"}
    reads: ClassVar = ("bursting.instances",)

    @extend_schema(responses=BurstInstanceShape)
    def get(self, request: Request, instance_id: UUID) -> Response:
        """Show an instance."""
        return Response(BurstInstanceShape(queries.burst_instance(self.actor, instance_id)).data)


def _states(request: Request) -> list[str]:
    states = request.query_params.getlist("state")
    unknown = sorted(set(states) - set(STATES))
    if unknown:
        raise StateUnknown(unknown=[name[:40] for name in unknown[:20]], known=list(STATES))
    return states


def _bid_id(request: Request) -> UUID | None:
    text = request.query_params.get("bid_id")
    if text is None:
        return None
    try:
        return UUID(text)
    except ValueError:
        raise BidIdUnreadable(bid_id=text[:40]) from None
