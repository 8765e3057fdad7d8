"""Real processes, the real clock and the real binding: what the driver lists reaches its lease."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from metering.agent.agent import Agent, AgentConfig
from metering.agent.clock import SystemClock
from metering.agent.gpus.nvml import NvmlGpus
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.uplink import HttpUplink
from tests.metering.agent.market import TOKEN, Market, assignment
from tests.nvml.script import Proc, Script

DEADLINE_SECONDS = 60.0
TICK_MS = 100
WORK = (
    "import subprocess, sys\n"
    "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    "print(child.pid, flush=True)\n"
    "child.wait()\n"
)


def until(ask: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not ask():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.02)


def test_a_grandchild_in_a_session_of_its_own_is_still_the_leases(
    script: Script, market: Market, tmp_path: Path
) -> None:
    script.clock_ms = None  # the wall clock
    script.write()
    market.sample_seconds = market.poll_seconds = 1
    clock = SystemClock()
    runtime = ProcessRuntime(tmp_path / "state", clock=clock)
    agent = Agent(
        AgentConfig(state_dir=tmp_path / "state", hostname="h1", tick_ms=TICK_MS),
        gpus=NvmlGpus(pids_are_ours=True),
        runtime=runtime,
        uplink=HttpUplink(market.url, TOKEN),
        clock=clock,
    )
    now_ms = clock.now_ms()
    command = (sys.executable, "-c", WORK)
    lease = market.assign(assignment("GPU-a", now_ms=now_ms, seconds=600, command=command))
    stop = threading.Event()
    thread = threading.Thread(target=agent.run, args=[stop])
    thread.start()
    try:
        output = tmp_path / "state" / "leases" / str(lease) / "stdout.log"
        until(lambda: output.exists() and output.read_text().endswith("\n"))
        on_gpu = Proc(0, int(output.read_text()), sm=70, start_ms=clock.now_ms())
        script.proc(on_gpu)
        until(lambda: sum(each.busy_ms or 0 for each in market.intervals(lease)) > 1_500)
        del market.desired[lease]
        until(lambda: len(market.told(lease)) == 2)
        until(lambda: market.intervals(lease)[-1].end_ms >= ended_ms(market))
    finally:
        stop.set()
        thread.join()
        agent.close()

    intervals = market.intervals(lease)
    for earlier, later in pairwise(intervals):
        assert earlier.end_ms == later.start_ms
    end_ms = intervals[-1].end_ms
    occupied_ms = sum(each.occupied_ms or 0 for each in intervals)
    busy_ms = sum(each.busy_ms or 0 for each in intervals)
    # Within a look at either end, for the clock is real; samples are of whole seconds.
    assert abs(occupied_ms - on_gpu.resident_ms(on_gpu.start_ms, end_ms)) <= 1_000
    # The work was on the GPU for up to a tick before its start was noted here.
    assert -TICK_MS <= on_gpu.busy_ms(on_gpu.start_ms, end_ms) - busy_ms <= 2_000
    faults = [each for each in market.health() if each.kind != "cleaned"]  # after its work, if soon
    assert faults == []


def ended_ms(market: Market) -> int:
    """Return when the work is reported to have ended."""
    (stopped,) = [each for each in market.reports.values() if each.what == "stopped"]
    return round(stopped.at.timestamp() * 1000)
