"""The agent passes the heartbeat of work on as the work says it, and measures nothing by it."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from marketplace.sdk import heartbeat
from metering.agent.clock import SystemClock
from metering.agent.reconcile import epoch_ms
from metering.agent.runtimes.process import ProcessRuntime
from tests.metering.agent.conftest import NOON_MS, Rig
from tests.metering.agent.market import assignment
from tests.metering.agent.workloads import ended, python

Told = list[tuple[int, int]]


def told(rig: Rig, lease: UUID) -> Told:
    return [
        (epoch_ms(each.since) - NOON_MS, epoch_ms(each.at) - NOON_MS)
        for each in rig.market.told(lease)
        if each.what == "alive" and each.since is not None
    ]


@pytest.fixture
def lease(simulated_rig: Rig) -> UUID:
    rig = simulated_rig
    lease = rig.market.assign(assignment(rig.uuids()[0], now_ms=NOON_MS))
    rig.step()
    return lease


def test_one_that_goes_on_is_told_now_and_then(simulated_rig: Rig, lease: UUID) -> None:
    rig = simulated_rig
    for _ in range(100):
        rig.runtime.alive_ms[lease] = (NOON_MS, rig.clock.now_ms() + 10_000)
        rig.step()

    found = told(rig, lease)
    assert 3 <= len(found) <= 5
    assert all(since == 0 for since, _ in found)
    assert rig.market.repeated == 0


def test_a_new_one_is_told_at_once_and_again_after_a_start_not_at_all(
    simulated_rig: Rig, lease: UUID
) -> None:
    rig = simulated_rig
    rig.runtime.alive_ms[lease] = (NOON_MS, NOON_MS + 5_000)
    rig.steps(5)
    rig.runtime.alive_ms[lease] = (NOON_MS + 20_000, NOON_MS + 25_000)
    rig.steps(5)
    rig.restart()
    rig.steps(5)

    assert told(rig, lease) == [(0, 5_000), (20_000, 25_000)]


def test_the_last_one_goes_before_the_end(simulated_rig: Rig, lease: UUID) -> None:
    rig = simulated_rig
    rig.runtime.alive_ms[lease] = (NOON_MS, NOON_MS + 5_000)
    rig.steps(4)
    rig.runtime.alive_ms[lease] = (NOON_MS, NOON_MS + 12_000)
    rig.market.desired.pop(lease)

    rig.steps(8)

    assert told(rig, lease)[-1] == (0, 12_000)
    assert [each.what for each in rig.market.told(lease)][-1] == "stopped"


def test_a_real_process_beats_by_the_file_of_the_client_alone(tmp_path: Path) -> None:
    clock = SystemClock()
    runtime = ProcessRuntime(tmp_path, clock=clock)
    asked = python(f"import runpy; runpy.run_path({heartbeat.__file__!r})['heartbeat'](covers=120)")
    before_ms = clock.now_ms()
    runtime.start(asked)

    work = ended(runtime, asked.lease_id)

    assert work.alive_ms is not None, work.detail
    since_ms, until_ms = work.alive_ms
    assert until_ms - since_ms == 120_000
    assert before_ms - 1_000 <= since_ms <= clock.now_ms()
