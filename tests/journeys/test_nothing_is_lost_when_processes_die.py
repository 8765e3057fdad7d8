"""Every process of a market is killed in turn in the middle of its work; nobody's lease notices."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ledger.domain.money import nanos_of
from marketplace.sdk.client import Client
from marketplace.sdk.problems import Unreachable
from tests.journeys import books
from tests.journeys.conftest import FIRST_STORE
from tests.journeys.hosts import Machine, register
from tests.journeys.installation import Installation, until
from tests.journeys.work import Work

REGION = "kill"
GPUS = 2
TOLERANCE_MS = 2_000

pytestmark = pytest.mark.parametrize("market", FIRST_STORE, indirect=True, scope="package")


@pytest.fixture
def machine(market: Installation, tmp_path: Path) -> Iterator[Machine]:
    """Ada's host with two GPUs, its agent at work."""
    machine = register(market, "ada", REGION, tmp_path)
    machine.start_agent("--simulate", f"A10:{GPUS}")
    yield machine
    machine.retire()


class Traffic:
    """A consumer who places bids that nothing can serve, one after the other, and never gives up.

    Every bid has a key of its own and is asked again with it until there is an answer.
    """

    def __init__(self, market: Installation) -> None:
        self._market = market
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.placed: list[str] = []
        self.failed: list[BaseException] = []

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            with self._market.client("bruno") as api:
                while not self._stop.is_set():
                    self.placed.append(self._place(api, str(uuid4())))
                    self._stop.wait(0.05)
        except BaseException as error:
            self.failed.append(error)

    def _place(self, api: Client, key: str) -> str:
        asked = {
            "query": "gpu=H200 region=nowhere",
            "gpus": 1,
            "duration_seconds": 600,
            "limit": "0.10",
            "service_class": "on-demand",
            "workload": {"kind": "other", "command": []},
        }
        while True:
            try:
                return str(api.post("bids", asked, key=key)["id"])
            except Unreachable:
                if self._stop.is_set():
                    raise


def test_killing_every_process_in_turn_closes_no_lease_and_doubles_nothing(
    market: Installation, machine: Machine, tmp_path: Path
) -> None:
    machine.list_for(2, floor="0.999999999", gpus=machine.gpus())
    works = [Work(tmp_path / f"work-{number}") for number in range(GPUS)]
    query = f"gpu=A10 region={REGION}"
    bids = [market.bid("grace", query, work.command) for work in works]
    leases = [market.lease_of("grace", bid_id, state="active") for bid_id in bids]

    with Traffic(market) as traffic:
        for victim in ("web", "engine", "read-side", "clockwork", machine.process):
            _placed_more(traffic)
            market.kill(victim)
            if victim == machine.process:
                machine.start_agent("--simulate", f"A10:{GPUS}")
            else:
                market.start(victim)
            until(market.is_ready)
            _is_measured_on(market, leases)
        _placed_more(traffic)
    assert traffic.failed == []

    for work, bid_id in zip(works, bids, strict=True):
        assert [said["what"] for said in work.everything()] == ["started"]
        assert market.lease_of("grace", bid_id, state="active")
        work.finish()
    for work, lease in zip(works, leases, strict=True):
        market.lease_of("grace", lease["bid_id"], state="closed")
        _is_charged_in_full(market, lease, work)
    with market.client("bruno") as api:
        shown = [bid["id"] for bid in api.all("bids") if bid["query"].find("nowhere") > 0]
    assert sorted(shown) == sorted(traffic.placed)
    assert len(set(traffic.placed)) == len(traffic.placed) > 10
    doctor = market.manage("doctor").out
    assert "FAIL" not in doctor, doctor


def _placed_more(traffic: Traffic) -> None:
    before = len(traffic.placed)
    until(lambda: len(traffic.placed) > before + 2 or traffic.failed, why="no bid gets through")


def _is_measured_on(market: Installation, leases: list[dict[str, Any]]) -> None:
    """Wait until the use of every lease grows again."""
    with market.client("grace") as api:
        before = [_granted_ms(api, lease) for lease in leases]
        until(
            lambda: all(
                _granted_ms(api, each) > ms for each, ms in zip(leases, before, strict=True)
            ),
            why="use stands still",
        )


def _granted_ms(api: Client, lease: dict[str, Any]) -> int:
    return int(api.get(f"leases/{lease['id']}/usage")["granted_ms"])


def _is_charged_in_full(market: Installation, lease: dict[str, Any], work: Work) -> None:
    use = books.final_use(market, "grace", lease["id"])
    started, finished = work.told("started"), work.told("finished")
    assert started is not None and finished is not None
    ran_ms = (finished["at"] - started["at"]) * 1000
    assert use["gap_ms"] == 0
    assert abs(use["granted_ms"] - ran_ms) <= TOLERANCE_MS
    assert nanos_of(use["charged"]) == books.charge_of(lease, use["granted_ms"]).nanos > 0
