"""Read models of money: accounts, holds, the journal and the same by account, charges, debts.

What the database itself refuses: an entry that does not sum to zero, or that counts in a closed
month, an account further below zero than it may be, a hold that gave more than it set aside. A
projection that would write such a row stops instead.
"""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import BooleanField, CheckConstraint, F, Func, Q, Value

PERIOD_LENGTH = 7
"""A period is a month in UTC, written 2026-11."""


class PeriodRow(models.Model):
    """A month that somebody began to close. All months before the first one are closed with it.

    closed_position: of the event that closed it, while it is closed: entries after it count later.
    reopening_*: what was asked, while nobody decided on it. exports: what their manifests said.
    """

    period = models.CharField(max_length=PERIOD_LENGTH, primary_key=True)
    state = models.CharField(max_length=12)
    soft_closed_at = models.DateTimeField(null=True)
    soft_closed_by = models.UUIDField(null=True)
    closed_at = models.DateTimeField(null=True)
    closed_by = models.UUIDField(null=True)
    closed_position = models.BigIntegerField(null=True)
    reopening_reason = models.CharField(max_length=200)
    reopening_by = models.UUIDField(null=True)
    reopening_at = models.DateTimeField(null=True)
    reopened_reason = models.CharField(max_length=200)
    reopened_at = models.DateTimeField(null=True)
    reopened_by = models.UUIDField(null=True)
    reopened_with = models.UUIDField(null=True)
    """Who approved what `reopened_by` asked for."""
    exports = models.JSONField(default=list)

    class Meta:
        constraints = [
            CheckConstraint(
                condition=Q(state="closed", closed_position__isnull=False)
                | (~Q(state="closed") & Q(closed_position__isnull=True)),
                name="ledger_closed_period_has_position",
            )
        ]

    def __str__(self) -> str:
        return f"{self.period} {self.state}"


class ClosedThroughRow(models.Model):
    """The last month of those that are closed in order, in one row."""

    books = models.CharField(max_length=8, primary_key=True)
    period = models.CharField(max_length=PERIOD_LENGTH)

    def __str__(self) -> str:
        return f"closed through {self.period}"


OPEN_GUARD = """CREATE TRIGGER {table}_open AFTER INSERT ON {table}
           REFERENCING NEW TABLE AS came
           FOR EACH STATEMENT EXECUTE FUNCTION public.ledger_period_is_open()"""
"""Refuses what would count in a closed month."""


class PartyNameRow(models.Model):
    """What a tenant or a business unit is called on statements and exports."""

    party_id = models.UUIDField(primary_key=True)
    title = models.CharField(max_length=120)

    def __str__(self) -> str:
        return self.title


class AccountRow(models.Model):
    """An account as it stands.

    tenant_id is null and kind empty for an account that was posted to but not opened yet.
    short_nanos: so much further below zero than it may be, since a payer's bank took money back.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    account_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField(null=True, db_index=True)
    subscriber_id = models.UUIDField(null=True)
    kind = models.CharField(max_length=12)
    title = models.CharField(max_length=200)
    currency = models.CharField(max_length=3)
    overdraft_nanos = models.BigIntegerField(null=True)
    total_nanos = models.BigIntegerField()
    held_nanos = models.BigIntegerField()
    available_nanos = models.BigIntegerField()
    short_nanos = models.BigIntegerField(default=0)
    opened_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            CheckConstraint(
                condition=Q(available_nanos=F("total_nanos") - F("held_nanos")),
                name="ledger_available_is_total_less_held",
            ),
            CheckConstraint(
                condition=Q(overdraft_nanos__isnull=True)
                | Q(overdraft_nanos__gte=Value(0) - F("available_nanos") - F("short_nanos")),
                name="ledger_account_not_overdrawn",
            ),
        ]

    def __str__(self) -> str:
        return self.title or str(self.account_id)


class HoldRow(models.Model):
    """A hold as it stands. captured_nanos: taken from the account because of it, late use too."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    hold_id = models.UUIDField(primary_key=True)
    account_id = models.UUIDField(db_index=True)
    tenant_id = models.UUIDField(null=True, db_index=True)
    purpose = models.CharField(max_length=200)
    currency = models.CharField(max_length=3)
    money_nanos = models.BigIntegerField()
    captured_nanos = models.BigIntegerField()
    state = models.CharField(max_length=10)
    placed_at = models.DateTimeField()
    released_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["state", "placed_at"], name="ledger_hold_by_age")]
        constraints = [
            CheckConstraint(
                condition=Q(captured_nanos__lte=F("money_nanos")),
                name="ledger_hold_not_exceeded",
            )
        ]

    def __str__(self) -> str:
        return f"{self.purpose} {self.state}"


