"""A host on which shares by MPS are leased, with doubles of NVIDIA's programs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from listings.domain.divisions import divide
from listings.domain.events import Division, Gpu
from metering.agent.runtimes.mps.control import Control
from metering.agent.runtimes.mps.daemons import AgentsDaemons
from metering.agent.runtimes.port import NotYet, Work, WorkSpec
from metering.agent.runtimes.process import ProcessRuntime
from tests.metering.agent.works import let_through, until
from tests.mps.installed import Programs, install

CARD = Gpu("GPU-5e1f", "H100-80GB", 81_920, "9.0", "580.82.07")
EQUAL = [share.uuid for share in divide(CARD, Division("mps", 4))]


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose name leaves room for those of sockets."""
    folder = Path(tempfile.mkdtemp(prefix="offpeak-mps-", dir="/tmp"))
    let_through(folder)
    yield folder
    for each in (folder / "state" / "mps").glob("*"):
        Control(str(folder / "bin" / "nvidia-cuda-mps-control"), each, CARD.uuid).kill()
    shutil.rmtree(folder)


@pytest.fixture
def programs(short: Path) -> Programs:
    return install(short / "bin")


@pytest.fixture
def daemons(short: Path, programs: Programs) -> AgentsDaemons:
    return made(short, programs)


def made(short: Path, programs: Programs) -> AgentsDaemons:
    """Return what an agent makes as it starts."""
    return AgentsDaemons(short / "state" / "mps", control=programs.control, smi=programs.smi)


def started(runtime: ProcessRuntime, uuid: str, *command: str) -> WorkSpec:
    spec = WorkSpec(lease_id=uuid4(), gpu_uuids=(uuid,), command=command)

    def is_started() -> Work | None:
        runtime.works()
        try:
            return runtime.start(spec)
        except NotYet:
            return None

    until(is_started)
    return spec
