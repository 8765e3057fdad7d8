"""Which leases a host runs."""

from __future__ import annotations

from uuid import UUID

from ledger.domain.ids import LeaseId
from marketplace.models.leases import LeaseShareRow


def leases_running_on(host_id: UUID) -> list[LeaseId]:
    """Return the leases that a host's agent is to have running, in order."""
    rows = LeaseShareRow.objects.filter(host_id=host_id, phase__in=("run", "warn"))
    return [LeaseId(key) for key in rows.order_by("lease_id").values_list("lease_id", flat=True)]
