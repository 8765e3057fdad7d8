"""How an owner's hosts do, and what was the matter with them."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.rest import Endpoint, MomentField
from listings.queries.health import history
from metering.queries import health


class GpuHealthShape(serializers.Serializer[Any]):
    """How a GPU does. reason: why it is leased to nobody; empty: it may be leased.

    back_after_seconds: how long it has to be without fault; next_look_at: when it is probed or
    tried again, where that is known.
    """

    gpu_uuid = serializers.CharField()
    model = serializers.CharField()
    condition = serializers.CharField()
    reason = serializers.CharField()
    detail = serializers.CharField()
    since = MomentField(allow_null=True)
    relapses = serializers.IntegerField()
    back_after_seconds = serializers.IntegerField()
    next_look_at = MomentField(allow_null=True)


class PlannedShape(serializers.Serializer[Any]):
    """A maintenance window that is not over. gpu_uuids: empty: the whole host."""

    id = serializers.UUIDField(source="maintenance_id")
    starts_at = MomentField(source="window.starts_at")
    ends_at = MomentField(source="window.ends_at")
    gpu_uuids = serializers.ListField(child=serializers.CharField())
    reason = serializers.CharField()
    announced_at = MomentField()


class HostHealthShape(serializers.Serializer[Any]):
    """How a host does. standing: `healthy`, `late`, `silent`, `returning`; null: never heard."""

    host_id = serializers.UUIDField(source="row.host_id")
    title = serializers.CharField(source="row.title")
    standing = serializers.CharField(allow_null=True)
    last_seen_at = MomentField(allow_null=True)
    at_host = serializers.CharField(source="row.at_host")
    on_market = serializers.CharField(source="row.on_market")
    gpus = GpuHealthShape(many=True)
    maintenance = PlannedShape(many=True)


class HealthSpanShape(serializers.Serializer[Any]):
    """What was the matter, from when until when; until null: it still is.

    gpu_uuid: empty: the whole host. said_by: `agent`, `owner` or `market`.
    """

    gpu_uuid = serializers.CharField()
    kind = serializers.CharField()
    words = serializers.CharField()
    said_by = serializers.CharField(source="source")
    since = MomentField()
    until = MomentField(allow_null=True)
    relapses = serializers.IntegerField()


class HostHealth(Endpoint):
    """How a host does now."""

    scopes: ClassVar = {"GET": "offers:read"}
    reads: ClassVar = ("listings.hosts", "listings.health")

    @extend_schema(responses=HostHealthShape)
    def get(self, request: Request, host_id: UUID) -> Response:
        """Tell how a host and each of its GPUs do, and when what is withheld is looked at again."""
        poll = settings.ENV.agent_poll_seconds
        found = health.doing(self.actor, host_id, now=timezone.now(), poll_seconds=poll)
        return Response(HostHealthShape(found).data)


class HostHealthHistory(Endpoint):
    """What was the matter with a host."""

    scopes: ClassVar = {"GET": "offers:read"}
    reads: ClassVar = ("listings.health",)

    @extend_schema(responses=HealthSpanShape(many=True))
    def get(self, request: Request, host_id: UUID) -> Response:
        """List what was the matter with a host and its GPUs, newest first."""
        rows = history(self.actor, host_id, since=timezone.now() - health.KEPT_FOR)
        return self.page(rows, HealthSpanShape, ("-since", "key"))
