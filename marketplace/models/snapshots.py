"""Snapshots of order books: no read model, and no truth either. See `marketplace.snapshots`."""

from __future__ import annotations

from django.db import models


class SnapshotRow(models.Model):
    """One snapshot. It may be deleted at any time: books are then folded from the first event."""

    id = models.BigAutoField(primary_key=True)
    market = models.CharField(max_length=64)
    form = models.CharField(max_length=32)
    """What code can read it (`snapshots.codec.FORM`)."""
    position = models.BigIntegerField()
    """Of the last fact in it."""
    version = models.BigIntegerField()
    """Of the market's stream."""
    checksum = models.BinaryField()
    body = models.BinaryField()
    taken_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = (models.Index(fields=["market", "form", "-id"], name="snapshot_newest"),)

    def __str__(self) -> str:
        return f"{self.market} up to {self.position}"
