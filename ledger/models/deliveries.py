"""Tables of what goes out: webhooks, messages and attempts.

No read models: what was sent is no fact of the market, and a rebuild must not send it again.
"""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q


class WebhookRow(models.Model):
    """Where an organisation's notices are posted. topics: empty means all.

    The secret is sealed; the one before signs beside it until `old_until`. failures: in a row.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    webhook_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField(db_index=True)
    url = models.CharField(max_length=500)
    topics = ArrayField(models.CharField(max_length=16))
    created_at = models.DateTimeField()
    created_by = models.UUIDField(null=True)
    master = models.CharField(max_length=16)
    key = models.BinaryField()
    value = models.BinaryField()
    old_master = models.CharField(max_length=16, default="")
    old_key = models.BinaryField(null=True)
    old_value = models.BinaryField(null=True)
    old_until = models.DateTimeField(null=True)
    failures = models.PositiveIntegerField(default=0)
    failing_since = models.DateTimeField(null=True)
    rests_until = models.DateTimeField(null=True)
    off_at = models.DateTimeField(null=True)
    off_reason = models.CharField(max_length=200, default="")

    def __str__(self) -> str:
        return f"{self.url} of {self.tenant_id}"


class DeliveryRow(models.Model):
    """A message for one receiver outside. state: waiting, through or failed.

    receiver: whoever has turns of their own: a webhook's id, or `mail`. body: what is sent, the
    same each time. delivery_id: names the message to the receiver.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    delivery_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField()
    webhook_id = models.UUIDField(null=True)
    user_id = models.UUIDField(null=True)
    receiver = models.CharField(max_length=40)
    notice_id = models.UUIDField(null=True)
    topic = models.CharField(max_length=16)
    title = models.CharField(max_length=200)
    body = models.TextField()
    state = models.CharField(max_length=8, default="waiting")
    attempts = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField()
    created_at = models.DateTimeField(db_index=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["receiver", "due_at", "delivery_id"],
                name="ledger_delivery_waiting",
                condition=Q(state="waiting"),
            ),
            models.Index(fields=["webhook_id", "-created_at"], name="ledger_delivery_by_webhook"),
        ]

    def __str__(self) -> str:
        return f"{self.title} to {self.receiver}: {self.state}"


class AttemptRow(models.Model):
    """One attempt to send a message. status: as the receiver answered; null: it did not."""

    attempt_id = models.UUIDField(primary_key=True)
    delivery_id = models.UUIDField(db_index=True)
    number = models.PositiveIntegerField()
    at = models.DateTimeField(db_index=True)
    millis = models.PositiveIntegerField()
    is_through = models.BooleanField()
    status = models.PositiveIntegerField(null=True)
    words = models.CharField(max_length=500)

    def __str__(self) -> str:
        return f"{self.number} of {self.delivery_id}: {self.status}"
