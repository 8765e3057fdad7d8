"""Read model of work that waits for money. Only `projections.bids` writes it."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class MoneyWaitRow(models.Model):
    """What is to follow a bid, and is placed once its account covers it.

    chain_id: the first bid of the chain. lease_id: the bid's lease, which is over; null: it had
    none. needs_nanos: what the next bid sets aside. until: from when on nothing follows any more.
    budget: which budget of the organisation has no room for it, and opens_at: when its next period
    begins; empty: the account has not the money.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    bid_id = models.UUIDField(primary_key=True)
    chain_id = models.UUIDField(db_index=True)
    lease_id = models.UUIDField(null=True)
    tenant_id = models.UUIDField(db_index=True)
    subscriber_id = models.UUIDField()
    account_id = models.UUIDField(db_index=True)
    needs_nanos = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    since = models.DateTimeField(db_index=True)
    until = models.DateTimeField()
    budget = models.CharField(max_length=100, default="")
    opens_at = models.DateTimeField(null=True)

    class Meta:
        app_label = "marketplace"

    def __str__(self) -> str:
        return f"{self.bid_id} since {self.since}"
