"""kill -9 of the agent at every step: work goes on, no time is lost, none counted twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest

from metering.agent.clock import ManualClock, SystemClock
from metering.agent.gpus.simulated import SimulatedGpus
from tests.forking import Fork
from tests.metering.agent.market import Market, assignment, served
from tests.metering.agent.processes import DEADLINE_SECONDS, launch, until

WORK_SECONDS = "1.3"
(GPU,) = (gpu.uuid for gpu in SimulatedGpus(["L4"], clock=ManualClock(0), holders=dict).inventory())

DOOMS = {
    "write-before": range(1, 8),
    "write-half": range(1, 8),
    "write-after": range(1, 8),
    "start": ["start-before:1", "start-after:1"],
    "call-before": range(1, 5),
    "call-after": range(1, 5),
}


@dataclass
class Host:
    """One state directory, its market, and the agent that runs there now."""

    doom: str
    state_dir: Path
    market: Market
    lease: UUID
    process: Fork

    def launch(self, doom: str) -> None:
        self.process = launch(self.market, self.state_dir, doom)

    def reports(self) -> list[str]:
        return [report.what for report in self.market.told(self.lease)]


@pytest.fixture
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Host]]:
    """A host for each moment of the place that the test names, all at once."""
    place = request.param
    dooms = [each if isinstance(each, str) else f"{place}:{each}" for each in DOOMS[place]]
    with ExitStack() as stack:
        found = []
        for doom in dooms:
            market = stack.enter_context(served(Market(sample_seconds=1, poll_seconds=1)))
            now_ms = SystemClock().now_ms()
            lease = market.assign(assignment(GPU, now_ms=now_ms, command=("sleep", WORK_SECONDS)))
            state_dir = tmp_path / doom.replace(":", "-")
            found.append(Host(doom, state_dir, market, lease, launch(market, state_dir, doom)))
        try:
            yield found
        finally:
            for host in found:
                host.process.kill()
                host.process.wait()


@pytest.mark.parametrize("hosts", list(DOOMS), indirect=True)
def test_a_kill_loses_nothing_and_doubles_nothing(hosts: list[Host]) -> None:
    for host in hosts:
        assert host.process.wait(DEADLINE_SECONDS) == -signal.SIGKILL, host.doom
    for host in hosts:
        host.launch("none:0")

    for host in hosts:
        until(partial(has_exited, host), what=f"{host.doom} ends")
        until(partial(waits_for_nothing, host), what=f"{host.doom} delivers")
        host.process.send_signal(signal.SIGTERM)
        assert host.process.wait(DEADLINE_SECONDS) == 0, host.doom

        assert host.reports() == ["started", "exited"], host.doom
        began_ms, ended_ms = truth(host)
        intervals = host.market.intervals(host.lease, GPU)
        assert (intervals[0].start_ms, intervals[-1].end_ms) == (began_ms, ended_ms), host.doom
        for earlier, later in pairwise(intervals):
            assert earlier.end_ms == later.start_ms, host.doom
        assert sum(each.granted_ms for each in intervals) == ended_ms - began_ms
        for boot in {boot for boot, _ in host.market.samples}:
            numbers = sorted(seq for each, seq in host.market.samples if each == boot)
            assert numbers == list(range(1, len(numbers) + 1)), host.doom


def has_exited(host: Host) -> bool:
    return "exited" in host.reports()


def waits_for_nothing(host: Host) -> bool:
    """Return whether the intervals have reached the work's end."""
    intervals = host.market.intervals(host.lease, GPU)
    return bool(intervals) and intervals[-1].end_ms == truth(host)[1]


def truth(host: Host) -> tuple[int, int]:
    """Return when the work began and ended, by the keeper's own record."""
    folder = host.state_dir / "leases" / str(host.lease)
    offset_ns = json.loads((host.state_dir / "clock.json").read_text())["offset_ns"]
    began = json.loads((folder / "started.json").read_text())["boot_ns"]
    ended = json.loads((folder / "exit.json").read_text())["boot_ns"]
    return (began + offset_ns) // 1_000_000, (ended + offset_ns) // 1_000_000


def test_work_outlives_the_agent_and_is_stopped_by_the_next(tmp_path: Path) -> None:
    with served(Market(sample_seconds=1, poll_seconds=1)) as market:
        now_ms = SystemClock().now_ms()
        lease = market.assign(assignment(GPU, now_ms=now_ms, command=("sleep", "600")))
        host = Host("none", tmp_path / "h", market, lease, launch(market, tmp_path / "h", "none:0"))
        until(lambda: "started" in host.reports(), what="it starts")
        host.process.kill()
        host.process.wait()
        record = host.state_dir / "leases" / str(lease) / "started.json"
        pid = json.loads(record.read_text())["pid"]
        os.kill(pid, 0)  # still there

        del market.desired[lease]
        host.launch("none:0")
        until(lambda: "stopped" in host.reports(), what="it is stopped")

        host.process.terminate()
        assert host.process.wait(DEADLINE_SECONDS) == 0
        assert not Path(f"/proc/{pid}").exists()
        assert host.reports() == ["started", "stopped"]
