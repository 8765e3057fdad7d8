"""Tables of what leased work says of itself, and of how its charges were compared with it."""

from __future__ import annotations

from typing import Any

from django.db import models


class SpansField(models.Field):  # type: ignore[type-arg]  # no class to subscribe at run time
    """Spans of whole milliseconds, of which PostgreSQL makes a union without overlaps."""

    def db_type(self, connection: Any) -> str:
        """Return its type in PostgreSQL."""
        return "int8multirange"


class Heartbeat(models.Model):
    """For which spans of a day the work of a lease said that it was alive. Only grows.

    source: the host whose agent passed it on, or the lease's own id where it came under the right
    of its consumer. A union: so what comes twice, late or in another order changes nothing.
    """

    pk = models.CompositePrimaryKey("lease_id", "source", "day")
    lease_id = models.UUIDField()
    source = models.UUIDField()
    day = models.IntegerField(db_index=True)
    """Days since 1970 in UTC."""
    spans = SpansField()

    class Meta:
        app_label = "metering"

    def __str__(self) -> str:
        return f"{self.lease_id} {self.source} {self.day}"


class MetersCompared(models.Model):
    """What came of comparing the two meters of a charged usage window, once.

    missing_ms: GPU-time that was charged, and in which the work gave no sign of life. is_beyond:
    that is more than is tolerated, so the charge was contested.
    """

    pk = models.CompositePrimaryKey("lease_id", "starts_at")
    lease_id = models.UUIDField()
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(db_index=True)
    granted_ms = models.BigIntegerField()
    missing_ms = models.BigIntegerField()
    is_beyond = models.BooleanField()
    at = models.DateTimeField()

    class Meta:
        app_label = "metering"

    def __str__(self) -> str:
        return f"{self.lease_id} {self.starts_at} {self.missing_ms}"
