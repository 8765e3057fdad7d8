"""What holds for EC2 beyond the common contract: its nets, its retries, its errors."""

from __future__ import annotations

import base64
from datetime import timedelta
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, NoCredentialsError, ReadTimeoutError

from bursting.clouds.ec2 import Ec2Cloud, Ec2Settings
from bursting.clouds.ec2_errors import explain
from bursting.clouds.port import CapacityUnavailable, CloudUnavailable, LaunchRefused
from bursting.clouds.prices import PriceListInvalid, nanos, read_price_list
from bursting.domain.capacity import GpuNeed, InstancePrice, InstanceSpec
from tests.moto_cloud.server import MotoCloud

SPEC = InstanceSpec(instance_type="g6.xlarge", zone="us-east-1a")


def ec2(server: MotoCloud, waits: list[float], *, attempts_max: int = 3) -> Ec2Cloud:
    settings = Ec2Settings(
        image_id="ami-12345678",
        endpoint_url=server.url,
        access_key_id="test",
        secret_access_key="test",
        boot_script="systemctl start offpeak-agent",
        attempts_max=attempts_max,
    )
    return Ec2Cloud(settings, wait=waits.append)


def launch(cloud: Ec2Cloud, spec: InstanceSpec = SPEC) -> str:
    return cloud.launch(
        spec,
        token="token-1",
        tags={"offpeak:market": "site-a"},
        ttl=timedelta(minutes=90, seconds=1),
        max_price=InstancePrice(1_250_000_000),
        environment={"OFFPEAK_URL": "https://market.example/?a=1&b='2'"},
    ).instance_id


def test_every_launch_carries_token_tags_and_a_timer_that_terminates(
    moto_cloud: MotoCloud,
) -> None:
    launch(ec2(moto_cloud, []))

    (asked,) = moto_cloud.asked("RunInstances")
    assert asked["ClientToken"] == "token-1"
    assert asked["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert base64.b64decode(asked["UserData"]).decode() == (
        "#!/bin/sh\nshutdown -P +91\n"
        """export OFFPEAK_URL='https://market.example/?a=1&b='"'"'2'"'"''\n"""
        "systemctl start offpeak-agent"
    )
    tags = {asked[f"TagSpecification.1.Tag.{n}.Key"] for n in (1, 2)}
    assert tags == {"offpeak:market", "offpeak:token"}


def test_a_spot_launch_is_capped_by_ec2_itself(moto_cloud: MotoCloud) -> None:
    spec = InstanceSpec(instance_type="g6.xlarge", zone="us-east-1a", spot=True)

    launch(ec2(moto_cloud, []), spec)

    (asked,) = moto_cloud.asked("RunInstances")
    assert asked["InstanceMarketOptions.SpotOptions.MaxPrice"] == "1.25"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failing_launch_is_repeated_with_its_token_and_starts_one(
    moto_cloud: MotoCloud, when: str
) -> None:
    waits: list[float] = []
    moto_cloud.faults.fail("launch", times=2, when="before" if when == "before" else "after")

    cloud = ec2(moto_cloud, waits)
    instance_id = launch(cloud)

    assert [i.instance_id for i in cloud.find(token="token-1")] == [instance_id]
    assert {asked["ClientToken"] for asked in moto_cloud.asked("RunInstances")} == {"token-1"}
    assert waits == [0.5, 1.0]


def test_a_lost_answer_is_asked_for_again(moto_cloud: MotoCloud) -> None:
    cloud = ec2(moto_cloud, [])
    moto_cloud.answers_to_cut = 1

    instance_id = launch(cloud)

    assert len(moto_cloud.asked("RunInstances")) == 2
    assert [i.instance_id for i in cloud.find(token="token-1")] == [instance_id]


def test_attempts_are_bounded(moto_cloud: MotoCloud) -> None:
    moto_cloud.faults.fail("launch", times=9)

    with pytest.raises(CloudUnavailable):
        launch(ec2(moto_cloud, []))

    assert len(moto_cloud.asked("RunInstances")) == 3


def test_a_want_of_capacity_is_not_asked_again(moto_cloud: MotoCloud) -> None:
    moto_cloud.faults.room["us-east-1a"] = 0

    with pytest.raises(CapacityUnavailable):
        launch(ec2(moto_cloud, []))

    assert len(moto_cloud.asked("RunInstances")) == 1


def test_a_type_that_moto_would_take_but_ec2_would_not_is_refused(
    moto_cloud: MotoCloud, tmp_path: Path
) -> None:
    listed = tmp_path / "prices.json"
    listed.write_text(PRICES % ("voodoo2.large", "1.0"))
    settings = Ec2Settings(
        image_id="ami-12345678",
        endpoint_url=moto_cloud.url,
        access_key_id="test",
        secret_access_key="test",
    )
    cloud = Ec2Cloud(settings, prices=read_price_list(listed))

    with pytest.raises(LaunchRefused):
        launch(cloud, InstanceSpec(instance_type="voodoo2.large", zone="us-east-1a"))


def test_nothing_listens_and_nothing_happened() -> None:
    server = MotoCloud()
    server.start()
    cloud = ec2(server, [], attempts_max=1)
    server.stop()

    with pytest.raises(CloudUnavailable) as trouble:
        launch(cloud)

    assert trouble.value.retryable
    assert not trouble.value.outcome_unknown


