"""Read models of the supply side. Only `projections` writes them."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models


class HostRow(models.Model):
    """A host as its owner sees it."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    host_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField(db_index=True)
    title = models.CharField(max_length=120)
    market = models.CharField(max_length=64)
    region = models.CharField(max_length=64)
    labels = models.JSONField()
    source = models.CharField(max_length=8)
    state = models.CharField(max_length=8)
    """`new` until the agent reported GPUs, then `known`; `retired` for good."""
    gpus = models.JSONField()
    """What the agent reported, by UUID; as `listings.domain.events.Gpu`."""
    gpu_count = models.PositiveIntegerField()
    registered_at = models.DateTimeField()
    reported_at = models.DateTimeField(null=True)
    silent_since = models.DateTimeField(null=True)
    """When its agent was heard last, where nothing of it is leased for that; null: it is heard."""
    unfit = models.JSONField(default=dict)
    """GPUs that are not leased for now: {uuid: {reason, detail, at}}."""
    sandbox = models.CharField(max_length=40, default="")
    """The level at which its agent keeps leased work apart; empty: it did not say."""
    enforces = models.JSONField(default=dict)
    """What is kept from work, and what keeps it; empty where nothing does."""
    abilities = models.JSONField(default=list)
    """What work may ask of it beyond a command."""
    at_host = models.CharField(max_length=8, default="all")
    """What its owner lets be done, by the switch at the host: a `listings.domain.events.Taking`."""
    on_market = models.CharField(max_length=8, default="all")
    """The same by the switch on the market; the stricter one holds."""
    maintenance = models.JSONField(default=dict)
    """Its windows that were not cancelled: {id: {starts_at, ends_at, gpu_uuids, reason, at}}."""
    version = models.PositiveIntegerField()

    class Meta:
        indexes = [
            models.Index(fields=["tenant_id", "-registered_at"], name="host_by_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.title} {self.state}"


class HealthSpanRow(models.Model):
    """What was the matter with a host, or a GPU of it, from when until when: its health history."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    key = models.CharField(max_length=64, primary_key=True)
    host_id = models.UUIDField()
    tenant_id = models.UUIDField()
    gpu_uuid = models.CharField(max_length=200, blank=True)
    """Empty: the whole host."""
    kind = models.CharField(max_length=24)
    words = models.CharField(max_length=500, blank=True)
    source = models.CharField(max_length=8)
    """Who said so: `agent`, `owner`, or `market`, which judged by what it heard or not."""
    since = models.DateTimeField()
    until = models.DateTimeField(null=True)
    """Null: it still is. Of what has no length, such as a diagnostic, the same as `since`."""
    relapses = models.PositiveSmallIntegerField(default=0)

    class Meta:
        indexes = [models.Index(fields=["host_id", "-since", "key"], name="span_by_host")]

    def __str__(self) -> str:
        return f"{self.host_id} {self.gpu_uuid} {self.kind}"


class HealthBookRow(models.Model):
    """Which spans of a host are open, and which are kept; the projection's own."""

    host_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField()
    open = models.JSONField(default=dict)
    kept = models.JSONField(default=list)

    def __str__(self) -> str:
        return str(self.host_id)


class OfferRow(models.Model):
    """An offer as its owner sees it.

    Windows are kept as the owner said them, one-off and weekly: how a weekly rule falls is
    worked out when asked (`queries.windows_of_row`), so no horizon has to be moved along.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    offer_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField(db_index=True)
    host_id = models.UUIDField(db_index=True)
    market = models.CharField(max_length=64)
    region = models.CharField(max_length=64)
    source = models.CharField(max_length=8)
    state = models.CharField(max_length=12)
    gpu_uuids = ArrayField(models.CharField(max_length=200))
    gpu_models = ArrayField(models.CharField(max_length=200))
    """The different models among the GPUs, in order."""
    gpus = models.JSONField()
    gpu_count = models.PositiveIntegerField()
    floor_nanos_per_gpu_hour = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    lease_min_seconds = models.PositiveIntegerField()
    notice_seconds = models.PositiveIntegerField()
    grace_seconds = models.PositiveIntegerField(default=15)
    cleaning_seconds = models.PositiveIntegerField(default=0)
    reclaim_fee_ppm = models.PositiveIntegerField()
    reclaim_steps = models.JSONField(default=list)
    """What a reclaim with more notice pays; as `listings.domain.events.ReclaimStep`."""
    sla = models.JSONField(null=True)
    """What is promised of its service; as `listings.domain.sla_events.SlaTerms`."""
    workload_kinds = ArrayField(models.CharField(max_length=64))
    isolation = models.CharField(max_length=12)
    division = models.JSONField(null=True)
    """How each card is divided into shares; as `listings.domain.events.Division`."""
    by_demand = models.JSONField(null=True)
    """The forms that its owner allows; as `listings.domain.events.ByDemand`."""
    chosen = models.JSONField(null=True)
    """Why it is in its form, if it was in another; as `listings.domain.events.Chosen`."""
    succeeded_by = models.UUIDField(null=True)
    """The offer that took its place in another form."""
    labels = models.JSONField()
    windows = models.JSONField()
    weekly = models.JSONField(null=True)
    reserved_for = models.UUIDField(null=True)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True)
    """End of the last window; null for a weekly rule without a last day."""
    published_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    """When it was withdrawn or found over."""
    version = models.PositiveIntegerField()

    class Meta:
        indexes = [
            models.Index(fields=["tenant_id", "-published_at"], name="offer_by_tenant"),
            models.Index(fields=["state", "ends_at"], name="offer_by_state"),
        ]

    def __str__(self) -> str:
        return f"{self.offer_id} {self.state}"


class SoldDayRow(models.Model):
    """GPU-time of all owners that was charged for, by the UTC day it started on.

    Nobody's own: what share of listed time is sold is a figure of the whole market.
    """

    day = models.DateField(primary_key=True)
    gpu_ms = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.day} {self.gpu_ms}"
