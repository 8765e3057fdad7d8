"""Read models of bids. Only `projections.bids` writes them."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class BidRow(models.Model):
    """One bid as its bidder sees it."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    bid_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField(db_index=True)
    subscriber_id = models.UUIDField()
    user_id = models.UUIDField(null=True)
    account_id = models.UUIDField()
    market = models.CharField(max_length=64)
    state = models.CharField(max_length=12, db_index=True)
    """`open`, `filled`, `cancelled` or `expired`."""
    reason = models.CharField(max_length=32)
    """Why an open bid is not matched, by the name of the first constraint that leaves too few
    GPUs (`eligibility.REASONS`); empty as long as nothing has been tried."""
    query = models.TextField()
    """What the GPUs must be, in the query language."""
    gpus = models.PositiveIntegerField()
    placement = models.CharField(max_length=16)
    duration_seconds = models.PositiveIntegerField()
    earliest_start = models.DateTimeField()
    deadline = models.DateTimeField()
    limit_nanos_per_gpu_hour = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    service_class = models.CharField(max_length=16)
    patience = models.CharField(max_length=12)
    workload_kind = models.CharField(max_length=64)
    command = models.JSONField()
    environment = models.JSONField()
    checkpoint_seconds = models.PositiveIntegerField(null=True)
    image = models.CharField(max_length=512, default="")
    """The container image it runs in, by its digest; empty: it is a process of the host."""
    inputs = models.UUIDField(null=True, db_index=True)
    """The folder that the work finds; null: none."""
    outputs = models.JSONField(default=list)
    """What of the work's folder is kept, as patterns."""
    fetch = models.CharField(max_length=1024, default="")
    """What the host fetches for the work; fetch_secret: the name of what is shown there."""
    fetch_secret = models.CharField(max_length=64, default="")
    secrets = models.JSONField(default=list)
    """Names of secrets that the work is handed; secret_variables: those that are variables too."""
    secret_variables = models.JSONField(default=list)
    volumes = models.JSONField(default=list)
    """What the work finds of its organisation's volumes: name, path, writable."""
    end_when_idle_seconds = models.PositiveIntegerField(null=True)
    """As it was placed; what holds by now is a rule of metering. Null: by no rule of its own."""
    project = models.CharField(max_length=63, default="")
    """The label by which spending is told apart; empty: none."""
    seeks = models.CharField(max_length=8, default="cheapest")
    moves = models.JSONField(default=list)
    """From which market to which it was handed on, and when: market, to, at."""
    cost_centre = models.CharField(max_length=64)
    burst_allowed = models.BooleanField()
    good_till = models.CharField(max_length=20, default="good-till-deadline")
    good_until = models.DateTimeField(null=True)
    gpus_min = models.PositiveIntegerField(null=True)
    """With fewer it would make do; null: with all it asks for only. So with the duration."""
    duration_min_seconds = models.PositiveIntegerField(null=True)
    budget_nanos = models.BigIntegerField(null=True)
    auto_extend_until = models.DateTimeField(null=True)
    """The lease is extended by itself until then; null: it is not."""
    repeat_until = models.DateTimeField(null=True)
    """The same is asked for again until then, whenever its lease is over; null: it is not."""
    resume = models.BooleanField(default=False)
    """What is left of a lease that was cut short is asked for again."""
    pausable = models.BooleanField(default=False)
    """Its work may be paused for others once it had its firm time, and goes on later."""
    pauses = models.PositiveIntegerField(default=0)
    """How often the work was paused before it; of a bid that asks for a rest."""
    done_seconds = models.PositiveIntegerField(default=0)
    """What of the work was done and safe before it, likewise."""
    chain_id = models.UUIDField(null=True, db_index=True)
    """The first bid of the chain of those that follow one another; null: none follows."""
    chain_number = models.PositiveIntegerField(default=1)
    continues_id = models.UUIDField(null=True)
    """The bid before it in the chain; null: it is the first."""
    resumes_lease_id = models.UUIDField(null=True)
    """The lease of which it asks for the rest; null: it asks for all of its time."""
    chain_ended = models.CharField(max_length=64, default="")
    """Why no bid follows it: a word of `renewals.ENDED`, or the code of a refusal."""
    lease_id = models.UUIDField(null=True)
    placed_at = models.DateTimeField()
    queued_at = models.DateTimeField()
    """When it took its place in the queue: placed or last amended."""
    ended_at = models.DateTimeField(null=True)
    ended_because = models.CharField(max_length=12, default="")
    """Of an expired bid: `deadline`, `good-till`, `not-at-once` or `not-covered`."""
    version = models.PositiveIntegerField()

    class Meta:
        app_label = "marketplace"
        indexes = [
            models.Index(fields=["tenant_id", "-placed_at"], name="bid_by_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.bid_id} {self.state}"


class RouteRow(models.Model):
    """A bid that several markets could serve, while it waits: for the loop that moves bids."""

    bid_id = models.UUIDField(primary_key=True)
    market = models.CharField(max_length=64)
    markets = models.JSONField()
    moves = models.PositiveIntegerField(default=0)
    since = models.DateTimeField(db_index=True)
    """When it came to its market, or that was last asked to hand it on."""

    class Meta:
        app_label = "marketplace"

    def __str__(self) -> str:
        return f"{self.bid_id} in {self.market}"
