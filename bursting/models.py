"""Read models of overflow. Written by `projections.py`, read by `queries.py`."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from bursting.domain.home_moves import ENDED, REFUSED


class BurstInstanceRow(models.Model):
    """One instance, or try for one, as it stands."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("owner_id", "tenant_id")

    instance_id = models.UUIDField(primary_key=True)
    bid_id = models.UUIDField(db_index=True)
    tenant_id = models.UUIDField()
    """Who bid."""
    owner_id = models.UUIDField()
    """The platform, which rents it."""
    market = models.CharField(max_length=64)
    cloud = models.CharField(max_length=64)
    region = models.CharField(max_length=64)
    zone = models.CharField(max_length=64)
    instance_type = models.CharField(max_length=64)
    spot = models.BooleanField()
    gpu_model = models.CharField(max_length=96)
    gpus = models.PositiveIntegerField()
    attempt = models.PositiveIntegerField()
    price_nanos = models.BigIntegerField()
    """The cloud's, per GPU-hour."""
    floor_nanos = models.BigIntegerField()
    """What it is listed at, per GPU-hour."""
    worst_nanos = models.BigIntegerField()
    """What it can cost at most."""
    currency = models.CharField(max_length=3)
    state = models.CharField(max_length=16, db_index=True)
    reason = models.CharField(max_length=64, default="")
    """Why it was refused or ended; empty while it is wanted."""
    detail = models.TextField(default="")
    """The reason in words, where the word alone does not tell."""
    cloud_ref = models.CharField(max_length=128, default="")
    host_id = models.UUIDField(null=True)
    offer_id = models.UUIDField(null=True)
    intended_at = models.DateTimeField(db_index=True)
    launched_at = models.DateTimeField(null=True)
    listed_at = models.DateTimeField(null=True)
    over_at = models.DateTimeField(null=True)
    cost_nanos = models.BigIntegerField(null=True)

    def __str__(self) -> str:
        return f"{self.instance_id} {self.state}"


class StrayRow(models.Model):
    """A machine that ran outside the record, as it stands.

    tenant_id: of the bid that its tags name, where they name one. cost_nanos: besides what the
    instance on record had booked; null until it has ended.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("owner_id", "tenant_id")

    stray_id = models.UUIDField(primary_key=True)
    owner_id = models.UUIDField()
    tenant_id = models.UUIDField(null=True)
    bid_id = models.UUIDField(null=True)
    instance_id = models.UUIDField(null=True)
    cloud = models.CharField(max_length=64)
    cloud_ref = models.CharField(max_length=128)
    instance_type = models.CharField(max_length=64)
    zone = models.CharField(max_length=64)
    spot = models.BooleanField()
    gpus = models.PositiveIntegerField()
    hourly_nanos = models.BigIntegerField(null=True)
    """What the whole machine costs per hour; null where the cloud does not tell."""
    currency = models.CharField(max_length=3)
    launched_at = models.DateTimeField()
    found_at = models.DateTimeField(db_index=True)
    over_at = models.DateTimeField(null=True)
    cost_nanos = models.BigIntegerField(null=True)

    def __str__(self) -> str:
        return f"{self.cloud} {self.cloud_ref}"


class BurstWaitRow(models.Model):
    """Why a bid that may burst was not served by a cloud when it was last looked at."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    bid_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField()
    reason = models.CharField(max_length=64)
    words = models.TextField()
    tries = models.PositiveIntegerField()
    next_at = models.DateTimeField()
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.bid_id} {self.reason}"


class HomeMoveRow(models.Model):
    """A try to move the work of one lease home, as it stands.

    TENANT_COLUMNS: also the platform's, which rents the machine. home_lease_id: the place at home,
    once there is one. saved_nanos: null while it is under way, and where the work stayed.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("owner_id", "tenant_id")

    bid_id = models.UUIDField(primary_key=True)
    """Of the bid for the place at home."""
    lease_id = models.UUIDField(db_index=True)
    instance_id = models.UUIDField(db_index=True)
    tenant_id = models.UUIDField()
    owner_id = models.UUIDField()
    number = models.PositiveIntegerField()
    gpus = models.PositiveIntegerField()
    seconds = models.PositiveIntegerField()
    """How long the place at home is for."""
    limit_nanos = models.BigIntegerField()
    """The most per GPU-hour at which it pays."""
    quoted_nanos = models.BigIntegerField()
    """What local supply asked per GPU-hour when it was decided."""
    cloud_nanos = models.BigIntegerField()
    """What the rest of the lease costs in the cloud."""
    move_nanos = models.BigIntegerField()
    """What the move costs: time at home besides that rest, at the price quoted, and egress."""
    saved_nanos = models.BigIntegerField(null=True)
    currency = models.CharField(max_length=3)
    safe_at = models.DateTimeField()
    starts_at = models.DateTimeField()
    asked_at = models.DateTimeField(db_index=True)
    ended_at = models.DateTimeField(null=True, db_index=True)
    moved = models.BooleanField(default=False)
    reason = models.CharField(max_length=64, default="")
    """How it ended: a word of `home_moves.ENDED`, or the code of a refusal; empty: under way."""
    home_lease_id = models.UUIDField(null=True)

    def __str__(self) -> str:
        return f"{self.lease_id} {self.reason or 'under way'}"

    @property
    def words(self) -> str:
        """Return how it ended, as a sentence; empty while it is under way."""
        return ENDED.get(self.reason, REFUSED) if self.reason else ""


class WaitingBidRow(models.Model):
    """An open bid that allows bursting: what the spill loop looks through. Not for people."""

    bid_id = models.UUIDField(primary_key=True)
    placed_at = models.DateTimeField(db_index=True)
    earliest_start = models.DateTimeField()
    latest_start = models.DateTimeField()
    """The deadline less the duration."""
    duration_seconds = models.PositiveIntegerField()

    def __str__(self) -> str:
        return str(self.bid_id)
