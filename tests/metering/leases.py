"""Rows of a lease that runs, as the market's projections would have written them."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

from django.utils import timezone

from marketplace.models.leases import LeaseRow, LeaseShareRow


def lease_row(*, tenant_id: UUID, owner_id: UUID) -> LeaseRow:
    """Return the row of a lease of one GPU of one host."""
    now = timezone.now()
    return LeaseRow.objects.create(
        lease_id=uuid4(),
        bid_id=uuid4(),
        market="main",
        tenant_id=tenant_id,
        subscriber_id=uuid4(),
        owner_ids=[owner_id],
        host_ids=[uuid4()],
        gpu_model="H100-80GB",
        gpu_uuids=["GPU-a"],
        gpus=1,
        state="active",
        starts_at=now,
        ends_at=now + timedelta(hours=1),
        due_at=now + timedelta(hours=1),
        price_nanos_per_gpu_hour=1,
        currency="USD",
        service_class="on-demand",
        workload_kind="train",
        cost_centre="",
        burst=False,
        notice_seconds=0,
        reclaim_fee_ppm=0,
        granted_at=now,
        version=1,
    )


def share_row(lease: LeaseRow, *, phase: str) -> LeaseShareRow:
    """Return the row of what its host gives to a lease."""
    return LeaseShareRow.objects.create(
        key=f"{lease.lease_id}/{lease.host_ids[0]}",
        lease_id=lease.lease_id,
        host_id=lease.host_ids[0],
        offer_id=uuid4(),
        owner_id=lease.owner_ids[0],
        tenant_id=lease.tenant_id,
        gpu_uuids=lease.gpu_uuids,
        phase=phase,
        starts_at=lease.starts_at,
        ends_at=lease.ends_at,
        workload={},
    )
