"""JSON over HTTP for limits of bids, people, business units and organisations."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.rest import AmountField, MomentField
from marketplace.api.market import MARKET, market_of
from marketplace.api.quota_bodies import LimitBody
from marketplace.api.quotas import PolicyWritten, Setting
from marketplace.queries import quotas as queries


class SetLimitShape(serializers.Serializer[Any]):
    """A limit in force, null where it limits nothing.

    subject: whose; null: each one's that has none of its own. money: in each `period`.
    """

    scope = serializers.CharField()
    subject = serializers.UUIDField(allow_null=True)
    tenant_id = serializers.UUIDField(allow_null=True)
    gpus = serializers.IntegerField(allow_null=True)
    memory_mib = serializers.IntegerField(allow_null=True)
    gpu_hours = serializers.IntegerField(allow_null=True)
    money = AmountField(source="money.nanos", default=None, allow_null=True)
    currency = serializers.CharField(source="money.currency", default=None, allow_null=True)
    period = serializers.CharField()
    at = MomentField()
    why = serializers.CharField()


class QuotaLimits(Setting):
    """Limits of bids, users, business units and organisations."""

    scopes: ClassVar = {"GET": "market:read", "POST": "admin"}

    @extend_schema(responses=SetLimitShape(many=True), parameters=[MARKET])
    def get(self, request: Request) -> Response:
        """List those that are set, as far as they concern you."""
        found = queries.limits_set(self.store(), self.actor, market=market_of(request))
        return self.listed(SetLimitShape(found, many=True).data, ("scope", "subject"))

    @extend_schema(request=LimitBody, responses={201: PolicyWritten})
    def post(self, request: Request) -> Response:
        """Set a limit; what is left out is not limited."""
        return self.set(self.asked("limit"))
