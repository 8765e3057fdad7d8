"""The heartbeat of leased work, under the right of its consumer, and both meters side by side."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.domain.ids import LeaseId
from ledger.domain.span import Window
from ledger.rest import Body, Endpoint, MomentField
from marketplace.queries import leases
from metering.domain.instants import instant_of, millis_up
from metering.ingest.heartbeats import SPANS_MAX, take_heartbeats
from metering.queries.two_meters import Seen, meters_seen
from metering.queries.usage import usage_windows

WINDOWS_MAX = 48
"""Usage windows of which both meters are told at once, the latest."""
MILLIS_MAX = 2**53


class AliveSpanShape(serializers.Serializer[Any]):
    """From when until when the work was alive, in milliseconds since 1970."""

    from_ms = serializers.IntegerField(min_value=0, max_value=MILLIS_MAX)
    until_ms = serializers.IntegerField(min_value=0, max_value=MILLIS_MAX)


class SayAlive(Body):
    """For which spans the work of a lease was alive; the same again changes nothing."""

    spans = serializers.ListField(child=AliveSpanShape(), max_length=SPANS_MAX)


class AliveTaken(serializers.Serializer[Any]):
    """How many spans were taken, new ones and repeated ones."""

    taken = serializers.IntegerField()


class NoLifeShape(serializers.Serializer[Any]):
    """A span of one GPU that was granted, and in which the work gave no sign of life."""

    gpu_uuid = serializers.CharField()
    starts_at = MomentField()
    ends_at = MomentField()


class MetersShape(serializers.Serializer[Any]):
    """A usage window on both meters, in GPU-milliseconds.

    granted_ms: by the owners'. alive_ms: by that of who pays; as granted where the work has no
    heartbeat. missing: what the second lacks, span by span.
    """

    starts_at = MomentField()
    ends_at = MomentField()
    granted_ms = serializers.IntegerField()
    alive_ms = serializers.IntegerField()
    has_heartbeat = serializers.BooleanField()
    missing = NoLifeShape(many=True)


class LeaseHeartbeats(Endpoint):
    """The heartbeat of a lease's work."""

    scopes: ClassVar = {"POST": "leases:write"}
    reads: ClassVar = ("marketplace.leases",)

    @extend_schema(request=SayAlive, responses=AliveTaken)
    def post(self, request: Request, lease_id: UUID) -> Response:
        """Say for which spans the work was alive. It charges nothing, and may contest a charge."""
        row = leases.consumed_lease(self.actor, lease_id)
        spans = [(each["from_ms"], each["until_ms"]) for each in self.body(SayAlive)["spans"]]
        take_heartbeats(
            LeaseId(row.lease_id),
            row.lease_id,
            spans,
            starts_ms=millis_up(row.starts_at),
            now=timezone.now(),
        )
        return Response({"taken": len(spans)})


class LeaseMeters(Endpoint):
    """Both meters of a lease."""

    scopes: ClassVar = {"GET": "leases:read"}
    reads: ClassVar = ("metering.meters", "marketplace.leases")

    @extend_schema(responses=MetersShape(many=True))
    def get(self, request: Request, lease_id: UUID) -> Response:
        """List the latest usage windows as both meters have them; an owner sees its own GPUs."""
        leases.lease(self.actor, lease_id)
        rows = usage_windows(self.actor, lease_id).order_by("-starts_at")
        times = rows.values_list("starts_at", "ends_at").distinct()[:WINDOWS_MAX]
        found = []
        for starts_at, ends_at in times:
            seen = meters_seen(self.actor, lease_id, Window(starts_at, ends_at))
            if seen is not None:
                found.append({"starts_at": starts_at, "ends_at": ends_at, **_sums(seen)})
        return self.listed(MetersShape(found, many=True).data, ("starts_at",))


def _sums(seen: Seen) -> dict[str, Any]:
    return {
        "granted_ms": seen.granted_ms,
        "alive_ms": seen.granted_ms - seen.missing_ms,
        "has_heartbeat": any(each.has_heartbeat for each in seen.gpus),
        "missing": [
            {
                "gpu_uuid": each.gpu_uuid,
                "starts_at": instant_of(start),
                "ends_at": instant_of(end),
            }
            for each in seen.gpus
            for start, end in each.missing
        ],
    }
