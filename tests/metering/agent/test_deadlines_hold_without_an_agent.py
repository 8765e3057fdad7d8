"""The keeper ends work at its deadline with the agent killed, hung, or gone with all its files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from metering.agent.clock import SystemClock
from metering.agent.gpus.simulated import SimulatedGpus
from metering.agent.runtimes import keeper
from metering.agent.runtimes.family import stat_of
from metering.agent.runtimes.port import WorkSpec
from metering.agent.runtimes.process import ProcessRuntime
from tests.metering.agent.market import Market, assignment, served
from tests.metering.agent.processes import launch
from tests.metering.agent.works import (
    ROOT,
    accounts,
    ended,
    let_through,
    program,
    running,
    said,
    until,
)

HERE = Path(__file__).resolve().parents[3]
CLOCK = SystemClock()
(GPU,) = (gpu.uuid for gpu in SimulatedGpus(["L4"], clock=CLOCK, holders=dict).inventory())

STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork():
        os._exit(0)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[ProcessRuntime]:
    runtime = ProcessRuntime(tmp_path, clock=CLOCK)
    yield runtime
    for work in runtime.works():
        runtime.kill(work.lease_id)


def limited(stop_in_ms: int, kill_in_ms: int) -> WorkSpec:
    now_ms = CLOCK.now_ms()
    return replace(
        program(STUBBORN), stop_at_ms=now_ms + stop_in_ms, kill_at_ms=now_ms + kill_in_ms
    )


def end_of(folder: Path, lease_id: UUID) -> dict[str, object]:
    """Return the keeper's own record of the end, without a runtime that could have helped."""
    path = folder / "leases" / str(lease_id) / "exit.json"
    until(path.exists)
    found: dict[str, object] = json.loads(path.read_text())
    return found


def processes_of(folder: Path, lease_id: UUID) -> list[int]:
    root = json.loads((folder / "leases" / str(lease_id) / "started.json").read_text())
    return [root["pid"], root["keeper_pid"]]


