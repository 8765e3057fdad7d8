"""One running installation for each event store, shared by all journeys on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.esdb_protocol.process import ServerProcess
from tests.journeys.installation import Installation
from tests.moto_cloud.server import MotoCloud

STORES = [
    pytest.param(store, marks=pytest.mark.xdist_group(f"journeys-{store}"))
    for store in ("postgres", "esdb-protocol")
]
"""Each store's journeys run on one worker, so that there is one installation to each."""

FIRST_STORE = [STORES[0], pytest.param("esdb-protocol", marks=[*STORES[1].marks, pytest.mark.soak])]
"""For a long journey that other journeys, and the contract of stores, cover on the second."""


@pytest.fixture
def tmp_path(work_folder: Path) -> Path:
    """In place of pytest's own: leased work runs in every journey."""
    return work_folder


@pytest.fixture(scope="package")
def cloud() -> Iterator[MotoCloud]:
    """EC2 on loopback."""
    cloud = MotoCloud()
    cloud.start()
    yield cloud
    cloud.stop()


@pytest.fixture(scope="package", params=STORES)
def market(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cloud: MotoCloud
) -> Iterator[Installation]:
    """A served market, with its people and nothing listed.

    It ends with the last journey: at rest it would still take its share of the processor from all
    tests that follow.
    """
    folder = tmp_path_factory.mktemp("market")
    settings = {
        "OFFPEAK_BURST_CLOUD": "ec2",
        "OFFPEAK_EC2_IMAGE_ID": "ami-00000000",
        "OFFPEAK_EC2_ENDPOINT_URL": cloud.url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    server = None
    if request.param == "esdb-protocol":
        server = ServerProcess(folder / "events.journal")
        settings["EVENTSTORE_URL"] = server.uri
    market = Installation(folder / "home", settings)
    try:
        market.found()
        market.start_all()
        yield market
    finally:
        market.end_all()
        if server is not None and server.running:
            server.kill()
