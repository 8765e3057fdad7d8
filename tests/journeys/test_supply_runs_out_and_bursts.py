"""No local GPU serves a bid: a machine is rented on EC2, leased, billed and given back."""

from __future__ import annotations

import base64
import re
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path

from ledger.domain.money import nanos_of
from tests.journeys import books
from tests.journeys.installation import Installation, until
from tests.journeys.work import Work
from tests.metering.agent.works import let_through, work_options
from tests.moto_cloud.server import Form, MotoCloud

MODEL = "L4"
"""A model that no host of the other journeys has."""


def _user_data(launch: Form) -> dict[str, str]:
    """Return the variables that an instance finds set when it boots."""
    script = base64.b64decode(launch["UserData"]).decode()
    exports = re.findall(r"^export (\w+)=(.*)$", script, re.MULTILINE)
    return {name: shlex.split(text)[0] for name, text in exports}


def _tags(launch: Form) -> dict[str, str]:
    """Return the tags that an instance is launched with."""
    keys = {name: text for name, text in launch.items() if name.startswith("TagSpecification")}
    return {
        text: keys[name.removesuffix("Key") + "Value"]
        for name, text in keys.items()
        if name.endswith(".Key")
    }


def test_a_bid_bursts_to_a_rented_machine_that_is_paid_for_and_given_back(
    market: Installation, cloud: MotoCloud, tmp_path: Path
) -> None:
    launched_before = len(cloud.asked("RunInstances"))
    work = Work(tmp_path / "work")
    bid_id = market.bid("grace", f"gpu={MODEL}", work.command, burst_allowed=True, limit="2")

    launches = until(lambda: cloud.asked("RunInstances")[launched_before:], why="nothing is rented")
    boot = _user_data(launches[0])
    assert boot["OFFPEAK_SERVER"] == market.url
    (rented,) = _instances(market, bid_id)
    assert rented["id"] in _tags(launches[0]).values(), _tags(launches[0])
    agent = f"agent-of-{rented['id']}"
    command = [sys.executable, "-m", "metering.agent", "run", "--server", boot["OFFPEAK_SERVER"]]
    options = ["--simulate", f"{MODEL}:1", "--state-dir", str(tmp_path / "agent")]
    let_through(tmp_path)
    market.spawn(agent, [*command, *options, *work_options()], boot)
    lease = market.lease_of("grace", bid_id, state="active")
    assert lease["burst"] is True
    assert until(lambda: work.told("started"))
    work.finish()
    market.lease_of("grace", bid_id, state="closed")
    use = books.final_use(market, "grace", lease["id"])

    over = until(
        lambda: next((i for i in _instances(market, bid_id) if i["state"] == "terminated"), None),
        why="the machine is not given back",
    )
    market.end(agent)
    assert over is not None
    assert over["reason"] == "lease-closed"
    assert nanos_of(over["cost"]) > 0
    assert len(cloud.asked("RunInstances")) == launched_before + 1
    ended = [form["InstanceId.1"] for form in cloud.asked("TerminateInstances")]
    assert over["cloud_ref"] in ended
    assert use["gap_ms"] == 0
    assert nanos_of(use["charged"]) == books.charge_of(lease, use["granted_ms"]).nanos > 0
    with market.client("joan") as api:
        costs = books.account(api, kind="burst")
        path, period = f"accounts/{costs['account_id']}/statement", f"{datetime.now(UTC):%Y-%m}"

        def booked() -> bool:
            lines = api.all(path, period=period)
            moved = {abs(books.signed_nanos(line["amount"])) for line in lines}
            return nanos_of(over["cost"]) in moved

        until(booked, why="what the machine cost is not booked")


def _instances(market: Installation, bid_id: str) -> list[dict[str, str]]:
    with market.client("joan") as api:
        return list(api.all("burst/instances", bid_id=bid_id))
