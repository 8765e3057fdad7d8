"""Read models of leases. Only `projections.leases` writes them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models

from ledger.domain.agreed_rates import RateSince, cost, rate_at
from ledger.domain.money import Money, Rate
from ledger.domain.span import Window


class LeaseRow(models.Model):
    """One lease as its consumer and its owners see it."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id", "owner_ids__contains")

    lease_id = models.UUIDField(primary_key=True)
    bid_id = models.UUIDField(db_index=True)
    market = models.CharField(max_length=64)
    tenant_id = models.UUIDField(db_index=True)
    subscriber_id = models.UUIDField()
    user_id = models.UUIDField(null=True)
    owner_ids = ArrayField(models.UUIDField())
    host_ids = ArrayField(models.UUIDField())
    gpu_model = models.CharField(max_length=64)
    gpu_uuids = ArrayField(models.CharField(max_length=96))
    gpus = models.PositiveIntegerField()
    state = models.CharField(max_length=16, db_index=True)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    stop_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(db_index=True)
    """When the clock next has something to say: start, deadline, or end of a grace."""
    price_nanos_per_gpu_hour = models.BigIntegerField()
    """What it was granted at."""
    currency = models.CharField(max_length=3)
    later_prices = models.JSONField(default=list, db_default=[])
    """What was agreed since, in order: since, nanos (per GPU-hour)."""
    service_class = models.CharField(max_length=16)
    workload_kind = models.CharField(max_length=64)
    cost_centre = models.CharField(max_length=64)
    burst = models.BooleanField()
    notice_seconds = models.PositiveIntegerField()
    grace_seconds = models.PositiveIntegerField(default=15)
    """What its work has between the signal to stop and the kill, on all hosts."""
    reclaim_fee_ppm = models.PositiveIntegerField()
    reclaim_schedule = models.JSONField(default=list)
    """By share: host_id, gpus, steps of notice_seconds and fee_ppm with the least notice first."""
    resale_state = models.CharField(max_length=16, default="")
    """Of the rest of the lease: empty, `first-refusal`, `open`, `sold`, or `kept` again."""
    resale = models.JSONField(null=True)
    """since, floor_nanos, lease_min_seconds, opens_at; sold_to once it is sold."""
    extension = models.JSONField(null=True)
    """The last that was asked for: ends_at, at; answer is `asked`, `granted`, `declined` (by the
    engine) or `refused` (before it was asked: no money); reason: `extension.EXTENSION_REASONS`."""
    maintenance = models.JSONField(default=dict)
    """Of its hosts that it would run into, by host and window: host_id, maintenance_id, starts_at,
    reason, announced_at."""
    saved = models.JSONField(default=dict)
    """The last checkpoint of each host that reported one; the consumer's under an empty name."""
    checkpoint_at = models.DateTimeField(null=True)
    """Up to when the work is safe; null: nobody reported a checkpoint."""
    checkpoint_seconds = models.PositiveIntegerField(null=True)
    inputs = models.UUIDField(null=True, db_index=True)
    """The folder that its work finds; null: none."""
    fetch = models.CharField(max_length=1024, default="")
    """What its host fetches for its work; empty: nothing."""
    outputs = models.JSONField(default=list)
    """What of its work's folder is kept, as patterns."""
    volumes = models.JSONField(default=list)
    """What its work finds of its organisation's volumes: name, path, writable."""
    outputs_failed = models.JSONField(default=dict)
    """By host, and volume after it, the last it said of files that could not be kept: reason,
    final, at."""
    sla = models.JSONField(null=True)
    """What its owners promised: `parts`, and once it is paid what came of it: `results`."""
    kept_seconds = models.PositiveIntegerField(null=True)
    lost_seconds = models.PositiveIntegerField(null=True)
    """Of work that others cut short: how much of the lease is safe, how much was done in vain."""
    resold_lease_id = models.UUIDField(null=True)
    """The lease whose rest this one is."""
    granted_at = models.DateTimeField()
    work_began_at = models.DateTimeField(null=True)
    """When the work started on the first of its hosts."""
    activated_at = models.DateTimeField(null=True)
    """When it ran on all of them."""
    closed_at = models.DateTimeField(null=True)
    close_reason = models.PositiveSmallIntegerField(null=True)
    version = models.PositiveIntegerField()

    class Meta:
        app_label = "marketplace"
        indexes = [
            models.Index(fields=["tenant_id", "-granted_at"], name="lease_by_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.lease_id} {self.state}"

    @property
    def least_notice(self) -> timedelta:
        """Return the least notice of a reclaim."""
        return timedelta(seconds=self.notice_seconds)

    def price_at(self, moment: datetime) -> Rate:
        """Return the price of use that begins then."""
        return rate_at(Rate(self.price_nanos_per_gpu_hour, self.currency), self.agreed, moment)

    @property
    def agreed(self) -> list[RateSince]:
        """Return what was agreed of its price since it was granted, in order."""
        return [
            RateSince(datetime.fromisoformat(each["since"]), Rate(each["nanos"], self.currency))
            for each in self.later_prices
        ]

    def cost_of(self, since: datetime, millis: int) -> Money:
        """Return what all its GPUs cost for so many milliseconds from a moment on."""
        if millis <= 0:
            return Money(0, self.currency)
        first = Rate(self.price_nanos_per_gpu_hour, self.currency)
        window = Window(since, since + timedelta(milliseconds=millis))
        return cost(first, self.agreed, window, self.gpus)

    @property
    def maintenance_ahead(self) -> list[dict[str, Any]]:
        """Return the windows that it would run into, the next first."""
        if self.closed_at is not None:
            return []
        told = [
            each
            | {
                "starts_at": datetime.fromisoformat(each["starts_at"]),
                "announced_at": datetime.fromisoformat(each["announced_at"]),
            }
            for each in self.maintenance.values()
        ]
        return sorted(told, key=lambda each: each["starts_at"])


class LeaseShareRow(models.Model):
    """What one host gives to one lease: the agent's view."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("owner_id", "tenant_id")
    READ_BY: ClassVar[str] = "lease_id"
    """An event of a lease changes the rows of all its hosts."""

    key = models.CharField(max_length=80, primary_key=True)
    lease_id = models.UUIDField(db_index=True)
    host_id = models.UUIDField(db_index=True)
    offer_id = models.UUIDField(db_index=True)
    owner_id = models.UUIDField()
    tenant_id = models.UUIDField()
    gpu_uuids = ArrayField(models.CharField(max_length=96))
    phase = models.CharField(max_length=8, db_index=True)
    """`wait`, `run`, `warn`, `stop` or `over`: what the host's agent is to do."""
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    stop_at = models.DateTimeField(null=True)
    grace_seconds = models.PositiveIntegerField(default=15)
    workload = models.JSONField()

    class Meta:
        app_label = "marketplace"

    def __str__(self) -> str:
        return f"{self.key} {self.phase}"
