"""Maintenance windows of hosts over HTTP."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID, uuid5

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.domain.ids import HostId, MaintenanceId
from ledger.eventstore import default_store
from ledger.eventstore.port import Meta, load, stream_name
from ledger.rest import Body, Endpoint, MomentField, TextField
from listings import queries
from listings.api.acting import meta_on
from listings.api.shapes import Written
from listings.commands.maintenance import (
    announce_maintenance,
    cancel_maintenance,
    move_maintenance,
)
from listings.domain.hosts import Host
from listings.domain.maintenance import MaintenanceUnknown
from listings.domain.windows import read_window
from listings.queries.watched import planned_of

GPUS_MAX = 256


class MaintenanceShape(serializers.Serializer[Any]):
    """A maintenance window. gpu_uuids: empty: the whole host."""

    id = serializers.UUIDField(source="maintenance_id")
    starts_at = MomentField(source="window.starts_at")
    ends_at = MomentField(source="window.ends_at")
    gpu_uuids = serializers.ListField(child=serializers.CharField())
    reason = serializers.CharField()
    announced_at = MomentField()


class MaintenanceBody(Body):
    """A window to announce. starts_at: left out: from now on. gpu_uuids: left out: the whole host.

    reason: consumers whose leases would run into it read it.
    """

    starts_at = MomentField(required=False)
    ends_at = MomentField()
    gpu_uuids = serializers.ListField(child=TextField(), required=False, max_length=GPUS_MAX)
    reason = TextField()


class MoveBody(Body):
    """When a window is instead; what is left out stays."""

    starts_at = MomentField(required=False)
    ends_at = MomentField(required=False)


class Maintenances(Endpoint):
    """The maintenance windows of a host."""

    scopes: ClassVar = {"GET": "offers:read", "POST": "offers:write"}
    reads: ClassVar = ("listings.hosts",)

    @extend_schema(responses=MaintenanceShape(many=True))
    def get(self, request: Request, host_id: UUID) -> Response:
        """List the windows that are not over, in order of time."""
        planned, now = planned_of(queries.host(self.actor, host_id)), timezone.now()
        open_ = [each for each in planned if each.window.ends_at > now]
        return self.listed(MaintenanceShape(open_, many=True).data, ("id",))

    @extend_schema(request=MaintenanceBody, responses={201: Written})
    def post(self, request: Request, host_id: UUID) -> Response:
        """Announce a window: from now on nothing is leased into it.

        Leases that would run into it are told, and end by its start, or when the least notice that
        was agreed is over; their owner pays as for a reclaim with the notice since this moment.
        """
        asked, by, now = self.body(MaintenanceBody), self.meta(), timezone.now()
        assert by.command_id is not None
        maintenance_id = MaintenanceId(uuid5(by.command_id, "maintenance"))
        position = announce_maintenance(
            self.store(stream_name(Host, host_id)),
            host_id=HostId(host_id),
            maintenance_id=maintenance_id,
            window=read_window(
                asked.get("starts_at") or now.replace(microsecond=0), asked["ends_at"]
            ),
            gpu_uuids=asked.get("gpu_uuids", ()),
            reason=asked["reason"],
            by=meta_on(self.actor, by, default_store(), host_id),
            now=now,
        )
        return Response({"id": maintenance_id, "position": position}, status=201)


class OneMaintenance(Endpoint):
    """One maintenance window of a host."""

    scopes: ClassVar = {"PATCH": "offers:write", "DELETE": "offers:write"}
    reads: ClassVar = ("listings.hosts",)

    @extend_schema(request=MoveBody, responses=Written)
    def patch(self, request: Request, host_id: UUID, maintenance_id: UUID) -> Response:
        """Have a window at another time; one that has begun may only end at another."""
        asked, key = self.body(MoveBody), MaintenanceId(maintenance_id)
        by = self._by(host_id)
        host = load(default_store(), Host, host_id)
        known = None if host is None else host.maintenance.get(key)
        of_others = host is not None and by.tenant_id not in (None, host.registered.tenant_id)
        if known is None or of_others:
            raise MaintenanceUnknown(maintenance_id=str(maintenance_id))
        position = move_maintenance(
            self.store(stream_name(Host, host_id)),
            host_id=HostId(host_id),
            maintenance_id=key,
            window=read_window(
                asked.get("starts_at", known.window.starts_at),
                asked.get("ends_at", known.window.ends_at),
            ),
            by=by,
            now=timezone.now(),
        )
        return Response({"id": maintenance_id, "position": position})

    @extend_schema(request=None, responses=Written)
    def delete(self, request: Request, host_id: UUID, maintenance_id: UUID) -> Response:
        """Cancel a window, or end it now; what is being taken back already stays so."""
        position = cancel_maintenance(
            self.store(stream_name(Host, host_id)),
            host_id=HostId(host_id),
            maintenance_id=MaintenanceId(maintenance_id),
            by=self._by(host_id),
            now=timezone.now(),
        )
        return Response({"id": maintenance_id, "position": position})

    def _by(self, host_id: UUID) -> Meta:
        return meta_on(self.actor, self.meta(), default_store(), host_id)
