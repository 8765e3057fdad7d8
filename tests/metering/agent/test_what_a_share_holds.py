"""The table of shares in config/docs/isolation.md, tried: each act, on each kind of share."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from listings.domain.divisions import divide
from listings.domain.events import Division
from metering.agent.clock import SystemClock
from metering.agent.gpus.port import Reading, Resident
from metering.agent.meters import Meter, see
from metering.agent.over_share import PATIENCE_MS, allowed_mib
from metering.agent.over_share import said as why
from metering.agent.runtimes.mps.control import Control
from metering.agent.runtimes.mps.daemons import AgentsDaemons
from metering.agent.runtimes.mps.owners import OwnersDaemon
from metering.agent.runtimes.mps.port import Mps
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.shares import share_of
from tests.metering.agent.mps_hosts import CARD, EQUAL, started
from tests.metering.agent.mps_hosts import daemons as daemons
from tests.metering.agent.mps_hosts import programs as programs
from tests.metering.agent.mps_hosts import short as short
from tests.metering.agent.works import ROOT, accounts, ended, let_through, said, until
from tests.mps.installed import Programs

pytestmark = ROOT
DOCS = Path(__file__).parents[3] / "config" / "docs" / "isolation.md"
COLUMNS = ("MPS by the agent", "MPS by the owner", "time slices")
SLICE = divide(CARD, Division("timeslice", 4))[0].uuid

TRIES = """
unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE CUDA_MPS_PINNED_DEVICE_MEM_LIMIT
WORK || echo null
CUDA_MPS_PIPE_DIRECTORY=/nowhere WORK || echo null
echo set_default_active_thread_percentage 100 | CONTROL > /dev/null && echo true || echo false
"""


def table() -> dict[str, dict[str, str]]:
    """Return what the documentation says: by act and kind of share, its first word."""
    found: dict[str, dict[str, str]] = {}
    columns: list[str] = []
    for line in DOCS.read_text().splitlines():
        first, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if first == "act on a share" or not cells:
            columns = cells
        elif columns and not set(first) <= set("-"):
            words = [cell.partition(":")[0] for cell in cells]
            found[first] = dict(zip(columns, words, strict=True))
    return found


@pytest.fixture(params=COLUMNS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def mps(kind: str, short: Path, programs: Programs, daemons: AgentsDaemons) -> Iterator[Mps]:
    if kind != "MPS by the owner":
        yield daemons
        return
    pipe = short / "owners"
    process = subprocess.Popen(
        [programs.control, "-f", "-multiuser-server"],
        env={
            "CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(short / "log"),
            "CUDA_VISIBLE_DEVICES": CARD.uuid, "PATH": os.environ["PATH"],
        },
    )  # fmt: skip
    until(lambda: (pipe / "control_privileged").exists())
    yield OwnersDaemon(pipe)
    subprocess.run(
        [programs.control], input=b"quit\n", check=True, env={"CUDA_MPS_PIPE_DIRECTORY": str(pipe)}
    )
    process.wait()


def stopped(uuid: str, processes: int) -> str:
    """Return what comes of work whose processes together hold too much."""
    share, lease = share_of(uuid), uuid4()
    assert share is not None
    each_mib = allowed_mib(share.memory_mib) // processes + 1
    residents = tuple(Resident(pid, each_mib) for pid in range(1, processes + 1))
    meter = Meter(
        cut_ms=0, seen_ms=0, ends_ms=1, present=None, opened_us=0, share_mib=share.memory_mib
    )
    for now_ms in (0, PATIENCE_MS):
        see(meter, lease, Reading(residents, None), dict.fromkeys(range(9), lease), now_ms=now_ms)
    return "stopped" if why(meter.over) else "unbounded"


def test_every_act_on_a_share_comes_to_what_the_documentation_says(
    kind: str, mps: Mps, short: Path, programs: Programs
) -> None:
    let_through(short)
    runtime = ProcessRuntime(short / "state", clock=SystemClock(), users=accounts(), mps=mps)
    uuid = SLICE if kind == "time slices" else EQUAL[0]
    tries = TRIES.replace("WORK", programs.work).replace("CONTROL", programs.control)

    spec = started(runtime, uuid, "/bin/sh", "-c", tries)
    ended(runtime, spec.lease_id)
    within, past, told = map(json.loads, said(short / "state", spec).splitlines())
    runtime.forget(spec.lease_id)
    until(lambda: not list(runtime.works()) and not Control("", short, CARD.uuid).members())

    memory = within["memory_mib"] if within["mps"] else 0
    found = {
        "more compute": "bounded" if within["percent"] <= 25 else "reached",
        "more GPU memory in one process": "bounded" if memory else stopped(uuid, 1),
        "more GPU memory in several processes": stopped(uuid, 3),
        "the card without MPS": "refused" if past is None else "reached",
        "setting limits, ending the daemon": "reached" if told else "refused",
    }
    assert {act: cells[kind] for act, cells in table().items()} == found
