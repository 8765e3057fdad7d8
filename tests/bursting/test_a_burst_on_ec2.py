"""The whole way on EC2's own API, over HTTP: from a bid to a machine and back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from bursting.clouds.ec2 import Ec2Cloud, Ec2Settings
from bursting.reaper import ORPHAN_GRACE
from tests.bursting.bids_and_offers import RULES
from tests.bursting.market import Market
from tests.moto_cloud.server import MotoCloud


@pytest.fixture
def ec2_server() -> Iterator[MotoCloud]:
    server = MotoCloud()
    server.start()
    yield server
    server.stop()


def market_on(server: MotoCloud) -> Market:
    settings = Ec2Settings(
        image_id="ami-12345678",
        endpoint_url=server.url,
        access_key_id="test",
        secret_access_key="test",
        attempts_max=1,
    )
    market = Market()
    market.use(Ec2Cloud(settings, wait=lambda _seconds: None))
    return market


def running(server: MotoCloud, market: Market) -> list[str]:
    cloud = market.overflow.clouds["ec2"]
    return [i.instance_id for i in cloud.find() if i.state in ("pending", "running")]


def test_a_bid_bursts_to_ec2_and_comes_back(ec2_server: MotoCloud) -> None:
    market = market_on(ec2_server)
    ec2_server.faults.pending_polls = 1
    instance_id = market.spill()
    assert market.advance(instance_id).state == "provisioning"
    assert market.advance(instance_id).state == "provisioning"
    market.report_gpus(instance_id)
    assert market.advance(instance_id).state == "running"
    lease_id = market.grant(instance_id)
    market.later(hours=1)
    market.close(lease_id)
    market.later(seconds=RULES.drain_seconds)

    market.tick()
    market.tick()

    instance = market.instance(instance_id)
    assert (instance.state, instance.reason) == ("terminated", "lease-closed")
    assert running(ec2_server, market) == []
    assert instance.cost is not None
    assert market.cost() == instance.cost.nanos > 0
    (asked,) = ec2_server.asked("RunInstances")
    assert asked["ClientToken"] == instance.intent.token
    assert asked["InstanceType"] == "g6.xlarge"


def test_a_lost_answer_of_ec2_does_not_start_a_second_machine(ec2_server: MotoCloud) -> None:
    market = market_on(ec2_server)
    instance_id = market.spill()
    ec2_server.faults.fail("launch", when="after")
    market.tick()
    assert market.instance(instance_id).state == "intended"

    market.tick()

    assert market.instance(instance_id).state == "provisioning"
    assert len(ec2_server.asked("RunInstances")) == 2
    assert len(running(ec2_server, market)) == 1


def test_the_reaper_ends_what_ec2_runs_without_a_record(ec2_server: MotoCloud) -> None:
    market = market_on(ec2_server)
    instance_id = market.spill()
    ec2_server.faults.fail("launch", when="after")
    market.tick()
    market.later(seconds=RULES.boot_seconds)
    ec2_server.faults.fail("launch")
    market.tick()
    assert market.instance(instance_id).reason == "unavailable"
    (left,) = market.overflow.clouds["ec2"].find()

    # moto goes by the real clock: ours is set to when the grace is over there.
    market.now = left.launched_at + ORPHAN_GRACE + timedelta(seconds=1)

    assert market.reap().orphans_ended == (left.instance_id,)
    assert running(ec2_server, market) == []


def test_a_lack_of_capacity_at_ec2_leads_to_another_zone(ec2_server: MotoCloud) -> None:
    market = market_on(ec2_server)
    first = market.spill()
    zone = market.instance(first).intent.zone
    ec2_server.faults.room[zone] = 0
    assert market.advance(first).reason == "capacity"
    market.later(seconds=RULES.backoff_seconds)

    second = market.advance(market.spill())

    assert second.state == "provisioning"
    assert second.intent.zone != zone
