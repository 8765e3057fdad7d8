"""Tables of spending: what each bid came to by day, what is still held, budgets and grants."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class SpendingBidRow(models.Model):
    """Whose a bid is, what its hold still sets aside and what it was charged until now."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    bid_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField()
    subscriber_id = models.UUIDField()
    user_id = models.UUIDField(null=True)
    project = models.CharField(max_length=63)
    workload_kind = models.CharField(max_length=64)
    gpu_model = models.CharField(max_length=100, default="")
    """Empty until it has a lease."""
    lease_id = models.UUIDField(null=True)
    currency = models.CharField(max_length=3)
    hold_nanos = models.BigIntegerField()
    captured_nanos = models.BigIntegerField(default=0)
    left_nanos = models.BigIntegerField()
    """What of the hold is neither charged nor given back."""

    class Meta:
        indexes = [models.Index(fields=["tenant_id", "left_nanos"], name="spending_held")]

    def __str__(self) -> str:
        return f"{self.bid_id} {self.left_nanos}"


class SpendingVolumeRow(models.Model):
    """Whose a volume is: what is charged for it is spent by whoever made it."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    volume_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField()
    subscriber_id = models.UUIDField()
    user_id = models.UUIDField(null=True)

    def __str__(self) -> str:
        return str(self.volume_id)


class SpendingDayRow(models.Model):
    """What one lease was charged for its use in windows that began on one UTC day.

    Or one volume for what was kept in it on that day: then bid_id and lease_id are null.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    key = models.CharField(max_length=60, primary_key=True)
    """`<bid or volume id>:<day>`; of a volume `:<currency>` behind it."""
    day = models.DateField()
    bid_id = models.UUIDField(null=True)
    lease_id = models.UUIDField(null=True)
    volume_id = models.UUIDField(null=True)
    tenant_id = models.UUIDField()
    subscriber_id = models.UUIDField()
    user_id = models.UUIDField(null=True)
    project = models.CharField(max_length=63)
    workload_kind = models.CharField(max_length=64)
    gpu_model = models.CharField(max_length=100)
    currency = models.CharField(max_length=3)
    spent_nanos = models.BigIntegerField()
    gpu_millis = models.BigIntegerField()

    class Meta:
        indexes = [
            models.Index(fields=["tenant_id", "day"], name="spending_by_day"),
            models.Index(fields=["day"], name="spending_of_all_by_day"),
        ]

    def __str__(self) -> str:
        return self.key


class SpendingReadRow(models.Model):
    """Up to where an organisation's spending is counted: its last draw, and what touched it last.

    drawn: number of the last draw of which all is in the rows. pending: of a bid that is not.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    tenant_id = models.UUIDField(primary_key=True)
    drawn = models.BigIntegerField(default=0)
    pending = models.BigIntegerField(default=0)
    touched = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.drawn}"


class SpendingBudgetRow(models.Model):
    """A spending budget as it was last set, and as it was last noted."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    budget_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField(db_index=True)
    title = models.CharField(max_length=100)
    scope = models.CharField(max_length=8)
    subject = models.CharField(max_length=64)
    amount_nanos = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    period = models.CharField(max_length=8)
    roll_over = models.CharField(max_length=10)
    unused_ppm = models.PositiveIntegerField()
    thresholds = models.JSONField()
    """[{at_ppm, action}], as they were given."""
    zone = models.CharField(max_length=64)
    since = models.DateTimeField()
    """When it was first set."""
    set_at = models.DateTimeField()
    set_by = models.UUIDField(null=True)
    ended_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.title} {self.amount_nanos}"


class SpendingGrantRow(models.Model):
    """A grant that raises a budget for a while. state: `asked`, `approved` or `declined`."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    grant_id = models.UUIDField(primary_key=True)
    budget_id = models.UUIDField(db_index=True)
    tenant_id = models.UUIDField()
    money_nanos = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    starts_at = models.DateTimeField()
    until = models.DateTimeField()
    why = models.CharField(max_length=500)
    alone = models.BooleanField()
    state = models.CharField(max_length=8)
    asked_by = models.UUIDField()
    asked_at = models.DateTimeField()
    decided_by = models.UUIDField(null=True)
    decided_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.grant_id} {self.state}"


class SpendingCrossingRow(models.Model):
    """A threshold that a budget came to in a period."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    key = models.CharField(max_length=120, primary_key=True)
    budget_id = models.UUIDField(db_index=True)
    tenant_id = models.UUIDField()
    period_starts_at = models.DateTimeField()
    at_ppm = models.PositiveIntegerField()
    action = models.CharField(max_length=6)
    used_nanos = models.BigIntegerField()
    limit_nanos = models.BigIntegerField()
    at = models.DateTimeField()

    def __str__(self) -> str:
        return self.key


class ComparisonRow(models.Model):
    """What GPUs of a model cost elsewhere, as the platform said it. Everybody may see it."""

    key = models.CharField(max_length=210, primary_key=True)
    gpu_model = models.CharField(max_length=200)
    currency = models.CharField(max_length=3)
    cloud_nanos_per_gpu_hour = models.BigIntegerField(null=True)
    purchase_nanos = models.BigIntegerField(null=True)
    years = models.PositiveIntegerField()
    utilisation_ppm = models.PositiveIntegerField()
    running_nanos_per_gpu_hour = models.BigIntegerField(null=True)
    dedicated_nanos_per_gpu_hour = models.BigIntegerField(null=True)
    source = models.CharField(max_length=200)
    set_by = models.UUIDField(null=True)
    set_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.key
