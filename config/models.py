"""The read model of the site's own: the market's tape. Only `tape` writes it."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class TapeRow(models.Model):
    """One line of the tape: what happened, for everybody, without names of anyone."""

    position = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField()
    text = models.CharField(max_length=200)
    gpu_model = models.CharField(max_length=64)
    """Empty where the line is not about one model."""
    price_nanos_per_gpu_hour = models.BigIntegerField(null=True)
    currency = models.CharField(max_length=3)
    round_id = models.UUIDField(null=True)
    """The round that decided it; everybody may look at it."""

    class Meta:
        app_label = "site"

    def __str__(self) -> str:
        return self.text


class LoopRun(models.Model):
    """How a loop is doing. Only whoever holds the loop writes it; no event tells it."""

    name = models.CharField(max_length=64, primary_key=True)
    process = models.CharField(max_length=200)
    """Where it runs: a program's words, its process, its host."""
    held_since = models.DateTimeField()
    passed_at = models.DateTimeField(null=True)
    """End of its last pass that went well."""
    took_ms = models.IntegerField(default=0)
    every_ms = models.IntegerField(default=0)
    """Longest time between two passes."""
    did = models.BigIntegerField(default=0)
    """How much it did since it was held."""
    failures = models.IntegerField(default=0)
    """Passes that failed since the last that went well."""
    error = models.CharField(max_length=500, default="")
    kernels = models.CharField(max_length=200, default="")
    """How far its process is with compiled kernels; empty: it decides by none."""
    rounds = models.CharField(max_length=200, default="")
    """How the last round is doing that was worked out beside it; empty: there was none."""

    class Meta:
        app_label = "site"

    def __str__(self) -> str:
        return self.name


class Wrote(models.Model):
    """A version of the program that has started on this database, and what it can read."""

    version = models.CharField(max_length=100, primary_key=True)
    kinds = models.JSONField()
    """Event types by name, each with its newest version."""
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        app_label = "site"

    def __str__(self) -> str:
        return self.version


class TapeSubjectRow(models.Model):
    """What a line was about, for lines that follow: the offer or lease by its id, without names."""

    NAMED_BY: ClassVar[tuple[str, ...]] = ("offer_id", "lease_id")

    subject_id = models.UUIDField(primary_key=True)
    gpus = models.CharField(max_length=80)
    """How many of which model."""
    gpu_model = models.CharField(max_length=64)

    class Meta:
        app_label = "site"

    def __str__(self) -> str:
        return self.gpus
