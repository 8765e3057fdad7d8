"""Idle leases over HTTP: rules of bids and of an organisation, how a lease stands, keeping it."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.domain.ids import LeaseId, TenantId
from ledger.rest import Body, CountField, Endpoint, MomentField
from ledger.rest.schema import WrittenAt
from marketplace.queries import bids, leases
from marketplace.queries.idle import running
from metering.domain.idle_events import IdleTerms, RuleOf
from metering.idling import keep_idle_lease, set_idle_rule
from metering.queries.idle import Idleness, idleness_of, rule_of

DEFAULTS = IdleTerms(after_seconds=0)


class SetIdleRule(Body):
    """When leases are released for idleness. after_seconds: null: never.

    The others are thresholds; all of a lease must be below each: the busiest GPU, and of its work
    on each host the processor time, the bytes to and from disks, and over the network, a second.
    """

    after_seconds = CountField(allow_null=True)
    busy_percent = CountField(required=False, default=DEFAULTS.busy_percent)
    cpu_millicores = CountField(required=False, default=DEFAULTS.cpu_millicores)
    disk_bytes = CountField(required=False, default=DEFAULTS.disk_bytes)
    network_bytes = CountField(required=False, default=DEFAULTS.network_bytes)


class IdleRuleShape(serializers.Serializer[Any]):
    """A rule; after_seconds null: there is none."""

    after_seconds = serializers.IntegerField(allow_null=True)
    busy_percent = serializers.IntegerField()
    cpu_millicores = serializers.IntegerField()
    disk_bytes = serializers.IntegerField()
    network_bytes = serializers.IntegerField()


class IdleFiguresShape(serializers.Serializer[Any]):
    """What was measured last; null: not known, which is never idle."""

    busy_percent = serializers.IntegerField(allow_null=True)
    cpu_millicores = serializers.IntegerField(allow_null=True)
    disk_bytes = serializers.IntegerField(allow_null=True)
    network_bytes = serializers.IntegerField(allow_null=True)


class IdlenessShape(serializers.Serializer[Any]):
    """How a lease stands. rule: null: it has none, or does not run.

    idle_seconds: since when all of it has been quiet. release_at: of the warning that holds.
    """

    rule = IdleRuleShape(allow_null=True)
    now = IdleFiguresShape(allow_null=True)
    idle_seconds = serializers.IntegerField()
    measured_through = MomentField(allow_null=True)
    release_at = MomentField(allow_null=True)


class BidIdleRule(Endpoint):
    """When the leases of a bid are released for idleness."""

    scopes: ClassVar = {"GET": "bids:read", "PUT": "bids:write"}
    reads: ClassVar = ("marketplace.bids", "metering.idle")

    @extend_schema(responses=IdleRuleShape)
    def get(self, request: Request, bid_id: UUID) -> Response:
        """Show the rule of a bid."""
        return _shown(rule_of(bids.bid(self.actor, bid_id).bid_id))

    @extend_schema(request=SetIdleRule, responses=WrittenAt)
    def put(self, request: Request, bid_id: UUID) -> Response:
        """Set the rule of a bid: it holds for all leases of it, from now on."""
        row = bids.own_bid(self.actor, bid_id)
        return _set(self, row.bid_id, "bid", TenantId(row.tenant_id))


class TenantIdleRule(Endpoint):
    """When the leases of an organisation are released for idleness."""

    scopes: ClassVar = {"GET": "leases:read", "PUT": "admin"}
    reads: ClassVar = ("metering.idle",)

    @extend_schema(responses=IdleRuleShape)
    def get(self, request: Request) -> Response:
        """Show the rule of your organisation."""
        return _shown(rule_of(self.actor.tenant_id))

    @extend_schema(request=SetIdleRule, responses=WrittenAt)
    def put(self, request: Request) -> Response:
        """Set the rule of your organisation; of it and a bid's own, the shorter time holds."""
        return _set(self, self.actor.tenant_id, "tenant", self.actor.tenant_id)


class LeaseIdle(Endpoint):
    """How idle a lease is."""

    scopes: ClassVar = {"GET": "leases:read"}
    reads: ClassVar = ("marketplace.leases", "metering.idle")

    @extend_schema(responses=IdlenessShape)
    def get(self, request: Request, lease_id: UUID) -> Response:
        """Show by which rule, on what figures and for how long a lease has been idle."""
        row = leases.lease(self.actor, lease_id)
        return Response(IdlenessShape(_told(idleness_of(running(row), now=timezone.now()))).data)


class KeepIdleLease(Endpoint):
    """An idle lease that is to go on."""

    scopes: ClassVar = {"POST": "leases:write"}
    reads: ClassVar = ("marketplace.leases", "metering.idle")

    @extend_schema(request=None, responses=WrittenAt)
    def post(self, request: Request, lease_id: UUID) -> Response:
        """Let the idle time of a lease count anew from now on; a warning is lifted."""
        row = leases.consumed_lease(self.actor, lease_id)
        position = keep_idle_lease(
            self.store(),
            lease_id=LeaseId(row.lease_id),
            tenant_id=TenantId(row.tenant_id),
            by=self.meta(),
            now=timezone.now(),
        )
        return Response({"position": position})


def _set(endpoint: Endpoint, rule_id: UUID, of: RuleOf, tenant_id: TenantId) -> Response:
    asked = endpoint.body(SetIdleRule)
    terms = None if asked["after_seconds"] is None else IdleTerms(**asked)
    position = set_idle_rule(
        endpoint.store(),
        rule_id=rule_id,
        of=of,
        tenant_id=tenant_id,
        terms=terms,
        by=endpoint.meta(),
        now=timezone.now(),
    )
    return Response({"position": position})


def _shown(terms: IdleTerms | None) -> Response:
    said = IdleRuleShape(terms or DEFAULTS).data
    return Response(said if terms is not None else {**said, "after_seconds": None})


def _told(idleness: Idleness | None) -> dict[str, Any]:
    if idleness is None:
        nothing = {"rule": None, "now": None, "measured_through": None, "release_at": None}
        return {**nothing, "idle_seconds": 0}
    return {
        "rule": idleness.terms,
        "now": idleness.quiet.figures,
        "idle_seconds": int(idleness.idle.total_seconds()),
        "measured_through": idleness.measured_through,
        "release_at": idleness.ends_at,
    }
