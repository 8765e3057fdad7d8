"""The demo's agents: those of whole cards and of MIG instances start what is leased there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.demo.fleet import Fleet
from metering.agent.clock import SystemClock
from metering.agent.gpus.simulated import parse_models
from tests.metering.agent.market import TOKEN, Market, assignment, served
from tests.metering.agent.works import until


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[tuple[Fleet, Market, threading.Event]]:
    stop = threading.Event()
    with served(Market(sample_seconds=1, poll_seconds=1)) as market:
        fleet = Fleet(tmp_path, market.url, stop=stop)
        yield fleet, market, stop
        stop.set()
        fleet.join()


@pytest.mark.parametrize(("models", "part"), [("L4:1", ""), ("A100@mig:1", "/mig-2g.20gb@0-1")])
def test_what_is_leased_starts(
    fleet: tuple[Fleet, Market, threading.Event], models: str, part: str
) -> None:
    agents, market, stop = fleet
    agents._run("machine", TOKEN, parse_models(models), stop)
    until(lambda: market.registrations)
    (gpu,) = market.registrations[-1].gpus

    lease = market.assign(assignment(gpu.uuid + part, now_ms=SystemClock().now_ms()))

    until(lambda: market.told(lease))
    assert market.told(lease)[0].what == "started"
