"""Tables of daily mails. No read models: what was mailed is no fact of the market."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class DigestTimeRow(models.Model):
    """At which hour a person gets the daily mail. Without a row: at eight in UTC."""

    user_id = models.UUIDField(primary_key=True)
    hour = models.PositiveSmallIntegerField()
    zone = models.CharField(max_length=64)
    changed_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.hour} h in {self.zone}"


class DigestItemRow(models.Model):
    """A notice that comes with a person's daily mail. delivery_id: of that mail; null: not yet.

    item_id: of notice and person. due_at: when that mail is due.
    """

    item_id = models.UUIDField(primary_key=True)
    user_id = models.UUIDField()
    tenant_id = models.UUIDField()
    topic = models.CharField(max_length=16)
    title = models.CharField(max_length=200)
    body = models.TextField()
    link = models.CharField(max_length=400)
    at = models.DateTimeField()
    due_at = models.DateTimeField()
    created_at = models.DateTimeField(db_index=True)
    delivery_id = models.UUIDField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["due_at", "user_id"],
                name="ledger_digest_waiting",
                condition=Q(delivery_id=None),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.title} by {self.due_at}"
