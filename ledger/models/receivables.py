"""Read model of invoices that others pay: what is owed, who collects it, what came of it."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class ReceivableRow(models.Model):
    """An invoice that is to be paid: open, paid, credited, written-off.

    left_nanos: what is owed of it. reference: its id at the payment service; empty: it is paid by
    transfer. refused: why the service did not take it. ended: why it collects it no longer.
    collected_nanos: what it collects since that was lowered; None: what it was handed.
    blocked: the account takes no new bids for it. write_off_…: one that waits for a decision.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id", "issuer_id")

    invoice_id = models.UUIDField(primary_key=True)
    number = models.CharField(max_length=40, unique=True)
    account_id = models.UUIDField(db_index=True)
    tenant_id = models.UUIDField(db_index=True)
    issuer_id = models.UUIDField()
    currency = models.CharField(max_length=3)
    state = models.CharField(max_length=12)
    total_nanos = models.BigIntegerField()
    credited_nanos = models.BigIntegerField()
    paid_nanos = models.BigIntegerField()
    written_off_nanos = models.BigIntegerField()
    left_nanos = models.BigIntegerField()
    issued_at = models.DateTimeField()
    due_at = models.DateTimeField()
    paid_at = models.DateTimeField(null=True)
    paid_by = models.CharField(max_length=200)
    overdue_at = models.DateTimeField(null=True)
    blocks_at = models.DateTimeField(null=True)
    blocked = models.BooleanField()
    reference = models.CharField(max_length=80, db_index=True)
    url = models.TextField()
    refused = models.CharField(max_length=200)
    failed = models.CharField(max_length=200)
    ended = models.CharField(max_length=16)
    collected_nanos = models.BigIntegerField(null=True)
    write_off_id = models.UUIDField(null=True)
    write_off_nanos = models.BigIntegerField()
    write_off_reason = models.CharField(max_length=200)
    write_off_by = models.UUIDField(null=True)

    class Meta:
        indexes = [models.Index(fields=["state", "due_at"], name="ledger_receivable_due")]

    def __str__(self) -> str:
        return f"{self.number} {self.state}"