class JournalEntryRow(models.Model):
    """The journal: one row is one entry with all its postings, so that one check sees them all.

    account_ids, nanos: line by line. period: the month it belongs to, that of the use for a
    usage entry, unless that was closed before: then the next open one. tenant_id, account_id: whose
    event it is.
    """

    GUARDS: ClassVar[tuple[str, ...]] = (OPEN_GUARD.format(table="ledger_journalentryrow"),)

    entry_id = models.UUIDField(primary_key=True)
    position = models.BigIntegerField(unique=True)
    period = models.CharField(max_length=PERIOD_LENGTH)
    day = models.DateField()
    kind = models.CharField(max_length=12)
    account_id = models.UUIDField(db_index=True)
    lease_id = models.UUIDField(null=True)
    cost_centre = models.CharField(max_length=60)
    reference = models.CharField(max_length=200)
    currency = models.CharField(max_length=3)
    account_ids = ArrayField(models.UUIDField())
    nanos = ArrayField(models.BigIntegerField())
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["period", "position"], name="ledger_journal_by_period")]
        constraints = [
            CheckConstraint(
                condition=Func(
                    F("account_ids"),
                    F("nanos"),
                    function="ledger_balances",
                    output_field=BooleanField(),
                ),
                name="ledger_entry_balances",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.entry_id}"


class PostingRow(models.Model):
    """The ledger: the journal's lines by account, which is what statements read.

    line_id: `<entry_id>:<line>`. tenant_id: whose account it is. The database refuses postings of
    an entry that do not sum to zero, and changes to what was posted (migration 0005).
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)
    GUARDS: ClassVar[tuple[str, ...]] = (
        """CREATE TRIGGER ledger_postings_came AFTER INSERT ON ledger_postingrow
           REFERENCING NEW TABLE AS came
           FOR EACH STATEMENT EXECUTE FUNCTION public.ledger_postings_came()""",
        """CREATE TRIGGER ledger_postings_went AFTER DELETE ON ledger_postingrow
           REFERENCING OLD TABLE AS went
           FOR EACH STATEMENT EXECUTE FUNCTION public.ledger_postings_went()""",
        """CREATE TRIGGER ledger_postings_changed AFTER UPDATE ON ledger_postingrow
           REFERENCING OLD TABLE AS went NEW TABLE AS came
           FOR EACH STATEMENT EXECUTE FUNCTION public.ledger_postings_changed()""",
        OPEN_GUARD.format(table="ledger_postingrow"),
    )
    """What a rebuild puts on the table besides what Django makes."""

    line_id = models.CharField(max_length=48, primary_key=True)
    entry_id = models.UUIDField()
    account_id = models.UUIDField()
    tenant_id = models.UUIDField(null=True)
    position = models.BigIntegerField()
    period = models.CharField(max_length=PERIOD_LENGTH)
    kind = models.CharField(max_length=12)
    lease_id = models.UUIDField(null=True)
    cost_centre = models.CharField(max_length=60)
    reference = models.CharField(max_length=200)
    currency = models.CharField(max_length=3)
    nanos = models.BigIntegerField()
    at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(
                fields=["account_id", "period", "position"], name="ledger_posting_by_account"
            ),
            models.Index(fields=["position"], name="ledger_posting_by_position"),
        ]

    def __str__(self) -> str:
        return f"{self.nanos} {self.currency} nano-units to {self.account_id}"


class PostingSumRow(models.Model):
    """What the postings of one kind to an account come to in a run of the log, in one month.

    So that a statement of millions of lines adds up few of them. block: the positions it covers,
    `POSITIONS_SUMMED` of them. sum_id: `<account>:<period>:<block>:<kind>`.
    """

    POSITIONS_SUMMED: ClassVar[int] = 1 << 14

    sum_id = models.CharField(max_length=80, primary_key=True)
    account_id = models.UUIDField()
    period = models.CharField(max_length=PERIOD_LENGTH)
    block = models.BigIntegerField()
    kind = models.CharField(max_length=12)
    nanos = models.BigIntegerField()
    lines = models.IntegerField()

    class Meta:
        indexes = [
            models.Index(fields=["account_id", "period", "block"], name="ledger_sum_by_account"),
        ]

    def __str__(self) -> str:
        return f"{self.nanos} nano-units in {self.lines} lines"


class UsageChargeRow(models.Model):
    """A usage window that was charged, with all that bills and exports say of it."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    entry_id = models.UUIDField(primary_key=True)
    position = models.BigIntegerField(unique=True)
    period = models.CharField(max_length=PERIOD_LENGTH)
    account_id = models.UUIDField()
    tenant_id = models.UUIDField()
    subscriber_id = models.UUIDField(null=True)
    lease_id = models.UUIDField(db_index=True)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    gpu_millis = models.BigIntegerField()
    energy_mj = models.BigIntegerField(null=True)
    price_nanos = models.BigIntegerField()
    list_price_nanos = models.BigIntegerField()
    fee_ppm = models.IntegerField()
    charged_nanos = models.BigIntegerField()
    fee_nanos = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    cost_centre = models.CharField(max_length=60)
    sku = models.CharField(max_length=80)
    region = models.CharField(max_length=80)
    service_class = models.CharField(max_length=20)
    provider = models.CharField(max_length=80)
    shares = models.TextField(default="")
    """The parts of cards among its GPUs, as the event has them; empty: whole cards."""
    at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["tenant_id", "period"], name="ledger_charge_by_tenant"),
            models.Index(fields=["period", "position"], name="ledger_charge_by_period"),
        ]
        constraints = [
            CheckConstraint(
                condition=Q(fee_nanos__gte=0) & Q(charged_nanos__gte=F("fee_nanos")),
                name="ledger_fee_within_charge",
            )
        ]

    def __str__(self) -> str:
        return f"{self.charged_nanos} nano-units for {self.lease_id}"


