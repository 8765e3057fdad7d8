"""Work in clouds that moves home, over HTTP: what was tried, and an organisation's policy."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from bursting import queries
from bursting.commands.homing import set_home_policy
from bursting.domain.home_policy import HomePolicy
from ledger.domain.refusal import Invalid
from ledger.eventstore.port import load
from ledger.rest import AmountField, Body, CountField, Endpoint, MomentField
from ledger.rest.schema import WrittenAt


class LeaseIdUnreadable(Invalid):
    """`lease_id` takes the id of a lease."""


class HomeMoveShape(serializers.Serializer[Any]):
    """A try to move the work of a lease home. Prices are per GPU-hour.

    cloud: what the rest costs in the cloud. move: what the move costs. saved: if all of the place
    at home is used; null while it is under way, and where the work stayed. reason: how it ended.
    """

    lease_id = serializers.UUIDField()
    instance_id = serializers.UUIDField()
    bid_id = serializers.UUIDField()
    home_lease_id = serializers.UUIDField(allow_null=True)
    tenant_id = serializers.UUIDField()
    number = serializers.IntegerField()
    gpus = serializers.IntegerField()
    seconds = serializers.IntegerField()
    moved = serializers.BooleanField()
    reason = serializers.CharField()
    limit = AmountField(source="limit_nanos")
    quoted = AmountField(source="quoted_nanos")
    cloud = AmountField(source="cloud_nanos")
    move = AmountField(source="move_nanos")
    saved = AmountField(source="saved_nanos", allow_null=True)
    currency = serializers.CharField()
    safe_at = MomentField()
    starts_at = MomentField()
    asked_at = MomentField()
    ended_at = MomentField(allow_null=True)


class HomeMoves(Endpoint):
    """The tries to move work home from clouds."""

    scopes: ClassVar = {"GET": "leases:read"}
    reads: ClassVar = ("bursting.home-moves",)

    @extend_schema(
        parameters=[OpenApiParameter("lease_id", type=UUID)], responses=HomeMoveShape(many=True)
    )
    def get(self, request: Request) -> Response:
        """List them, newest first: the platform's all, a tenant's those of its own work."""
        rows = queries.home_moves(self.actor, lease_id=_lease_id(request))
        return self.page(rows, HomeMoveShape, ("-asked_at", "bid_id"))


class HomePolicyShape(serializers.Serializer[Any]):
    """Whether work in clouds moves home. margin_percent: null: as the platform has it."""

    moves = serializers.BooleanField()
    margin_percent = serializers.IntegerField(allow_null=True)
    platform_moves = serializers.BooleanField()
    platform_margin_percent = serializers.IntegerField()


class SetHomePolicy(Body):
    """What an organisation says of its work in clouds."""

    moves = serializers.BooleanField()
    margin_percent = CountField(allow_null=True, required=False, default=None)


class HomePolicyOfTenant(Endpoint):
    """Whether your organisation's work in clouds moves home."""

    scopes: ClassVar = {"GET": "leases:read", "PUT": "admin"}

    @extend_schema(responses=HomePolicyShape)
    def get(self, request: Request) -> Response:
        """Show what your organisation said, and what the platform has."""
        policy = load(self.store(), HomePolicy, self.actor.tenant_id)
        env = settings.ENV
        said = {
            "moves": True if policy is None else policy.said.moves,
            "margin_percent": None if policy is None else policy.said.margin_percent,
            "platform_moves": env.burst_home == "on",
            "platform_margin_percent": env.burst_home_margin_percent,
        }
        return Response(HomePolicyShape(said).data)

    @extend_schema(request=SetHomePolicy, responses=WrittenAt)
    def put(self, request: Request) -> Response:
        """Say it, for all work that moves from now on; what is on its way goes on."""
        asked = self.body(SetHomePolicy)
        position = set_home_policy(
            self.store(),
            tenant_id=self.actor.tenant_id,
            moves=asked["moves"],
            margin_percent=asked["margin_percent"],
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position})


def _lease_id(request: Request) -> UUID | None:
    text = request.query_params.get("lease_id")
    if text is None:
        return None
    try:
        return UUID(text)
    except ValueError:
        raise LeaseIdUnreadable(lease_id=text[:40]) from None