def test_an_unknown_outcome_stays_unknown_when_the_next_answer_is_clear() -> None:
    settings = Ec2Settings(image_id="ami-1", access_key_id="a", secret_access_key="b")
    cloud = Ec2Cloud(settings, wait=lambda _seconds: None)
    troubles = iter([answer("InternalError", 500), answer("AuthFailure"), answer("Throttling")])
    throttled = iter([answer("InternalError", 500), answer("Throttling"), answer("Throttling")])

    def fails(these: object = throttled) -> None:
        raise next(these)  # type: ignore[call-overload]  # an iterator of errors

    with pytest.raises(CloudUnavailable) as trouble:
        cloud._ask(fails)
    assert trouble.value.outcome_unknown
    with pytest.raises(CloudUnavailable) as denied:
        cloud._ask(lambda: fails(troubles))
    assert not denied.value.retryable


def answer(code: str, status: int = 400) -> ClientError:
    return ClientError(
        {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}},  # type: ignore[typeddict-item]  # the rest is not read
        "RunInstances",
    )


def test_what_an_error_means_for_us() -> None:
    def flags(trouble: Exception) -> tuple[bool, bool]:
        assert isinstance(trouble, CloudUnavailable)
        return trouble.retryable, trouble.outcome_unknown

    assert flags(explain(answer("RequestLimitExceeded", 503), is_launch=True)) == (True, False)
    assert flags(explain(answer("UnauthorizedOperation", 403), is_launch=True)) == (False, False)
    assert flags(explain(answer("Unavailable", 503), is_launch=True)) == (True, True)
    assert flags(explain(answer("InvalidParameterValue"), is_launch=False)) == (False, False)
    assert isinstance(explain(answer("InvalidParameterValue"), is_launch=True), LaunchRefused)
    assert flags(explain(NoCredentialsError(), is_launch=True)) == (False, False)
    timed_out = ReadTimeoutError(endpoint_url="http://127.0.0.1")
    assert flags(explain(timed_out, is_launch=True)) == (True, True)


def test_the_gpus_of_a_type_that_is_not_listed_are_asked_for(
    moto_cloud: MotoCloud, tmp_path: Path
) -> None:
    launch(ec2(moto_cloud, []))
    listed = tmp_path / "prices.json"
    listed.write_text(PRICES % ("p5.48xlarge", "55.04"))
    settings = Ec2Settings(
        image_id="ami-12345678",
        endpoint_url=moto_cloud.url,
        access_key_id="test",
        secret_access_key="test",
    )

    found = Ec2Cloud(settings, prices=read_price_list(listed)).find(token="token-1")

    assert [instance.gpus for instance in found] == [1]


PRICES = """{"source": "a test", "as_of": "2026-01-05", "currency": "USD", "instance_types": [
    {"instance_type": "%s", "gpu_model": "H100", "gpus": 8, "gpu_memory_mib": 81920,
     "compute_capability": "9.0", "nvlink": true, "price_per_instance_hour": "%s"}]}"""


def test_another_price_list_changes_the_offers(moto_cloud: MotoCloud, tmp_path: Path) -> None:
    listed = tmp_path / "prices.json"
    listed.write_text(PRICES % ("p5.48xlarge", "98.32"))
    settings = Ec2Settings(
        image_id="ami-12345678",
        endpoint_url=moto_cloud.url,
        access_key_id="test",
        secret_access_key="test",
    )

    offers = Ec2Cloud(settings, prices=read_price_list(listed)).offers(GpuNeed(gpus=1))

    assert {offer.nanos_per_gpu_hour for offer in offers} == {12_290_000_000}


@pytest.mark.parametrize(
    "price", ["", "NaN", "Infinity", "-1", "0", "1e99", "0.0000000001", "1,5", "abc"]
)
def test_a_price_that_is_none_is_refused(price: str, tmp_path: Path) -> None:
    listed = tmp_path / "prices.json"
    listed.write_text(PRICES % ("p5.48xlarge", price))

    with pytest.raises(PriceListInvalid, match=r"prices\.json: p5\.48xlarge"):
        read_price_list(listed)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"source": "x"}',
        PRICES.replace('"gpus": 8', '"gpus": true') % ("a", "1"),
        PRICES.replace('"gpus": 8', '"gpus": 0') % ("a", "1"),
        PRICES.replace('"9.0"', '"nine"') % ("a", "1"),
        PRICES.replace("true", '"yes"') % ("a", "1"),
        PRICES.replace("USD", "dollars") % ("a", "1"),
        PRICES.replace('"gpus": 8', '"gpus": 8, "colour": "red"') % ("a", "1"),
    ],
)
def test_a_price_list_of_another_form_is_refused(text: str, tmp_path: Path) -> None:
    listed = tmp_path / "prices.json"
    listed.write_text(text)

    with pytest.raises(PriceListInvalid):
        read_price_list(listed)


def test_prices_are_read_to_the_nano_unit() -> None:
    assert nanos("21.957642") == 21_957_642_000
    assert nanos("0.000000001") == 1
