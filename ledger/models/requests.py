"""What the API remembers of requests: answers already given, and how many came lately."""

from __future__ import annotations

from django.db import models


class RequestKey(models.Model):
    """An Idempotency-Key and the answer it got. Written in the transaction of the append.

    status: 0 while no answer is kept: the request was refused, or its outcome is not known yet.
    """

    tenant_id = models.UUIDField()
    route = models.CharField(max_length=200)
    key = models.CharField(max_length=200)
    body_sha256 = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(default=0)
    answer = models.TextField(default="")
    headers = models.JSONField(default=dict)
    kept_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant_id", "route", "key"], name="ledger_one_answer_per_key"
            )
        ]

    def __str__(self) -> str:
        return f"{self.route} {self.key}"


class TokenBucket(models.Model):
    """How many requests one caller may still make, in millionths of a request.

    An unlogged table: losing it in a crash only fills the buckets.
    """

    caller = models.CharField(max_length=80, primary_key=True)
    micros = models.BigIntegerField()
    filled_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.caller}: {self.micros}"
