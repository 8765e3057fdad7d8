"""Tables of notices: the inbox, and what people made of it."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from django.db import models


class InboxRow(models.Model):
    """A notice in the inbox of one person who is meant. inbox_id: of notice and person."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    inbox_id = models.UUIDField(primary_key=True)
    notice_id = models.UUIDField(db_index=True)
    position = models.BigIntegerField()
    tenant_id = models.UUIDField()
    subscriber_id = models.UUIDField(null=True)
    user_id = models.UUIDField()
    topic = models.CharField(max_length=16)
    title = models.CharField(max_length=200)
    body = models.TextField()
    link = models.CharField(max_length=400)
    facts = models.JSONField()
    at = models.DateTimeField()

    read_at: datetime | None
    """When the person read it: no column, `ledger.queries.inbox` adds it."""

    class Meta:
        indexes = [
            models.Index(
                fields=["user_id", "tenant_id", "-position"], name="ledger_inbox_of_person"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.title} for {self.user_id}"


class NoticeRead(models.Model):
    """That a person read a notice. No read model: written by requests, and kept in a rebuild."""

    inbox_id = models.UUIDField(primary_key=True)
    user_id = models.UUIDField(db_index=True)
    read_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.inbox_id} at {self.read_at}"


class NoticeWish(models.Model):
    """How a person wants to be told of a topic. No read model. Without a row: as the topic says.

    wish_id: of person and topic.
    """

    wish_id = models.UUIDField(primary_key=True)
    user_id = models.UUIDField(db_index=True)
    topic = models.CharField(max_length=16)
    in_inbox = models.BooleanField()
    by_mail = models.BooleanField()
    daily = models.BooleanField(default=False, db_default=False)
    """Mail of it is gathered, and comes once a day."""
    changed_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.topic} for {self.user_id}"
