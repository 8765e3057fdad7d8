"""On which hosts the work of which leases runs now, for who connects to it."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from marketplace.models.leases import LeaseShareRow

RUNS = ("run", "warn")


def running(lease_ids: Collection[UUID]) -> set[tuple[UUID, UUID]]:
    """Return (lease, host) where an agent is to have the work of these leases running."""
    rows = LeaseShareRow.objects.filter(lease_id__in=set(lease_ids), phase__in=RUNS)
    return set(rows.values_list("lease_id", "host_id"))
