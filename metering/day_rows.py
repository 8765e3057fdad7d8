"""Tables of use summed up by day: read models that `days` alone writes."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class SummedLease(models.Model):
    """Whose use the days of a lease are."""

    lease_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField()

    def __str__(self) -> str:
        return f"{self.lease_id} of {self.tenant_id}"


class DayRow(models.Model):
    """What one GPU did for one lease in one UTC day: its closed windows, and what was corrected.

    What was proved too late to be charged is not in it.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id", "owner_id")

    key = models.CharField(max_length=300, primary_key=True)
    lease_id = models.UUIDField(db_index=True)
    tenant_id = models.UUIDField()
    owner_id = models.UUIDField()
    host_id = models.UUIDField()
    gpu_uuid = models.CharField(max_length=200)
    day = models.DateField()
    granted_ms = models.BigIntegerField()
    occupied_ms = models.BigIntegerField(null=True)
    busy_ms = models.BigIntegerField(null=True)
    energy_mj = models.BigIntegerField(null=True)
    gap_ms = models.BigIntegerField()

    class Meta:
        indexes = [
            models.Index(fields=["tenant_id", "day"], name="day_by_tenant"),
            models.Index(fields=["owner_id", "day"], name="day_by_owner"),
        ]

    def __str__(self) -> str:
        return self.key
