"""Logs of leased work: no read model, for what work prints is no fact of the market."""

from __future__ import annotations

from django.db import models


class LogRow(models.Model):
    """One stream of what a host ran for a lease. `marketplace.logs` alone writes it.

    While it is open its bytes are in files (`marketplace.storage.logs`), and so are its figures;
    afterwards they are a blob in storage, until `kept_until`.
    """

    id = models.BigAutoField(primary_key=True)
    lease_id = models.UUIDField()
    host_id = models.UUIDField()
    attempt = models.PositiveIntegerField()
    stream = models.CharField(max_length=16)
    tenant_id = models.UUIDField()
    size_bytes = models.BigIntegerField(default=0)
    """Where it ends; what was dropped of it counts."""
    dropped_bytes = models.BigIntegerField(default=0)
    is_complete = models.BooleanField(default=False)
    """Its host said where it ends, and all up to there came."""
    first_at = models.DateTimeField()
    last_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)
    sha256 = models.CharField(max_length=64, default="")
    """The blob in which it is; empty while it is open."""
    kept_until = models.DateTimeField(null=True, db_index=True)

    class Meta:
        app_label = "marketplace"
        constraints = [
            models.UniqueConstraint(
                fields=["lease_id", "host_id", "attempt", "stream"], name="log_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.stream} of {self.lease_id}"
