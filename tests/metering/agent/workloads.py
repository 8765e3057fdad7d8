"""Small programs that leases run, and how they ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from metering.agent.clock import SystemClock
from metering.agent.runtimes.podman import Podman
from metering.agent.runtimes.port import Runtime, Work, WorkSpec
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.runtimes.simulated import SimulatedRuntime
from tests.metering.agent.cluster import TOGETHER
from tests.metering.agent.containers import ContainerRuntime, Made, contained
from tests.metering.agent.containers import image as image
from tests.metering.agent.containers import podman as podman

DEADLINE_SECONDS = 60.0


def until(ask: Callable[[], object], *, why: str = "it did not come about") -> object:
    """Ask again until the answer is true, within the deadline."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (answer := ask()):
        assert time.monotonic() < deadline, why
        time.sleep(0.01)
    return answer


def state(runtime: Runtime, lease_id: UUID) -> str:
    return next(work.state for work in runtime.works() if work.lease_id == lease_id)


def ended(runtime: Runtime, lease_id: UUID) -> Work:
    until(lambda: state(runtime, lease_id) == "ended")
    return next(work for work in runtime.works() if work.lease_id == lease_id)


def spec(*command: str, **environment: str) -> WorkSpec:
    return WorkSpec(
        lease_id=uuid4(),
        gpu_uuids=("GPU-a", "GPU-b"),
        command=command,
        environment=environment,
    )


def python(code: str, **environment: str) -> WorkSpec:
    return spec(sys.executable, "-c", code, **environment)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[ProcessRuntime]:
    runtime = ProcessRuntime(tmp_path, clock=SystemClock())
    yield runtime
    end_all(runtime)


def end_all(runtime: Runtime) -> None:
    for work in runtime.works():
        runtime.kill(work.lease_id)
        ended(runtime, work.lease_id)
        runtime.forget(work.lease_id)


@pytest.fixture
def containers(tmp_path: Path, podman: Podman, image: Made) -> Iterator[ContainerRuntime]:
    runtime = contained(tmp_path, podman, image, bare=True)
    yield runtime
    end_all(runtime)


@pytest.fixture(
    params=["process", "simulated", "podman", pytest.param("slurm", marks=TOGETHER)],
)
def runtime(request: pytest.FixtureRequest) -> Runtime:
    if request.param == "simulated":
        return SimulatedRuntime(clock=SystemClock())
    name = {"process": "processes", "podman": "containers", "slurm": "jobs"}[request.param]
    runtime: ProcessRuntime = request.getfixturevalue(name)
    return runtime
