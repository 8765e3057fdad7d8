"""JSON over HTTP for quotas: who has what, setting it, and the log of policies."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.domain.ids import SubscriberId, TenantId
from ledger.domain.parties import SubscriberUnknown
from ledger.queries.parties import subscribers
from ledger.rest import Body, CountField, Endpoint, MomentField, TextField
from marketplace.commands.quotas import Policy, set_policy
from marketplace.domain.governance import Setter
from marketplace.domain.governance_events import CohortPlaced, QuotaSet, UnitPlaced
from marketplace.queries import quotas as queries


class QuotaBody(Body):
    """A quota in GPUs at one time. What is left out is not set, which is not 0."""

    node = TextField()
    gpu_class = TextField()
    nominal = CountField(value_min=0, required=False, allow_null=True)
    borrowing = CountField(value_min=0, required=False, allow_null=True)
    lending = CountField(value_min=0, required=False, allow_null=True)


class CohortBody(Body):
    """A cohort. parent: the cohort it lies in. tenant_id: whose grant it is."""

    cohort = TextField()
    parent = TextField(required=False)  # type: ignore[assignment]  # a field of that name
    tenant_id = serializers.UUIDField(required=False)


class UnitBody(Body):
    """Where a business unit stands; without a cohort it stands alone."""

    subscriber_id = serializers.UUIDField()
    cohort = TextField(required=False)


class StandingShape(serializers.Serializer[Any]):
    """Quota and use of one unit or cohort for one class of GPUs; null is not set."""

    node = serializers.CharField()
    is_cohort = serializers.BooleanField()
    cohort = serializers.CharField(allow_null=True)
    gpu_class = serializers.CharField()
    nominal = serializers.IntegerField(allow_null=True)
    borrowing = serializers.IntegerField(allow_null=True)
    lending = serializers.IntegerField(allow_null=True)
    used = serializers.IntegerField()
    borrowed = serializers.IntegerField()
    available = serializers.IntegerField()


class PolicyShape(serializers.Serializer[Any]):
    """One policy of the log: what kind, what it says, and when."""

    position = serializers.IntegerField()
    kind = serializers.CharField()
    policy = serializers.DictField()
    at = MomentField()


class PolicyWritten(serializers.Serializer[Any]):
    """The position at which the policy is in force."""

    position = serializers.IntegerField()


class Setting(Endpoint):
    """Whatever sets a policy."""

    scopes: ClassVar = {}

    def set(self, policy: Policy) -> Response:
        """Record a policy for the actor; the rule refuses what is not the actor's to set."""
        _, is_platform = queries.setter_of(self.actor)
        setter = Setter(self.actor.tenant_id, is_platform)
        position = set_policy(self.store(), policy=policy, setter=setter, by=self.meta())
        return Response({"position": position}, status=201)


class Quotas(Setting):
    """Quotas of units and cohorts."""

    scopes: ClassVar = {"GET": "market:read", "POST": "admin"}

    @extend_schema(responses=StandingShape(many=True))
    def get(self, request: Request) -> Response:
        """List cohorts and your own units, with quota and use as of now."""
        rows = queries.standings(
            self.store(), self.actor, market=settings.ENV.market, now=timezone.now()
        )
        return Response({"data": [asdict(row) for row in rows], "next": None})

    @extend_schema(request=QuotaBody, responses={201: PolicyWritten})
    def post(self, request: Request) -> Response:
        """Set a quota."""
        asked = self.body(QuotaBody)
        return self.set(
            QuotaSet(
                market=settings.ENV.market,
                node=asked["node"],
                gpu_class=asked["gpu_class"],
                nominal=asked.get("nominal"),
                borrowing=asked.get("borrowing"),
                lending=asked.get("lending"),
                at=timezone.now(),
            )
        )


class QuotaCohorts(Setting):
    """Cohorts."""

    scopes: ClassVar = {"POST": "admin"}

    @extend_schema(request=CohortBody, responses={201: PolicyWritten})
    def post(self, request: Request) -> Response:
        """Make a cohort, or move it."""
        asked = self.body(CohortBody)
        tenant_id = asked.get("tenant_id")
        return self.set(
            CohortPlaced(
                market=settings.ENV.market,
                cohort=asked["cohort"],
                parent=asked.get("parent"),
                tenant_id=None if tenant_id is None else TenantId(tenant_id),
                at=timezone.now(),
            )
        )


class QuotaUnits(Setting):
    """Where business units stand."""

    scopes: ClassVar = {"POST": "admin"}

    @extend_schema(request=UnitBody, responses={201: PolicyWritten})
    def post(self, request: Request) -> Response:
        """Put a business unit into a cohort."""
        asked = self.body(UnitBody)
        row = subscribers(self.actor).filter(subscriber_id=asked["subscriber_id"]).first()
        if row is None:
            raise SubscriberUnknown(subscriber_id=asked["subscriber_id"])
        return self.set(
            UnitPlaced(
                market=settings.ENV.market,
                subscriber_id=SubscriberId(row.subscriber_id),
                tenant_id=TenantId(row.tenant_id),
                cohort=asked.get("cohort"),
                at=timezone.now(),
            )
        )


class QuotaLog(Endpoint):
    """The policies as they were set."""

    scopes: ClassVar = {"GET": "market:read"}

    @extend_schema(responses=PolicyShape(many=True))
    def get(self, request: Request) -> Response:
        """List the policies that concern you, newest first."""
        log = queries.policy_log(self.store(), self.actor, market=settings.ENV.market)
        rows = [
            {
                "position": each.position,
                "kind": each.type.partition(".")[2],
                "policy": each.event,
                "at": each.recorded_at,
            }
            for each in log
        ]
        return Response({"data": [_policy_json(row) for row in rows], "next": None})


def _policy_json(row: dict[str, Any]) -> dict[str, Any]:
    said = {name: _plain(value) for name, value in asdict(row["policy"]).items()}
    said.pop("token_id", None)  # a token is for the one who was given it
    return PolicyShape({**row, "policy": said}).data


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, int | dict) else str(value)
