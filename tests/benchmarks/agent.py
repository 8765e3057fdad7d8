"""The agent of a host with eight GPUs, cut every second: its processor, its memory, its release.

With leases on all cards, and then with leases on half of them and the owner's filler on the others.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

from metering.agent.clock import SystemClock
from metering.agent.gpus.simulated import SimulatedGpus
from metering.agent.hand.control import NoAnswer, ask
from metering.agent.hand.freeing import free, living
from tests.benchmarks.figures import Figure
from tests.metering.agent.market import TOKEN, Market, assignment, served
from tests.metering.agent.works import let_through, until, work_options

ROOT = Path(__file__).resolve().parents[2]
GPUS = 8
SETTLE_SECONDS = 3.0
MEASURED_SECONDS = 30.0
TENANT = UUID(int=5)
KIB_PER_MIB = 1024
FILLER = ["--filler", "sleep 600"]


def run() -> Iterator[Figure]:
    """Measure an agent whose cards are all leased, and one that has a filler too."""
    yield from _measured("leases on 8 cards", leases=GPUS)
    yield from _measured("leases on 4, fillers on 4", leases=GPUS // 2, options=FILLER)


def _measured(kind: str, *, leases: int, options: Sequence[str] = ()) -> Iterator[Figure]:
    with TemporaryDirectory(prefix="offpeak-agent-") as folder, served(_market()) as market:
        state_dir = Path(folder) / "state"
        let_through(state_dir)
        _lease(market, leases)
        with _agent(market, state_dir, options) as process:
            until(lambda: _running(state_dir) == leases, why="the work does not start")
            time.sleep(SETTLE_SECONDS)
            began, before = time.monotonic(), _cpu_seconds(process)
            time.sleep(MEASURED_SECONDS)
            share = (_cpu_seconds(process) - before) / (time.monotonic() - began)
            yield Figure(f"{kind}: processor", share * 100, "% of one", goal="<= 1", digits=2)
            yield Figure(f"{kind}: memory", _mib(process), "MiB", goal="<= 60")
            began = time.monotonic()
            ask(state_dir, "released")
            until(lambda: not living(state_dir))
            freed = time.monotonic() - began
            yield Figure(f"{kind}: release --now", freed, "s", goal="<= 10", digits=2)


def _market() -> Market:
    return Market(sample_seconds=1, poll_seconds=1)


def _lease(market: Market, leases: int) -> None:
    clock = SystemClock()
    found = SimulatedGpus(["H100"] * GPUS, clock=clock, holders=dict, seed="h1").inventory()
    for gpu in found[:leases]:
        wanted = assignment(gpu.uuid, now_ms=clock.now_ms(), command=("sleep", "600"))
        market.assign(replace(wanted, tenant=TENANT))


@contextmanager
def _agent(market: Market, state_dir: Path, options: Sequence[str]) -> Iterator[int]:
    command = [
        sys.executable, "-m", "metering.agent", "run", "--server", market.url, "--state-dir",
        str(state_dir), "--hostname", "h1", "--simulate", f"H100:{GPUS}", *_accounts(), *options,
    ]  # fmt: skip
    agent = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"OFFPEAK_AGENT_TOKEN": TOKEN},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield agent.pid
    finally:
        agent.terminate()
        agent.wait()
        free(state_dir)


def _accounts() -> list[str]:
    """Return how work may run here, with an account for each lease where we are root."""
    if os.geteuid() != 0:
        return work_options()
    return ["--work-users", "470000-470031", "--confine", "off"]


def _running(state_dir: Path) -> int:
    try:
        status: dict[str, Any] = ask(state_dir, "status")
    except (NoAnswer, FileNotFoundError):
        return -1
    return sum(lease["state"] == "running" for lease in status["leases"])


def _cpu_seconds(process: int) -> float:
    parts = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def _mib(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text().splitlines()
    (resident,) = [line.split()[1] for line in status if line.startswith("VmRSS:")]
    return int(resident) / KIB_PER_MIB
