"""Use summed up by day, also when its samples are long dropped."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.domain.refusal import Invalid
from ledger.domain.whole_numbers import whole_number
from ledger.rest import Endpoint
from marketplace.queries import leases
from metering.queries import usage

DAYS_DEFAULT, DAYS_MAX = 31, 366
DAYS = OpenApiParameter(
    "days", {"type": "integer", "minimum": 1, "maximum": DAYS_MAX, "default": DAYS_DEFAULT}
)


class DaysOutOfRange(Invalid):
    """Use is summed up by day; ask for the last 1 to 366 days."""


class UseDayShape(serializers.Serializer[Any]):
    """What one GPU did for one lease in a UTC day; null is unknown, which is not 0.

    Of closed windows and what was corrected of them. energy_mj: in millijoules, not charged.
    """

    day = serializers.DateField()
    lease_id = serializers.UUIDField()
    host_id = serializers.UUIDField()
    gpu_uuid = serializers.CharField()
    granted_ms = serializers.IntegerField()
    occupied_ms = serializers.IntegerField(allow_null=True)
    busy_ms = serializers.IntegerField(allow_null=True)
    energy_mj = serializers.IntegerField(allow_null=True)
    gap_ms = serializers.IntegerField()


class UseDays(Endpoint):
    """An organisation's use by day."""

    scopes: ClassVar = {"GET": "leases:read"}
    reads: ClassVar = ("metering.days",)

    @extend_schema(responses=UseDayShape(many=True), parameters=[DAYS])
    def get(self, request: Request) -> Response:
        """List what GPUs did on each of the last days: of its leases, and of its hosts."""
        text = request.query_params.get("days", str(DAYS_DEFAULT))
        try:
            count = whole_number(text, least=1, most=DAYS_MAX)
        except ValueError:
            raise DaysOutOfRange(days_max=DAYS_MAX) from None
        since = timezone.now().date() - timedelta(days=count - 1)
        return self.page(usage.days(self.actor, since=since), UseDayShape, ("day", "key"))


class LeaseDays(Endpoint):
    """A lease's use by day."""

    scopes: ClassVar = {"GET": "leases:read"}
    reads: ClassVar = ("metering.days", "metering.meters", "marketplace.leases")

    @extend_schema(responses=UseDayShape(many=True))
    def get(self, request: Request, lease_id: UUID) -> Response:
        """List what each GPU of the lease did on each day, in order of time."""
        leases.lease(self.actor, lease_id)
        rows = usage.days(self.actor, lease_id=lease_id)
        return self.page(rows, UseDayShape, ("day", "key"))
