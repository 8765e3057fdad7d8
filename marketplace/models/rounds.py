"""Read models of what the engine decided: rounds, trades, prices. Nobody's name is in them.

They have no TENANT_COLUMNS: they belong to nobody and are shown to everybody who may see the
market, as the values that `queries.market` makes of them. Only `projections.rounds` writes them.
"""

from __future__ import annotations

from typing import Any

from django.db import models

from marketplace.domain.facts.values import gap_ppm


class RoundRow(models.Model):
    """One round that decided something."""

    round_id = models.UUIDField(primary_key=True)
    position = models.BigIntegerField(unique=True)
    market = models.CharField(max_length=64)
    lane = models.CharField(max_length=8)
    rule = models.CharField(max_length=32)
    through = models.BigIntegerField()
    bids = models.PositiveIntegerField()
    offers = models.PositiveIntegerField()
    grants = models.PositiveIntegerField()
    gpus = models.PositiveIntegerField()
    price_low_nanos = models.BigIntegerField()
    price_high_nanos = models.BigIntegerField()
    unmatched = models.JSONField()
    """How many bids were given each reason anew."""
    certificate = models.JSONField(null=True)
    """The fields of `domain.events.Certificate`; null in the instant lane and in old rounds.

    Of bids that were set aside only how many, and where there are none nothing.
    """
    at = models.DateTimeField()

    class Meta:
        app_label = "marketplace"
        indexes = [models.Index(fields=["market", "-position"], name="round_by_market")]

    def __str__(self) -> str:
        return f"{self.round_id} {self.grants}/{self.bids}"

    @property
    def certified(self) -> dict[str, Any] | None:
        """Return the certificate with its gap, None where that says nothing; None without one."""
        certificate: dict[str, Any] | None = self.certificate
        if certificate is None:
            return None
        welfare, bound = certificate["welfare_nanos"], certificate["bound_nanos"]
        weighed = welfare + certificate.get("weight_nanos", 0)
        gap = gap_ppm(worth_nanos=weighed, bound_nanos=bound)
        return {"aside": 0, **certificate, "gap_ppm": gap}


class TradeRow(models.Model):
    """One grant on the tape."""

    position = models.BigIntegerField(primary_key=True)
    round_id = models.UUIDField(null=True)
    """The round that granted it; null until rows of older versions are rebuilt."""
    market = models.CharField(max_length=64)
    lane = models.CharField(max_length=8)
    gpu_model = models.CharField(max_length=64)
    gpus = models.PositiveIntegerField()
    price_nanos_per_gpu_hour = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    source = models.CharField(max_length=8)
    at = models.DateTimeField()

    class Meta:
        app_label = "marketplace"
        indexes = [
            models.Index(fields=["market", "-position"], name="trade_by_market"),
            models.Index(fields=["round_id"], name="trade_by_round"),
        ]

    def __str__(self) -> str:
        return f"{self.gpus} {self.gpu_model} at {self.price_nanos_per_gpu_hour}"


class PriceRow(models.Model):
    """What one GPU model traded at in one hour.

    value_nanos: sum of price × GPU-time; over gpu_millis it is the mean price of the hour.
    """

    key = models.CharField(max_length=180, primary_key=True)
    """market/model/currency/hour."""
    market = models.CharField(max_length=64)
    gpu_model = models.CharField(max_length=64)
    currency = models.CharField(max_length=3)
    hour = models.DateTimeField()
    trades = models.PositiveIntegerField()
    gpus = models.PositiveIntegerField()
    gpu_millis = models.BigIntegerField()
    value_nanos = models.BigIntegerField()
    low_nanos = models.BigIntegerField()
    high_nanos = models.BigIntegerField()
    last_nanos = models.BigIntegerField()

    class Meta:
        app_label = "marketplace"
        indexes = [models.Index(fields=["market", "hour"], name="price_by_hour")]

    def __str__(self) -> str:
        return self.key
