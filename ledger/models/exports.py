"""Tables of exports: which were asked for, how far they are, where they were brought to."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class ExportRunRow(models.Model):
    """An export that the market makes. everything: of all accounts, for who sees them all."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    export_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField(db_index=True)
    everything = models.BooleanField()
    format = models.CharField(max_length=40)
    period = models.CharField(max_length=7)
    position = models.BigIntegerField()
    state = models.CharField(max_length=8, db_index=True)
    version = models.CharField(max_length=80)
    rows = models.BigIntegerField(null=True)
    sums = models.JSONField(default=dict)
    bytes = models.BigIntegerField(null=True)
    sha256 = models.CharField(max_length=64)
    words = models.CharField(max_length=200)
    asked_by = models.UUIDField()
    asked_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.format} of {self.period}, {self.state}"


class ExportProgress(models.Model):
    """How far an export is that is being made. No read model: whoever makes it writes it.

    rows, bytes: written so far. rows_expected: how many there will be.
    """

    export_id = models.UUIDField(primary_key=True)
    rows = models.BigIntegerField()
    rows_expected = models.BigIntegerField()
    bytes = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.rows} of {self.rows_expected}"


class ExportDeliveryRow(models.Model):
    """A closed month and where its exports were brought. words: why they are not there."""

    period = models.CharField(max_length=7, primary_key=True)
    position = models.BigIntegerField()
    target = models.CharField(max_length=400)
    delivered_at = models.DateTimeField(null=True)
    words = models.CharField(max_length=300)
    failed_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.period} to {self.target}"


class ExportPlanRow(models.Model):
    """A plan of exports and how far it is. every: `day` or `month`. ended_at: null while it holds.

    due, period, position: the newest that it was due for. brought: by month, the position of what
    is there. words, failed_at: why the newest is not.
    """

    plan_id = models.UUIDField(primary_key=True)
    every = models.CharField(max_length=8)
    formats = models.JSONField()
    folder = models.CharField(max_length=60)
    by_user = models.UUIDField()
    at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    due = models.CharField(max_length=40)
    period = models.CharField(max_length=7)
    position = models.BigIntegerField(null=True)
    brought = models.JSONField(default=dict)
    brought_at = models.DateTimeField(null=True)
    target = models.CharField(max_length=400)
    words = models.CharField(max_length=300)
    failed_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"each {self.every} to {self.folder}"


class GlMappingRow(models.Model):
    """How the general ledger calls our accounts, from an event on: exports take the last one that
    was set up to their position."""

    position = models.BigIntegerField(primary_key=True)
    accounts = models.JSONField()
    company = models.CharField(max_length=40)
    document_type = models.CharField(max_length=40)
    by_user = models.UUIDField()
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.company}, since event {self.position}"
