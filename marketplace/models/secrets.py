"""Secrets of work: who set which when, and, apart from that, their values as nobody can read."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class SecretRow(models.Model):
    """One secret as its organisation sees it. Only `projections.secrets` writes it."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    secret_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField()
    name = models.CharField(max_length=64)
    version = models.PositiveIntegerField()
    user_id = models.UUIDField(null=True)
    """Who set this version; null: a program."""
    set_at = models.DateTimeField()
    delivered_at = models.DateTimeField(null=True)
    """When work was last handed a version of it; null: none was."""
    delivered_lease_id = models.UUIDField(null=True)

    class Meta:
        app_label = "marketplace"
        indexes = [models.Index(fields=["tenant_id", "name"], name="secret_by_tenant")]

    def __str__(self) -> str:
        return f"{self.name} version {self.version}"


class SecretValueRow(models.Model):
    """A secret's newest value, sealed: no read model, since no event holds it.

    `marketplace.secrets` alone writes it, with the secret's events. What it holds opens with the
    installation's key for such secrets, and only as the value of this organisation's secret of
    this name and version.
    """

    secret_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField(db_index=True)
    name = models.CharField(max_length=64)
    version = models.PositiveIntegerField()
    master = models.CharField(max_length=16, db_index=True)
    """Which key of the installation wraps `key`: part of a hash of it."""
    key = models.BinaryField()
    """The key of this value alone, wrapped."""
    value = models.BinaryField()

    class Meta:
        app_label = "marketplace"

    def __str__(self) -> str:
        return f"{self.name} version {self.version}"
