"""What consumers and owners read about use."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.rest import AmountField, Endpoint, MomentField
from marketplace.queries import leases
from metering.domain.correcting import REASONS
from metering.models import CorrectionRow
from metering.queries import usage

HEAT_DAYS = 14


class GpuUseShape(serializers.Serializer[Any]):
    """What one GPU did in a usage window; null is unknown, which is not 0.

    energy_mj: its lease's part of what the card took, in millijoules; it is not charged.
    """

    gpu_uuid = serializers.CharField()
    host_id = serializers.UUIDField()
    granted_ms = serializers.IntegerField()
    occupied_ms = serializers.IntegerField(allow_null=True)
    busy_ms = serializers.IntegerField(allow_null=True)
    energy_mj = serializers.IntegerField(allow_null=True, default=None)
    gap_ms = serializers.IntegerField()


class UsageWindowShape(serializers.Serializer[Any]):
    """A closed usage window. is_captured: the ledger has charged it."""

    starts_at = MomentField()
    ends_at = MomentField()
    granted_ms = serializers.IntegerField()
    occupied_ms = serializers.IntegerField(allow_null=True)
    busy_ms = serializers.IntegerField(allow_null=True)
    energy_mj = serializers.IntegerField(allow_null=True)
    gap_ms = serializers.IntegerField()
    is_captured = serializers.BooleanField()
    gpus = GpuUseShape(many=True)


class UseSoFarShape(serializers.Serializer[Any]):
    """What a lease has used and cost up to now."""

    granted_ms = serializers.IntegerField()
    rated_ms = serializers.IntegerField()
    corrected_ms = serializers.IntegerField()
    live_ms = serializers.IntegerField()
    occupied_ms = serializers.IntegerField(allow_null=True)
    busy_ms = serializers.IntegerField(allow_null=True)
    energy_mj = serializers.IntegerField(allow_null=True)
    gap_ms = serializers.IntegerField()
    rated_through = MomentField()
    cost = AmountField(source="cost.nanos")
    charged = AmountField(source="charged.nanos")
    currency = serializers.CharField(source="cost.currency")
    is_final = serializers.BooleanField()


class GapShape(serializers.Serializer[Any]):
    """A span without proof of use."""

    gpu_uuid = serializers.CharField()
    starts_at = MomentField()
    ends_at = MomentField()


class CorrectionShape(serializers.Serializer[Any]):
    """Use that was proved after its window was rated; reason_text says why it came late.

    is_captured: the ledger has charged it, or it is not charged at all (reason `too-late`).
    """

    number = serializers.IntegerField()
    starts_at = MomentField()
    ends_at = MomentField()
    granted_ms = serializers.IntegerField()
    occupied_ms = serializers.IntegerField(allow_null=True)
    busy_ms = serializers.IntegerField(allow_null=True)
    energy_mj = serializers.IntegerField(allow_null=True)
    reason = serializers.CharField()
    reason_text = serializers.SerializerMethodField()
    is_captured = serializers.BooleanField()
    at = MomentField()

    def get_reason_text(self, row: CorrectionRow) -> str:
        """Say why it came late."""
        return REASONS[row.reason]


class HeatShape(serializers.Serializer[Any]):
    """An hour of a host's leased GPUs, in milliseconds."""

    host_id = serializers.UUIDField()
    hour = MomentField()
    granted_ms = serializers.IntegerField()
    occupied_ms = serializers.IntegerField()
    occupied_of_ms = serializers.IntegerField()
    busy_ms = serializers.IntegerField()
    busy_of_ms = serializers.IntegerField()
    gap_ms = serializers.IntegerField()


class MeasuredShape(serializers.Serializer[Any]):
    """How a GPU is measured, as its agent says it.

    busy_by: `processes`, `processes and accounts`, `instance`, or empty: it is not. energy: its
    card counts what it takes.
    """

    busy_by = serializers.CharField(allow_blank=True)
    energy = serializers.BooleanField()


class AgentShape(serializers.Serializer[Any]):
    """An agent, by when the server last heard it."""

    host_id = serializers.UUIDField()
    title = serializers.CharField()
    hostname = serializers.CharField()
    agent_version = serializers.CharField()
    last_seen_at = MomentField()
    silent_seconds = serializers.IntegerField()
    standing = serializers.CharField()
    gpus = serializers.DictField(child=serializers.CharField())
    measures = serializers.DictField(child=MeasuredShape())


class LeaseUsage(Endpoint):
    """What a lease used."""

    scopes: ClassVar = {"GET": "leases:read"}
    reads: ClassVar = ("metering.meters", "marketplace.leases")

    @extend_schema(responses=UseSoFarShape)
    def get(self, request: Request, lease_id: UUID) -> Response:
        """Tell use and cost so far, rated or not."""
        leases.lease(self.actor, lease_id)
        return Response(UseSoFarShape(usage.use_so_far(self.actor, lease_id)).data)


class LeaseUsageWindows(Endpoint):
    """A lease's closed usage windows."""

    scopes: ClassVar = {"GET": "leases:read"}
    reads: ClassVar = ("metering.meters", "marketplace.leases")

    @extend_schema(responses=UsageWindowShape(many=True))
    def get(self, request: Request, lease_id: UUID) -> Response:
        """List closed usage windows in order of time."""
        leases.lease(self.actor, lease_id)
        rows = usage.usage_windows(self.actor, lease_id)
        return self.page(rows, UsageWindowShape, ("starts_at", "key"))


class LeaseGaps(Endpoint):
    """Spans of a lease that are not charged for want of proof."""

    scopes: ClassVar = {"GET": "leases:read"}
    reads: ClassVar = ("metering.meters", "marketplace.leases")

    @extend_schema(responses=GapShape(many=True))
    def get(self, request: Request, lease_id: UUID) -> Response:
        """List gaps in order of time."""
        leases.lease(self.actor, lease_id)
        return self.page(usage.gaps(self.actor, lease_id), GapShape, ("starts_at", "key"))


class LeaseCorrections(Endpoint):
    """Use of a lease that was proved after it was rated."""

    scopes: ClassVar = {"GET": "leases:read"}
    reads: ClassVar = ("metering.meters", "marketplace.leases")

    @extend_schema(responses=CorrectionShape(many=True))
    def get(self, request: Request, lease_id: UUID) -> Response:
        """List corrections in the order they were put on record."""
        leases.lease(self.actor, lease_id)
        rows = usage.corrections(self.actor, lease_id)
        return self.page(rows, CorrectionShape, ("number", "key"))


class Heat(Endpoint):
    """The heat map of an owner's hosts."""

    scopes: ClassVar = {"GET": "offers:read"}
    reads: ClassVar = ("metering.heat",)

    @extend_schema(responses=HeatShape(many=True))
    def get(self, request: Request) -> Response:
        """List the last fourteen days by host and hour."""
        now = timezone.now()
        rows = usage.heat(self.actor, since=now - timedelta(days=HEAT_DAYS), until=now)
        return self.page(rows, HeatShape, ("host_id", "hour"))


class Agents(Endpoint):
    """The agents of an owner's hosts."""

    scopes: ClassVar = {"GET": "offers:read"}
    reads: ClassVar = ("listings.hosts",)

    @extend_schema(responses=AgentShape(many=True))
    def get(self, request: Request) -> Response:
        """List agents, the longest silent first."""
        found = usage.agents(
            self.actor, now=timezone.now(), poll_seconds=settings.ENV.agent_poll_seconds
        )
        return self.listed(AgentShape(found, many=True).data, ("host_id",))
