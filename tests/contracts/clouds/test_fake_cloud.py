"""What the fake cloud does beyond the common contract: its own clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bursting.clouds.fake import FakeCloud
from bursting.domain.capacity import CloudOffer, InstancePrice, InstanceSpec

NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
OFFER = CloudOffer(
    cloud="fake",
    region="region-1",
    spec=InstanceSpec(instance_type="one-l4", zone="zone-a"),
    gpu_model="L4",
    gpus=1,
    gpu_memory_mib=24_576,
    compute_capability="8.9",
    nvlink=False,
    price=InstancePrice(804_800_000),
)


def test_an_instance_ends_by_itself_after_its_ttl() -> None:
    now = [NOON]
    cloud = FakeCloud(catalogue=[OFFER], clock=lambda: now[0])
    instance_id = cloud.launch(
        OFFER.spec,
        token="t",
        tags={},
        ttl=timedelta(hours=2),
        max_price=OFFER.price,
        environment={},
    ).instance_id

    now[0] = NOON + timedelta(minutes=119)
    before = cloud.describe([instance_id])[0].state
    now[0] = NOON + timedelta(hours=2)
    after = cloud.describe([instance_id])[0].state

    assert (before, after) == ("running", "terminated")


def test_calls_are_counted() -> None:
    cloud = FakeCloud(catalogue=[OFFER], clock=lambda: NOON)

    cloud.find()
    cloud.find()

    assert cloud.faults.calls == {"find": 2}
