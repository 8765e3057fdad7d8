"""Work that a restart of its host ended is told from work that the host lost, whatever ran it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from metering.agent import lost
from metering.agent.agent import Agent, AgentConfig
from metering.agent.clock import SystemClock
from metering.agent.gpus.simulated import SimulatedGpus
from metering.agent.runtimes import judging
from metering.agent.runtimes.port import Runtime
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.runtimes.simulated import SimulatedRuntime
from metering.agent.uplink import HttpUplink
from metering.agent.wire import HOST_RESTARTED
from tests.metering.agent.market import TOKEN, Market, assignment
from tests.metering.agent.works import until

Left = Callable[[Path], None]


def nothing(state_dir: Path) -> None:
    """A disk whose cache was lost with the power: of the work's own records none came to it."""
    shutil.rmtree(state_dir / "leases")
    (state_dir / "leases").mkdir()


def empty_records(state_dir: Path) -> None:
    """A file system that kept the names of files and not what was in them."""
    for record in state_dir.glob("leases/*/*.json"):
        record.write_text("")


def everything(state_dir: Path) -> None:
    """All that there was."""


def an_end(state_dir: Path) -> None:
    """The host was shut down in good order, and the keeper saw the work being ended for that."""
    for folder in state_dir.glob("leases/*"):
        (folder / "exit.json").write_text(json.dumps({"exit_code": -15, "boot_ns": 1}))


def agent_of(state_dir: Path, market: Market, runtime: Runtime) -> Agent:
    clock = SystemClock()
    return Agent(
        AgentConfig(state_dir=state_dir, hostname="h"),
        gpus=SimulatedGpus(["L4"], clock=clock, holders=runtime.holders),
        runtime=runtime,
        uplink=HttpUplink(market.url, TOKEN),
        clock=clock,
    )


def run_until(agent: Agent, market: Market, lease: UUID, told: list[str]) -> None:
    """Let an agent go on until that has been reported of a lease."""

    def has() -> bool:
        agent.run_once()
        return [each.what for each in market.told(lease)] == told

    until(has)


@pytest.mark.parametrize("left", [nothing, empty_records, everything, an_end])
def test_a_restart_is_told_by_the_kernel_whatever_records_of_the_work_are_left(
    tmp_path: Path, market: Market, monkeypatch: pytest.MonkeyPatch, left: Left
) -> None:
    runtime = ProcessRuntime(tmp_path, clock=SystemClock())
    agent = agent_of(tmp_path, market, runtime)
    (gpu,) = (each.uuid for each in agent._inventory.look(0) or ())
    lease = market.assign(assignment(gpu, now_ms=SystemClock().now_ms(), command=("sleep", "600")))
    run_until(agent, market, lease, ["started"])
    (work,) = runtime.works()
    runtime.kill(work.lease_id)
    until(lambda: runtime.works()[0].state == "ended")
    agent.close()
    (tmp_path / "leases" / str(lease) / "exit.json").unlink()
    left(tmp_path)
    for module in (lost, judging):
        monkeypatch.setattr(module, "kernel_boot_id", lambda: "another boot")

    later = agent_of(tmp_path, market, ProcessRuntime(tmp_path, clock=SystemClock()))
    run_until(later, market, lease, ["started", "failed"])
    later.close()

    told = market.told(lease)[-1]
    assert (told.what, told.detail) == ("failed", HOST_RESTARTED)


def test_a_runtime_that_knows_nothing_of_its_work_any_more_is_no_restart(
    tmp_path: Path, market: Market
) -> None:
    """As one in memory: the agent was restarted, and the host was not."""
    agent = agent_of(tmp_path, market, SimulatedRuntime(clock=SystemClock()))
    (gpu,) = (each.uuid for each in agent._inventory.look(0) or ())
    lease = market.assign(assignment(gpu, now_ms=SystemClock().now_ms(), command=("sleep", "600")))
    run_until(agent, market, lease, ["started"])
    agent.close()

    later = agent_of(tmp_path, market, SimulatedRuntime(clock=SystemClock()))
    run_until(later, market, lease, ["started", "failed"])
    later.close()

    told = market.told(lease)[-1]
    assert (told.what, told.detail) == ("failed", "its work is gone")
