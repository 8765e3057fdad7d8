"""Prices that were proposed for leases. Only `projections.prices` writes them."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import models


class PriceProposalRow(models.Model):
    """A price that one side of a lease proposed, and what became of it."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("of__contains",)

    proposal_id = models.UUIDField(primary_key=True)
    lease_id = models.UUIDField(db_index=True)
    tenant_id = models.UUIDField()
    """Who proposed it."""
    of = ArrayField(models.UUIDField())
    """Who has to agree: the consumer of the lease first, then its owners."""
    agreed_by = ArrayField(models.UUIDField())
    before_nanos = models.BigIntegerField()
    price_nanos = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    since = models.DateTimeField()
    answer_by = models.DateTimeField()
    why = models.CharField(max_length=400)
    state = models.CharField(max_length=12)
    """`open`, `agreed`, `declined`, `withdrawn`, `overtaken` (another was agreed)."""
    declined_why = models.CharField(max_length=400, default="")
    proposed_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        app_label = "marketplace"

    def __str__(self) -> str:
        return f"{self.proposal_id} {self.state}"

    def state_at(self, now: datetime) -> str:
        """Return its state; `lapsed` of one that nobody answered in time."""
        return "lapsed" if self.state == "open" and now >= self.answer_by else self.state

    def waits_for(self, tenant_id: UUID, *, now: datetime) -> bool:
        """Tell if an organisation is asked, and has not answered yet."""
        asked = tenant_id in self.of and tenant_id not in self.agreed_by
        return asked and self.state_at(now) == "open"