def test_it_asks_once_and_kills_all_at_the_deadline(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    wanted = limited(2_500, 3_500)
    runtime.start(wanted)

    end = end_of(tmp_path, wanted.lease_id)

    assert (end["exit_code"], end["stopped"]) == (-signal.SIGKILL, True)
    at_ms = CLOCK.at_boot_ns(int(str(end["boot_ns"])))
    assert wanted.kill_at_ms is not None
    assert wanted.kill_at_ms <= at_ms < wanted.kill_at_ms + 5_000
    assert said(tmp_path, wanted).splitlines().count("asked") <= 1
    work = ended(runtime, wanted.lease_id)
    assert work.stopped and not work.lost


def test_a_deadline_moves_both_ways(runtime: ProcessRuntime, tmp_path: Path) -> None:
    longer, shorter = limited(1_500, 1_500), limited(600_000, 600_000)
    runtime.start(longer)
    runtime.start(shorter)
    now_ms = CLOCK.now_ms()

    runtime.limit(longer.lease_id, stop_at_ms=now_ms + 600_000, kill_at_ms=now_ms + 600_000)
    runtime.limit(shorter.lease_id, stop_at_ms=now_ms + 100, kill_at_ms=now_ms + 300)

    ended(runtime, shorter.lease_id)
    until(lambda: CLOCK.now_ms() > now_ms + 2_500)
    assert {work.lease_id: work.state for work in runtime.works()}[longer.lease_id] == "running"


@pytest.mark.parametrize("garbage", ["", "{", "[]", '{"stop_ns": "1", "kill_ns": true}', "\0" * 99])
def test_what_cannot_be_read_leaves_the_deadline_as_it_was(
    runtime: ProcessRuntime, tmp_path: Path, garbage: str
) -> None:
    wanted = limited(1_000, 1_200)
    runtime.start(wanted)
    until(lambda: "ready" in said(tmp_path, wanted))

    (tmp_path / "leases" / str(wanted.lease_id) / "deadline.json").write_text(garbage)

    assert end_of(tmp_path, wanted.lease_id)["stopped"] is True


def test_work_ends_though_everything_of_the_agent_was_removed(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    wanted = limited(1_500, 1_700)
    runtime.start(wanted)
    until(lambda: "ready" in said(tmp_path, wanted))
    pids = processes_of(tmp_path, wanted.lease_id)

    shutil.rmtree(tmp_path / "leases")

    until(lambda: not any(alive(pid) for pid in pids), why="the work outlives its lease")


def alive(pid: int) -> bool:
    stat = stat_of(pid)
    return stat is not None and stat.state not in "ZX"


def test_work_that_slept_over_its_deadline_is_asked_before_it_is_killed() -> None:
    stop_ns, kill_ns = keeper._boot_ns() - 60_000_000_000, keeper._boot_ns() - 50_000_000_000
    kept = keeper.Kept(Path("/nonexistent"), {}, 1)
    kept._deadline = keeper.Deadline(stop_ns, kill_ns)
    kept.asked_ns = keeper._boot_ns()

    due_ns = kept._kill_ns()

    assert due_ns is not None and due_ns - kept.asked_ns == keeper.LATE_GRACE_NS


@ROOT
@pytest.mark.parametrize("confined", [False, True], ids=["account", "bubblewrap"])
def test_it_holds_for_every_way_of_running(tmp_path: Path, confined: bool) -> None:
    folder = tmp_path / "state"
    with running(folder, users=accounts(), confined=confined) as runtime:
        wanted = limited(2_000, 4_000)
        runtime.start(wanted)
        until(lambda: "asked" in said(folder, wanted), why="it was never asked to end")

        end = end_of(folder, wanted.lease_id)

        assert (end["exit_code"], end["stopped"]) == (-signal.SIGKILL, True)


# --- with an agent of its own that is killed -----------------------------------------------------


@pytest.fixture
def host(tmp_path: Path) -> Iterator[tuple[Market, Path]]:
    let_through(tmp_path / "state")
    with served(Market(sample_seconds=1, poll_seconds=1)) as market:
        yield market, tmp_path / "state"


def reports(market: Market, lease_id: UUID) -> list[str]:
    return [report.what for report in market.told(lease_id)]


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
def test_a_reclaim_told_before_the_agent_fell_is_carried_out(
    host: tuple[Market, Path], sent: signal.Signals
) -> None:
    market, state_dir = host
    lease_id = market.assign(assignment(GPU, now_ms=CLOCK.now_ms(), command=("sleep", "600")))
    agent = launch(market, state_dir, "none:0")
    try:
        until(lambda: "started" in reports(market, lease_id))
        wanted = market.desired[lease_id]
        stop_at = datetime.now(UTC) + timedelta(seconds=5)
        market.assign(replace(wanted, phase="warn", stop_at=stop_at, grace_seconds=1))
        deadline = state_dir / "leases" / str(lease_id) / "deadline.json"
        first = json.loads(deadline.read_text())
        until(lambda: json.loads(deadline.read_text()) != first, why="no keeper was told")
        agent.send_signal(sent)

        end = end_of(state_dir, lease_id)

        assert (end["exit_code"], end["stopped"]) == (-signal.SIGTERM, True)
        assert time.time() < stop_at.timestamp() + 5
    finally:
        agent.kill()
        agent.wait()
    again = launch(market, state_dir, "none:0")
    try:
        until(lambda: reports(market, lease_id) == ["started", "stopped"])
    finally:
        again.send_signal(signal.SIGTERM)
        assert again.wait() == 0
    assert not any(alive(pid) for pid in processes_of(state_dir, lease_id))
    assert market.told(lease_id)[-1].detail == "the lease's time is over"


def test_the_agents_own_user_may_write_the_deadline_and_nobody_else(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    wanted = limited(600_000, 600_000)
    runtime.start(wanted)

    about = (tmp_path / "leases" / str(wanted.lease_id) / "deadline.json").stat()

    assert (about.st_uid, about.st_mode & 0o777) == (os.geteuid(), 0o600)
