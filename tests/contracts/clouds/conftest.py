"""The clouds that the contract is run on, each with a script of faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from bursting.clouds.ec2 import Ec2Cloud, Ec2Settings
from bursting.clouds.fake import FakeCloud
from bursting.clouds.faults import Faults
from bursting.clouds.port import CloudProvider, Instance
from bursting.domain.capacity import CloudOffer, GpuNeed, InstancePrice, InstanceSpec
from tests.moto_cloud.server import MotoCloud

NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
TAGS = {"offpeak:market": "site-a", "offpeak:bid": "bid-1"}
DEAR = InstancePrice(100_000_000_000)
CATALOGUE = [
    CloudOffer(
        cloud="fake",
        region="region-1",
        spec=InstanceSpec(instance_type=name, zone=zone, spot=spot),
        gpu_model=model,
        gpus=gpus,
        gpu_memory_mib=memory_mib,
        compute_capability=capability,
        nvlink=gpus > 1,
        price=InstancePrice(nanos // (4 if spot else 1)),
    )
    for name, model, gpus, memory_mib, capability, nanos in (
        ("one-l4", "L4", 1, 24_576, "8.9", 804_800_000),
        ("eight-h100", "H100", 8, 81_920, "9.0", 55_040_000_000),
    )
    for zone in ("zone-a", "zone-b")
    for spot in (False, True)
]


@dataclass
class Rig:
    """A cloud under test, and how it is made to fail."""

    cloud: CloudProvider
    faults: Faults

    def launch(
        self,
        *,
        token: str = "token-1",
        spec: InstanceSpec | None = None,
        tags: dict[str, str] | None = None,
        ttl: timedelta = timedelta(hours=2),
        environment: dict[str, str] | None = None,
        max_price: InstancePrice = DEAR,
    ) -> Instance:
        return self.cloud.launch(
            spec or self.spec(),
            token=token,
            tags=TAGS if tags is None else tags,
            ttl=ttl,
            max_price=max_price,
            environment=environment or {},
        )

    def spec(self, *, other_zone: bool = False, spot: bool = False) -> InstanceSpec:
        """Return a kind of instance that this cloud has; `other_zone` gives the same elsewhere."""
        offers = self.cloud.offers(GpuNeed(gpus=1, gpu_models=("L4",), spot=True))
        specs = [offer.spec for offer in offers if offer.spec.spot == spot]
        return specs[1 if other_zone else 0]

    def alive(self, token: str = "token-1") -> list[str]:
        return [
            instance.instance_id
            for instance in self.cloud.find(token=token)
            if instance.state in ("pending", "running")
        ]


@pytest.fixture
def moto_cloud() -> Iterator[MotoCloud]:
    server = MotoCloud()
    server.start()
    yield server
    server.stop()


def ec2(server: MotoCloud, *, attempts_max: int = 1, waits: list[float] | None = None) -> Ec2Cloud:
    return Ec2Cloud(
        Ec2Settings(
            image_id="ami-12345678",
            endpoint_url=server.url,
            access_key_id="test",
            secret_access_key="test",
            attempts_max=attempts_max,
        ),
        wait=([] if waits is None else waits).append,
    )


@pytest.fixture(params=["fake", "ec2"])
def rig(request: pytest.FixtureRequest) -> Rig:
    if request.param == "fake":
        fake = FakeCloud(catalogue=CATALOGUE, clock=lambda: NOON)
        return Rig(fake, fake.faults)
    server: MotoCloud = request.getfixturevalue("moto_cloud")
    return Rig(ec2(server), server.faults)
