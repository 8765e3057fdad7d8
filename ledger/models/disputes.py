"""Read models of disputes about charged use, and of what is said about them."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models


class DisputeRow(models.Model):
    """A dispute as it stands: `open`, `upheld`, `in-part` or `dismissed`.

    tenant_id: who paid and contests. owner_ids: whose earnings are set aside. opened_by: null where
    two meters were compared. decided_by: null while it is open, and where the time to decide was
    over. given_nanos: what goes back of what was contested.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id", "owner_ids__contains")

    dispute_id = models.UUIDField(primary_key=True)
    entry_id = models.UUIDField()
    account_id = models.UUIDField()
    tenant_id = models.UUIDField(db_index=True)
    owner_ids = ArrayField(models.UUIDField())
    lease_id = models.UUIDField()
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    charged_millis = models.BigIntegerField()
    used_millis = models.BigIntegerField()
    contested_nanos = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    reason = models.CharField(max_length=200)
    opened_by = models.UUIDField(null=True)
    opened_at = models.DateTimeField()
    decide_by = models.DateTimeField()
    state = models.CharField(max_length=10)
    decision = models.CharField(max_length=200)
    decided_by = models.UUIDField(null=True)
    decided_at = models.DateTimeField(null=True)
    given_nanos = models.BigIntegerField(db_default=0)

    class Meta:
        app_label = "ledger"
        indexes = [models.Index(fields=["state", "decide_by"], name="ledger_dispute_by_state")]

    def __str__(self) -> str:
        return f"{self.dispute_id} {self.state}"


class DisputeSaidRow(models.Model):
    """What somebody said about a dispute, on behalf of an organisation."""

    key = models.CharField(max_length=60, primary_key=True)
    dispute_id = models.UUIDField()
    number = models.PositiveIntegerField()
    tenant_id = models.UUIDField()
    said_by = models.UUIDField()
    text = models.CharField(max_length=2_000)
    at = models.DateTimeField()

    class Meta:
        app_label = "ledger"
        indexes = [models.Index(fields=["dispute_id", "number"], name="ledger_said_by_dispute")]

    def __str__(self) -> str:
        return self.key
