"""Volumes as their organisations see them."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class VolumeRow(models.Model):
    """One volume. Only `projections.volumes` writes it."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    volume_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField()
    subscriber_id = models.UUIDField()
    account_id = models.UUIDField()
    """Which pays for it."""
    cost_centre = models.CharField(max_length=60)
    name = models.CharField(max_length=64)
    user_id = models.UUIDField(null=True)
    quota_bytes = models.BigIntegerField()
    """What the files of one version may have."""
    nanos_per_gib_month = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    number = models.PositiveIntegerField(default=0)
    """Of its newest version; 0: nothing was kept yet."""
    manifest = models.CharField(max_length=64, default="")
    files = models.PositiveIntegerField(default=0)
    size_bytes = models.BigIntegerField(default=0)
    versions = models.JSONField(default=list)
    """Those that are kept, oldest first: number, manifest, files, size_bytes, lease_id, at."""
    writer_id = models.UUIDField(null=True)
    """The bid whose work writes to it, or wrote last; null: none."""
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    noticed_at = models.DateTimeField(null=True)
    """When its organisation was told that it expires; null: it was not."""
    unpaid_at = models.DateTimeField(null=True)
    """Since when its price is not paid; null: it is."""
    read_only_at = models.DateTimeField(null=True)
    """From when on it is read-only for that."""
    expired_because = models.CharField(max_length=12, default="")
    """Empty: it has not expired."""
    removed_at = models.DateTimeField(null=True)
    """When an expired one's files go, or when it was removed."""
    is_removed = models.BooleanField(default=False)
    charged_until = models.DateTimeField(null=True)
    """Up to when it was charged last; null: it never was."""
    charged_nanos = models.BigIntegerField(default=0)
    """All that was charged for it, under this name."""

    class Meta:
        app_label = "marketplace"
        indexes = [models.Index(fields=["tenant_id", "name"], name="volume_by_tenant")]

    def __str__(self) -> str:
        return self.name
