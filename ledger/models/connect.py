"""Read models of paying owners over Stripe: what came back of transfers, payouts to their banks."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class TransferReversalRow(models.Model):
    """A part of a transfer that is to come back, or came back.

    key: payout and number of the request; or, where it was made at Stripe, payout and its id there.
    state: asked, back or failed.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    key = models.CharField(max_length=120, primary_key=True)
    payout_id = models.UUIDField(db_index=True)
    account_id = models.UUIDField()
    tenant_id = models.UUIDField(db_index=True)
    number = models.PositiveIntegerField()
    currency = models.CharField(max_length=3)
    nanos = models.BigIntegerField()
    state = models.CharField(max_length=8, db_index=True)
    reason = models.CharField(max_length=200)
    reference = models.CharField(max_length=80, default="")
    changed_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.key} {self.state}"


class BankPayoutRow(models.Model):
    """A payout from an owner's account at Stripe to the owner's bank: none of our money moves."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    reference = models.CharField(max_length=80, primary_key=True)
    account_id = models.UUIDField(db_index=True)
    tenant_id = models.UUIDField(db_index=True)
    currency = models.CharField(max_length=3)
    nanos = models.BigIntegerField()
    state = models.CharField(max_length=10)
    arrives_on = models.DateField()
    words = models.CharField(max_length=200)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.reference} {self.state}"
