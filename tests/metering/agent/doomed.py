"""An agent that kills itself with SIGKILL at a chosen moment, for the kill tests.

Its doom is `PLACE:N`: the N-th time that it comes by PLACE. Places: write-before, write-half and
write-after (of the spool), start-before and start-after (of the work), make-before, make-after,
remove-before and remove-after (of a MIG instance), call-before and call-after (of the server).
`none:0` lets it live.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metering.agent import wire
from metering.agent.agent import Agent, AgentConfig
from metering.agent.clock import SystemClock
from metering.agent.gpus.port import Instance
from metering.agent.gpus.simulated import SimulatedGpus
from metering.agent.runtimes.port import Work, WorkSpec
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.spool import Spool
from metering.agent.uplink import HttpUplink
from tests.metering.agent.market import TOKEN

passed: Counter[str] = Counter()
doomed_at: tuple[str, int]


def passing(place: str) -> bool:
    """Return whether this is the moment, for whoever has something to do first."""
    passed[place] += 1
    return (place, passed[place]) == doomed_at


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def write(file: int, data: bytes) -> int:
    if passing("write-before"):
        die()
    if passing("write-half"):
        os.write(file, data[: len(data) // 2])
        die()
    done = os.write(file, data)
    if passing("write-after"):
        die()
    return done


class DoomedRuntime(ProcessRuntime):
    def start(self, spec: WorkSpec) -> Work:
        if passing("start-before"):
            die()
        work = super().start(spec)
        if passing("start-after"):
            die()
        return work


class DoomedGpus(SimulatedGpus):
    def make_instance(self, card_uuid: str, profile: str, first: int, last: int) -> Instance:
        if passing("make-before"):
            die()
        made = super().make_instance(card_uuid, profile, first, last)
        if passing("make-after"):
            die()
        return made

    def remove_instance(self, instance: Instance) -> None:
        if passing("remove-before"):
            die()
        super().remove_instance(instance)
        if passing("remove-after"):
            die()


class DoomedUplink(HttpUplink):
    def report(self, reports: Mapping[str, Any]) -> wire.ReportsAccepted:
        if passing("call-before"):
            die()
        answer = super().report(reports)
        if passing("call-after"):
            die()
        return answer

    def send(self, samples: Mapping[str, Any]) -> wire.Acknowledged:
        if passing("call-before"):
            die()
        answer = super().send(samples)
        if passing("call-after"):
            die()
        return answer


def run(server: str, state_dir: Path, doom: str) -> None:
    """Be the agent of a host until SIGTERM, or until the doom."""
    global doomed_at
    place, _, number = doom.partition(":")
    doomed_at = place, int(number)
    state_dir.mkdir(exist_ok=True)
    clock = SystemClock.kept_in(state_dir / "clock.json", work_runs=True)
    runtime = DoomedRuntime(state_dir, clock=clock)
    agent = Agent(
        AgentConfig(state_dir=state_dir, hostname="doomed", tick_ms=50),
        gpus=DoomedGpus(
            ["L4", "H100@MIG"],
            clock=clock,
            holders=runtime.holders,
            kept_in=state_dir,
        ),
        runtime=runtime,
        uplink=DoomedUplink(server, TOKEN),
        clock=clock,
        spool=Spool(state_dir / "spool", write=write, segment_bytes=2_000),
    )
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    agent.run(stop)
    agent.close()
