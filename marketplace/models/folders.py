"""Folders that are kept, and the blobs they are made of."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class FolderRow(models.Model):
    """One folder as its organisation sees it. Only `projections.folders` writes it."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    folder_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField()
    manifest = models.CharField(max_length=64)
    """The sha256 that names what is in it."""
    title = models.CharField(max_length=120)
    files = models.PositiveIntegerField()
    size_bytes = models.BigIntegerField()
    user_id = models.UUIDField(null=True)
    """Who brought it; null: a lease left it."""
    lease_id = models.UUIDField(null=True, db_index=True)
    host_id = models.UUIDField(null=True)
    exit_code = models.IntegerField(null=True)
    kept_at = models.DateTimeField()

    class Meta:
        app_label = "marketplace"
        indexes = [models.Index(fields=["tenant_id", "-kept_at"], name="folder_by_tenant")]

    def __str__(self) -> str:
        return f"{self.folder_id} {self.title}"


class BlobRow(models.Model):
    """A blob that was asked for, and since when it is in storage: no read model.

    What is in storage is no fact of the market, and changes without one. `marketplace.blobs` alone
    writes it; what is lost of it is found in storage again.
    """

    id = models.BigAutoField(primary_key=True)
    tenant_id = models.UUIDField()
    sha256 = models.CharField(max_length=64)
    size_bytes = models.PositiveIntegerField()
    asked_at = models.DateTimeField(db_index=True)
    stored_at = models.DateTimeField(null=True)
    """Since when it is known to be there; null: its room is kept, but it has not been seen."""

    class Meta:
        app_label = "marketplace"
        constraints = [models.UniqueConstraint(fields=["tenant_id", "sha256"], name="blob_once")]

    def __str__(self) -> str:
        return self.sha256


class BlobUseRow(models.Model):
    """That a folder, or a version of a volume, has a blob: it stays. Written with their events."""

    id = models.BigAutoField(primary_key=True)
    folder_id = models.UUIDField()
    blob_id = models.BigIntegerField(db_index=True)
    volume_id = models.UUIDField(null=True, db_index=True)
    """Of a volume, whose version `folder_id` names; null: of a folder."""

    class Meta:
        app_label = "marketplace"
        constraints = [
            models.UniqueConstraint(fields=["folder_id", "blob_id"], name="blob_use_once")
        ]

    def __str__(self) -> str:
        return f"{self.blob_id} in {self.folder_id}"
