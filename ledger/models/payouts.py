"""Read models of paying owners: what was earned by day and lease, payees, payouts, bank files."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models

from ledger.models.money import PERIOD_LENGTH


class PayeeRow(models.Model):
    """An earnings account, how it is paid out, and where to.

    channel: over what; empty: by bank file. channel_from: from when on. stripe_*: the owner's
    account at Stripe; its state is empty where there is none.

    earned_nanos: all that was posted to it but payouts. paid_nanos: payouts less what came back.
    rounds: how many payouts were requested. opening_nanos: what was left after the last one.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    account_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField(db_index=True)
    currency = models.CharField(max_length=3)
    schedule = models.CharField(max_length=8, default="")
    minimum_nanos = models.BigIntegerField(null=True)
    details_id = models.UUIDField(null=True)
    details_kind = models.CharField(max_length=8, default="")
    details_masked = models.CharField(max_length=40, default="")
    proposed_id = models.UUIDField(null=True)
    proposed_kind = models.CharField(max_length=8, default="")
    proposed_masked = models.CharField(max_length=40, default="")
    proposed_by = models.UUIDField(null=True)
    proposed_at = models.DateTimeField(null=True)
    usable_from = models.DateTimeField(null=True)
    earned_nanos = models.BigIntegerField(default=0)
    paid_nanos = models.BigIntegerField(default=0)
    opening_nanos = models.BigIntegerField(default=0)
    rounds = models.PositiveIntegerField(default=0)
    settled = models.CharField(max_length=10, default="")
    """The last period that the schedule settled."""
    channel = models.CharField(max_length=10, default="")
    channel_from = models.DateTimeField(null=True)
    stripe_account = models.CharField(max_length=80, default="")
    stripe_country = models.CharField(max_length=2, default="")
    stripe_state = models.CharField(max_length=16, default="", db_index=True)
    stripe_missing = ArrayField(models.CharField(max_length=200), default=list)
    stripe_words = models.CharField(max_length=200, default="")

    def __str__(self) -> str:
        return f"{self.account_id}: {self.earned_nanos - self.paid_nanos} nano-units owed"


class EarningRow(models.Model):
    """What one lease, or one kind of entry, did to an owner's earnings on a day.

    key: account, round, day, period, kind and lease. day: when it was booked, in UTC. period: the
    month in which it counts. round: how many payouts had been requested by then, so that the rows
    of a round are what came between one payout and the next. gross_nanos: what consumers paid.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)
    READ_BY: ClassVar[str] = "lease_id"

    key = models.CharField(max_length=140, primary_key=True)
    account_id = models.UUIDField()
    tenant_id = models.UUIDField()
    round = models.PositiveIntegerField()
    day = models.DateField()
    period = models.CharField(max_length=PERIOD_LENGTH)
    kind = models.CharField(max_length=12)
    lease_id = models.UUIDField(null=True)
    sku = models.CharField(max_length=200)
    currency = models.CharField(max_length=3)
    gpu_millis = models.BigIntegerField()
    gross_nanos = models.BigIntegerField()
    fee_nanos = models.BigIntegerField()
    nanos = models.BigIntegerField()

    class Meta:
        indexes = [
            models.Index(fields=["account_id", "day"], name="ledger_earning_by_day"),
            models.Index(fields=["account_id", "round"], name="ledger_earning_by_round"),
            models.Index(fields=["tenant_id", "period"], name="ledger_earning_by_month"),
            models.Index(fields=["lease_id"], name="ledger_earning_by_lease"),
        ]

    def __str__(self) -> str:
        return f"{self.nanos} nano-units on {self.day}"


class PayoutRow(models.Model):
    """A payout as it stands. opening_nanos, closing_nanos: what was owed before and after it.

    channel: how it went out; empty: it did not yet. waits, waits_because, again_at: how often a
    transfer was asked for while our balance at Stripe was too low, why, and when it is again.
    reversed_nanos: what came back of a transfer.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    payout_id = models.UUIDField(primary_key=True)
    account_id = models.UUIDField(db_index=True)
    tenant_id = models.UUIDField(db_index=True)
    currency = models.CharField(max_length=3)
    period = models.CharField(max_length=10)
    revision = models.PositiveIntegerField()
    round = models.PositiveIntegerField()
    state = models.CharField(max_length=10, db_index=True)
    nanos = models.BigIntegerField()
    cut_off = models.DateField()
    later_nanos = models.BigIntegerField()
    held_back_nanos = models.BigIntegerField()
    set_aside_nanos = models.BigIntegerField()
    opening_nanos = models.BigIntegerField()
    closing_nanos = models.BigIntegerField()
    approvals_needed = models.PositiveSmallIntegerField()
    approved_by = ArrayField(models.UUIDField(), default=list)
    requested_by = models.UUIDField(null=True)
    requested_at = models.DateTimeField()
    file_id = models.UUIDField(null=True, db_index=True)
    details_id = models.UUIDField(null=True)
    sent_at = models.DateTimeField(null=True)
    reference = models.CharField(max_length=200, default="")
    paid_on = models.DateField(null=True)
    reason = models.CharField(max_length=200, default="")
    """Why it was cancelled or returned."""
    channel = models.CharField(max_length=10, default="")
    waits = models.PositiveIntegerField(default=0)
    waits_because = models.CharField(max_length=200, default="")
    again_at = models.DateTimeField(null=True)
    reversed_nanos = models.BigIntegerField(default=0)
    changed_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.period} {self.state}"


class BankFileRow(models.Model):
    """A file of payouts for the bank, as its event says. Only the platform's finance sees it."""

    file_id = models.UUIDField(primary_key=True)
    number = models.PositiveIntegerField(unique=True)
    message_id = models.CharField(max_length=35)
    format = models.CharField(max_length=10)
    currency = models.CharField(max_length=3)
    payouts = models.PositiveIntegerField()
    total_nanos = models.BigIntegerField()
    execute_on = models.DateField()
    sha256 = models.CharField(max_length=64)
    position = models.BigIntegerField()
    by_user = models.UUIDField()
    at = models.DateTimeField()

    def __str__(self) -> str:
        return self.message_id


class BankDetailsValue(models.Model):
    """A bank account's numbers, sealed: no read model, since no event holds them.

    `ledger.paying` alone writes it, before the event that names it.
    """

    details_id = models.UUIDField(primary_key=True)
    account_id = models.UUIDField(db_index=True)
    master = models.CharField(max_length=16, db_index=True)
    """Which key of the installation wraps `key`: part of a hash of it."""
    key = models.BinaryField()
    value = models.BinaryField()

    def __str__(self) -> str:
        return str(self.details_id)
