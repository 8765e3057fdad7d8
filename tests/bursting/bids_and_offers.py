"""Bids that wait and clouds that offer, for the tests of overflow."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from bursting.domain.capacity import CloudOffer, GpuNeed, InstancePrice, InstanceSpec
from bursting.domain.spill import SpillRules, Waiting
from ledger.domain.ids import BidId, TenantId
from ledger.domain.money import Rate
from ledger.domain.parties import PLATFORM_ID

NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)
RULES = SpillRules()
PLATFORM = PLATFORM_ID

BID = Waiting(
    bid_id=BidId(UUID(int=1)),
    tenant_id=TenantId(UUID(int=2)),
    market="site-a",
    need=GpuNeed(gpus=1),
    labels=(),
    duration_seconds=3_600,
    earliest_start=NOON,
    deadline=NOON + DAY,
    limit=Rate(2_000_000_000),
    burst_allowed=True,
    is_open=True,
    since=NOON,
)


def cloud_offer(
    name: str = "one-l4",
    *,
    zone: str = "zone-a",
    model: str = "L4",
    gpus: int = 1,
    nanos: int = 804_800_000,
    spot: bool = False,
) -> CloudOffer:
    return CloudOffer(
        cloud="fake",
        region="region-1",
        spec=InstanceSpec(instance_type=name, zone=zone, spot=spot),
        gpu_model=model,
        gpus=gpus,
        gpu_memory_mib=24_576,
        compute_capability="8.9",
        nvlink=False,
        price=InstancePrice(nanos),
    )


def bid_for(**need: object) -> Waiting:
    return replace(BID, need=replace(BID.need, **need))  # type: ignore[arg-type]  # fields by name
