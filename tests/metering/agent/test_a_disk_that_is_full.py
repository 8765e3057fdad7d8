"""The disk of a host is full at any time of a lease: work ends in time, and nothing is lost."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest

from metering.agent.clock import SystemClock
from metering.agent.gpus.simulated import SimulatedGpus
from metering.agent.runtimes.port import StartFailed
from metering.agent.runtimes.process import ProcessRuntime
from tests.forking import Fork
from tests.metering.agent.market import Market, assignment, served
from tests.metering.agent.processes import DEADLINE_SECONDS, launch, until
from tests.metering.agent.workloads import ended, spec, state

BYTES = 8 << 20
(GPU,) = (gpu.uuid for gpu in SimulatedGpus(["L4"], clock=SystemClock(), holders=dict).inventory())


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few megabytes."""
    place = tmp_path / "small"
    place.mkdir()
    how = ["mount", "-t", "tmpfs", "-o", f"size={BYTES},mode=0755", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(how, capture_output=True, check=False).returncode:
        pytest.skip("a small disk is made by who may mount one")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Leave no byte of room on a disk."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        size = 1 << 16
        while size:
            try:
                file.write(b"x" * size)
            except OSError as error:
                assert error.errno == errno.ENOSPC
                size //= 2
    yield
    filler.unlink()


def test_work_is_not_begun_where_there_is_no_room_for_its_records(small: Path) -> None:
    runtime, wanted = ProcessRuntime(small, clock=SystemClock()), spec("sleep", "600")
    with full(small), pytest.raises(StartFailed, match="No space left"):
        runtime.start(wanted)

    again = spec("sleep", "600")
    assert runtime.start(again).state in ("starting", "running")
    runtime.kill(again.lease_id)
    ended(runtime, again.lease_id)


def test_work_that_runs_on_a_full_disk_is_known_ended_in_time_and_told(small: Path) -> None:
    """Also to the next agent, which begins on the full disk: the room for it was taken before."""
    runtime, wanted = ProcessRuntime(small, clock=SystemClock()), spec("sleep", "600")
    runtime.start(wanted)
    until(lambda: state(runtime, wanted.lease_id) == "running", what="it runs")
    far_ms = SystemClock().now_ms() + 600_000  # as every lease has a deadline from its start on
    runtime.limit(wanted.lease_id, stop_at_ms=far_ms, kill_at_ms=far_ms)
    with full(small):
        later = ProcessRuntime(small, clock=SystemClock())
        assert [work.state for work in later.works()] == ["running"]
        now_ms = SystemClock().now_ms()
        later.limit(wanted.lease_id, stop_at_ms=now_ms + 100, kill_at_ms=now_ms + 2_000)
        work = ended(later, wanted.lease_id)
        assert (work.stopped, work.lost, work.exit_code) == (True, False, -signal.SIGTERM)


def test_an_agent_killed_and_begun_on_a_full_disk_loses_no_time_of_a_lease(small: Path) -> None:
    with ExitStack() as stack:
        market = stack.enter_context(served(Market(sample_seconds=1, poll_seconds=1)))
        now_ms = SystemClock().now_ms()
        lease = market.assign(assignment(GPU, now_ms=now_ms, command=("sleep", "4")))
        home = small / "agent"
        agent = launch(market, home, "none:0")
        stack.callback(agent.kill)
        until(lambda: "started" in told(market, lease), what="it starts")
        with full(small):
            agent.kill()
            agent.wait()
            agent = launch(market, home, "none:0")
            stack.callback(agent.kill)
            folder = home / "leases" / str(lease)
            until((folder / "exit.json").exists, what="the work ends")
            assert agent.poll() is None, "the agent stands the full disk"

        until(lambda: "exited" in told(market, lease), what="its end is told")
        end_ms = truth(home, folder)[1]
        until(
            lambda: [each.end_ms for each in market.intervals(lease, GPU)][-1:] == [end_ms],
            what="all its time is there",
        )
        stop(agent)
        intervals = market.intervals(lease, GPU)
        assert told(market, lease) == ["started", "exited"]
        assert intervals[0].start_ms == truth(home, folder)[0]
        assert all(first.end_ms == then.start_ms for first, then in pairwise(intervals))


def test_an_agent_that_begins_on_a_full_disk_has_a_clock(small: Path) -> None:
    """It cannot keep the offset; work that runs is ended in time all the same."""
    with full(small):
        clock = SystemClock.kept_in(small / "clock.json", work_runs=True)
        assert abs(clock.now_ms() - SystemClock().now_ms()) < 1_000
    assert not (small / "clock.json").exists()


def told(market: Market, lease: UUID) -> list[str]:
    return [report.what for report in market.told(lease)]


def truth(home: Path, folder: Path) -> tuple[int, int]:
    """Return when the work began and ended, by its keeper's own records."""
    offset_ns = json.loads((home / "clock.json").read_text())["offset_ns"]
    began, over = (
        json.loads((folder / name).read_text())["boot_ns"] for name in ("started.json", "exit.json")
    )
    return (began + offset_ns) // 1_000_000, (over + offset_ns) // 1_000_000


def stop(agent: Fork) -> None:
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(DEADLINE_SECONDS) == 0
