"""Read models of governance: the log of policies, where units stand, requests for quota.

Only `projections.quotas` writes them. The engine never reads them: it folds the policies itself.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class PolicyRow(models.Model):
    """One policy as it was set: who, when, what, why. tenant_id: whom it concerns; null: all."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    position = models.BigIntegerField(primary_key=True)
    market = models.CharField(max_length=64)
    kind = models.CharField(max_length=40)
    """The event's name without its app: `quota-set`, `listing-allowed`."""
    about = models.CharField(max_length=64)
    """The unit, cohort, person, request or override that it speaks of; empty: the whole market."""
    tenant_id = models.UUIDField(null=True)
    policy = models.JSONField()
    """The fields of the event, without tokens."""
    actor = models.CharField(max_length=120)
    why = models.TextField()
    at = models.DateTimeField()

    class Meta:
        app_label = "marketplace"
        indexes = [
            models.Index(fields=["market", "-position"], name="policy_by_market"),
            models.Index(fields=["about"], name="policy_about"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.about}"


class PolicyNodeRow(models.Model):
    """Where a cohort or business unit stands, and whose it is; null: nobody's in particular."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    key = models.CharField(max_length=110, primary_key=True)
    """market/node."""
    market = models.CharField(max_length=64)
    node = models.CharField(max_length=40)
    is_cohort = models.BooleanField()
    cohort = models.CharField(max_length=40, null=True)  # noqa: DJ001  # none is not ""
    tenant_id = models.UUIDField(null=True)
    placed_at = models.DateTimeField()

    class Meta:
        app_label = "marketplace"

    def __str__(self) -> str:
        return self.key


class QuotaRequestRow(models.Model):
    """A request for quota and what became of it."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    request_id = models.UUIDField(primary_key=True)
    market = models.CharField(max_length=64)
    tenant_id = models.UUIDField(db_index=True)
    subscriber_id = models.UUIDField()
    user_id = models.UUIDField(null=True)
    gpu_class = models.CharField(max_length=40)
    nominal = models.PositiveIntegerField()
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    why = models.TextField()
    state = models.CharField(max_length=10)
    """`open`, `approved`, `declined` or `taken-up`; an open one may have expired."""
    expires_at = models.DateTimeField()
    """When it can no longer be approved."""
    answer = models.TextField(default="")
    """Why it was declined."""
    token_id = models.UUIDField(null=True)
    token_expires_at = models.DateTimeField(null=True)
    asked_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)

    class Meta:
        app_label = "marketplace"
        indexes = [models.Index(fields=["market", "-asked_at"], name="quota_request_newest")]

    def __str__(self) -> str:
        return f"{self.request_id} {self.state}"
