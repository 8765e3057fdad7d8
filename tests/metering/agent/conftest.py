"""The agent's surroundings: a market that answers, a scripted driver, a still clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from metering.agent.agent import Agent, AgentConfig
from metering.agent.clock import ManualClock
from metering.agent.gpus.nvml import NvmlGpus
from metering.agent.gpus.port import Gpus
from metering.agent.gpus.simulated import SimulatedGpus
from metering.agent.runtimes import beside
from metering.agent.runtimes.simulated import SimulatedRuntime
from metering.agent.spool import Spool
from metering.agent.uplink import HttpUplink
from tests.metering.agent.cluster import bounding as bounding
from tests.metering.agent.cluster import cluster as cluster
from tests.metering.agent.cluster import jobs as jobs
from tests.metering.agent.market import TOKEN, Market, served
from tests.nvml.library import build, preload
from tests.nvml.script import Script

NOON_MS = int(datetime(2026, 1, 5, 12, tzinfo=UTC).timestamp()) * 1000


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is done beside the tick be done at once, however busy the machine is."""
    monkeypatch.setattr(beside, "WAIT_SECONDS", 60.0)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = build(tmp_path_factory.getbasetemp().parent / "offpeak-nvml")
    preload(library)
    return library


@pytest.fixture
def script(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """The fake driver's script: two cards at noon, nothing on them."""
    path = tmp_path / "nvml.txt"
    monkeypatch.setenv("FAKE_NVML_STATE", str(path))
    script = Script(path, clock_ms=NOON_MS)
    script.card("GPU-a", "nvlink=1")
    script.card("GPU-b", "nvlink=1")
    return script


@pytest.fixture
def market() -> Iterator[Market]:
    with served(Market()) as market:
        yield market


class Rig:
    """An agent whose time, driver and server the test moves."""

    def __init__(self, state_dir: Path, market: Market, script: Script | None) -> None:
        self.clock = ManualClock(NOON_MS)
        self.runtime = SimulatedRuntime(clock=self.clock)
        self.market = market
        self.script = script
        self.state_dir = state_dir
        self.pids_are_ours = True
        self.spool: Callable[[], Spool] | None = None
        self.agent = self.make()

    def make(self) -> Agent:
        """Return an agent as a new start makes it."""
        gpus: Gpus
        if self.script is None:
            gpus = SimulatedGpus(["H100"] * 2, clock=self.clock, holders=self.runtime.holders)
        else:
            gpus = NvmlGpus(
                pids_are_ours=self.pids_are_ours, may_divide=True, ticking=self.clock.wall_us
            )
        self.gpus = gpus
        return Agent(
            AgentConfig(state_dir=self.state_dir, hostname="h1"),
            gpus=gpus,
            runtime=self.runtime,
            uplink=HttpUplink(self.market.url, TOKEN),
            clock=self.clock,
            spool=None if self.spool is None else self.spool(),
        )

    def restart(self) -> None:
        self.agent.close()
        self.agent = self.make()

    def uuids(self) -> list[str]:
        return [gpu.uuid for gpu in self.gpus.inventory()]

    def step(self, milliseconds: int = 1000) -> None:
        """Let time pass and the agent do one round."""
        self.clock.advance(milliseconds)
        if self.script is not None:
            self.script.at(self.clock.now_ms())
        self.agent.run_once()

    def steps(self, count: int, milliseconds: int = 1000) -> None:
        for _ in range(count):
            self.step(milliseconds)

    def pid(self, gpu_uuid: str) -> int:
        """Return the process of the only work on a GPU."""
        (pid,) = self.runtime.holders()[gpu_uuid]
        return pid


@pytest.fixture
def rig(tmp_path: Path, market: Market, script: Script) -> Iterator[Rig]:
    """An agent on the scripted driver."""
    rig = Rig(tmp_path / "state", market, script)
    yield rig
    rig.agent.close()


@pytest.fixture
def simulated_rig(tmp_path: Path, market: Market) -> Iterator[Rig]:
    """An agent on simulated GPUs."""
    rig = Rig(tmp_path / "state", market, None)
    yield rig
    rig.agent.close()