class StorageChargeRow(models.Model):
    """What was kept in a volume for a while, as it was charged."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    entry_id = models.UUIDField(primary_key=True)
    position = models.BigIntegerField(db_index=True)
    period = models.CharField(max_length=PERIOD_LENGTH)
    account_id = models.UUIDField()
    tenant_id = models.UUIDField()
    subscriber_id = models.UUIDField(null=True)
    volume_id = models.UUIDField()
    title = models.CharField(max_length=200)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    byte_seconds = models.BigIntegerField()
    nanos_per_gib_month = models.BigIntegerField()
    charged_nanos = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    cost_centre = models.CharField(max_length=60)
    at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["period", "position"], name="ledger_storage_by_period"),
        ]

    def __str__(self) -> str:
        return f"{self.charged_nanos} nano-units for {self.title}"


class DebtRow(models.Model):
    """What one tenant came to owe another in a month: use of its GPUs, or compensation.

    debt_id: `<period>:<debtor>:<creditor or platform>:<currency>`. creditor_id is null for the
    platform's fees.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("debtor_id", "creditor_id")

    debt_id = models.CharField(max_length=96, primary_key=True)
    period = models.CharField(max_length=PERIOD_LENGTH, db_index=True)
    debtor_id = models.UUIDField(db_index=True)
    creditor_id = models.UUIDField(null=True, db_index=True)
    currency = models.CharField(max_length=3)
    nanos = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.debt_id}: {self.nanos} nano-units"
