"""The read model of the site's own: the market's tape. Only `tape` writes it."""

from __future__ import annotations

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

    class Meta:
        app_label = "site"

    def __str__(self) -> str:
        return self.text
