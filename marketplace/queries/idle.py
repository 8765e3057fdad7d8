"""What is asked of leases by whoever looks whether they are idle."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from ledger.turns import behind
from marketplace.models.leases import LeaseRow


@dataclass(frozen=True, slots=True)
class RunningLease:
    """A lease whose work runs, as far as its idleness is concerned."""

    lease_id: UUID
    bid_id: UUID
    tenant_id: UUID
    state: str
    work_began_at: datetime | None


def running_leases(
    after: tuple[UUID] | None,
    limit: int,
    *,
    rules: QuerySet[Any],
    told: QuerySet[Any],
) -> list[RunningLease]:
    """Return active leases behind one, by id: of these bids or tenants, or these themselves.

    rules: ids of bids and tenants. told: ids of leases.
    """
    wanted = Q(bid_id__in=rules) | Q(tenant_id__in=rules) | Q(lease_id__in=told)
    rows = LeaseRow.objects.filter(wanted, behind(after, "lease_id"), state="active")
    return [running(row) for row in rows.order_by("lease_id")[:limit]]


def running(row: LeaseRow) -> RunningLease:
    """Return what is asked of a row."""
    return RunningLease(row.lease_id, row.bid_id, row.tenant_id, row.state, row.work_began_at)
