"""What takes long for one lease, at its start or its end: the others go on in time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from metering.agent import acting
from metering.agent.agent import Agent, AgentConfig
from metering.agent.clock import SystemClock
from metering.agent.files.ways import remove_all_but
from metering.agent.gpus.simulated import SimulatedGpus
from metering.agent.runtimes import beside, copying, disks, keeper, launching
from metering.agent.runtimes.beside import Beside
from metering.agent.runtimes.launching import Launch
from metering.agent.runtimes.limits import LIMITS
from metering.agent.runtimes.port import Coming, NotYet, StartFailed, WorkSpec
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.runtimes.records import bytes_in
from metering.agent.uplink import HttpUplink
from tests.metering.agent.market import TOKEN, Market, assignment
from tests.metering.agent.works import (
    ROOT,
    accounts,
    ended,
    let_through,
    mounted,
    program,
    running,
    until,
)

IN_TIME_SECONDS = 3.0
FIRST, SECOND = UUID(int=1), UUID(int=2)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(acting, "COMING_SAID_MS", 200)


class Slow:
    """Something that takes until it is let go, for one lease."""

    def __init__(self) -> None:
        self.goes, self.entered = threading.Event(), threading.Event()

    def hold(self) -> None:
        self.entered.set()
        assert self.goes.wait(60)


@contextmanager
def agent_on(folder: Path, market: Market) -> Iterator[tuple[Agent, list[str]]]:
    """Give an agent at work, with two cards, and end what runs in the end."""
    let_through(folder)
    market.sample_seconds = market.poll_seconds = 1
    clock = SystemClock()
    runtime = ProcessRuntime(folder / "state", clock=clock)
    gpus = SimulatedGpus(["H100"] * 2, clock=clock, holders=runtime.holders)
    agent = Agent(
        AgentConfig(state_dir=folder / "state", hostname="h1", tick_ms=50),
        gpus=gpus,
        runtime=runtime,
        uplink=HttpUplink(market.url, TOKEN),
        clock=clock,
    )
    stop = threading.Event()
    thread = threading.Thread(target=agent.run, args=[stop])
    thread.start()
    try:
        yield agent, [each.uuid for each in gpus.inventory()]
    finally:
        stop.set()
        thread.join()
        for work in runtime.works():
            runtime.kill(work.lease_id)
            ended(runtime, work.lease_id)
        agent.close()


def told(market: Market, lease_id: UUID) -> list[str]:
    return [each.what for each in market.told(lease_id)]


def sleeping(market: Market, gpu: str, lease_id: UUID, seconds: str = "600") -> UUID:
    wanted = assignment(
        gpu, now_ms=SystemClock().now_ms(), command=("sleep", seconds), lease_id=lease_id
    )
    return market.assign(wanted)


def reclaimed_in_time(market: Market, lease_id: UUID) -> None:
    """Take a lease's card back, now, and see its work end in time and be metered so far."""
    known = market.desired[lease_id]
    asked = time.monotonic()
    market.desired[lease_id] = replace(known, phase="stop", stop_at=datetime.now(UTC))
    until(lambda: "stopped" in told(market, lease_id))
    assert time.monotonic() - asked < IN_TIME_SECONDS
    until(lambda: market.intervals(lease_id))


def test_a_lease_is_reclaimed_in_time_while_the_files_of_another_are_laid_out(
    market: Market, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, prepare = Slow(), Launch.prepare

    def prepared(launch: Launch, stop: threading.Event) -> int:
        if launch.spec.lease_id == FIRST:
            slow.hold()
        return prepare(launch, stop)

    monkeypatch.setattr(Launch, "prepare", prepared)
    with agent_on(tmp_path, market) as (_, cards):
        sleeping(market, cards[0], FIRST)
        assert slow.entered.wait(60)
        sleeping(market, cards[1], SECOND)
        until(lambda: told(market, SECOND) == ["started"])
        until(lambda: told(market, FIRST) == ["fetching"])

        reclaimed_in_time(market, SECOND)

        slow.goes.set()
        until(lambda: told(market, FIRST) == ["fetching", "started"])


def test_a_lease_is_reclaimed_in_time_while_the_files_of_another_are_erased(
    market: Market, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, erased = Slow(), bytes_in

    def counted(*folders: Path) -> int:
        if str(FIRST) in str(folders[0]):
            slow.hold()
        return erased(*folders)

    monkeypatch.setattr("metering.agent.runtimes.leaving.bytes_in", counted)
    with agent_on(tmp_path, market) as (_, cards):
        sleeping(market, cards[0], FIRST, "0")
        sleeping(market, cards[1], SECOND)
        until(lambda: "exited" in told(market, FIRST) and told(market, SECOND) == ["started"])
        del market.desired[FIRST]
        assert slow.entered.wait(60)

        reclaimed_in_time(market, SECOND)

        assert (tmp_path / "state" / "leases" / str(FIRST)).exists()
        assert not any(str(FIRST) in each.detail for each in market.health())
        slow.goes.set()
        until(lambda: (tmp_path / "state" / "ended" / str(FIRST)).exists())
        until(lambda: any(str(FIRST) in each.detail for each in market.health()))


def test_a_keeper_that_hangs_at_its_start_is_not_waited_for(
    market: Market, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = tmp_path / "hanging.py"
    hanging.write_text("import sys, time\nsys.stdin.read()\ntime.sleep(600)\n")
    with agent_on(tmp_path, market) as (agent, cards):
        sleeping(market, cards[1], SECOND)
        until(lambda: told(market, SECOND) == ["started"])
        monkeypatch.setattr(keeper, "__file__", str(hanging))
        sleeping(market, cards[0], FIRST)
        until(lambda: (tmp_path / "state" / "leases" / str(FIRST) / "spec.json").exists())

        reclaimed_in_time(market, SECOND)

        assert told(market, FIRST) == []
        agent.heed("released")  # kills it too
        until(lambda: told(market, FIRST) == ["failed"])


def test_a_start_that_is_given_up_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, prepare = Slow(), Launch.prepare

    def prepared(launch: Launch, stop: threading.Event) -> int:
        launch.folder.mkdir()
        assert stop.wait(60)
        return prepare(launch, stop)

    monkeypatch.setattr(Launch, "prepare", prepared)
    let_through(tmp_path)
    runtime = ProcessRuntime(tmp_path, clock=SystemClock())
    wanted = program("pass")
    with pytest.raises(Coming):
        runtime.start(wanted)

    runtime.forget(wanted.lease_id)

    until(lambda: not runtime.works() and not any((tmp_path / "leases").iterdir()))
    assert not any((tmp_path / "ended").iterdir())
    monkeypatch.setattr(Launch, "prepare", prepare)
    slow.goes.set()
    until_started(runtime, wanted.lease_id, tmp_path)


def until_started(runtime: ProcessRuntime, lease_id: UUID, folder: Path) -> None:
    wanted = replace(program("print('here', flush=True)"), lease_id=lease_id)

    until(lambda: started(runtime, wanted))
    assert ended(runtime, lease_id).exit_code == 0
    runtime.forget(lease_id)
    until(lambda: not any((folder / "leases").iterdir()))


@ROOT
def test_a_kill_while_a_volume_is_copied_costs_no_fetching_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = replace(LIMITS, disk_bytes=32 << 20)
    users = accounts()
    wanted = mounted(tmp_path, program("print(open('volumes/data/a').read(), flush=True)"))
    copy, killed_now = copying.copy, threading.Event()

    def copied(source: Path, target: Path | int, stop: threading.Event) -> None:
        assert killed_now.wait(60)
        raise SystemExit

    with running(tmp_path, users=users, confined=False, limits=limits) as killed:
        if dict(killed.sandbox.enforces)["disk"] == "":
            pytest.skip("this host gives leases no file system of their own")
        monkeypatch.setattr(launching, "copy", copied)
        monkeypatch.setattr(beside, "WAIT_SECONDS", 2.0)
        with pytest.raises(Coming):
            killed.start(wanted)
        assert os.path.ismount(tmp_path / "leases" / str(wanted.lease_id) / "work")
        monkeypatch.setattr(launching, "copy", copy)
        killed_now.set()
        until(lambda: not killed._preparing.runs(wanted.lease_id))

        with running(tmp_path, users=users, confined=False, limits=limits) as runtime:
            until(lambda: not runtime.works() and started(runtime, wanted))
            assert ended(runtime, wanted.lease_id).exit_code == 0
            said = tmp_path / "leases" / str(wanted.lease_id) / "stdout.log"
            assert said.read_text() == "volumes/data\n"
            assert (wanted.volumes[0].folder / "a").read_text() == "volumes/data"


def started(runtime: ProcessRuntime, wanted: WorkSpec) -> bool:
    try:
        return bool(runtime.start(wanted))
    except NotYet:
        return False


def test_a_disk_that_is_held_is_taken_away_when_it_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_through(tmp_path)
    monkeypatch.setattr(beside, "WAIT_SECONDS", 5.0)
    runtime = ProcessRuntime(tmp_path, clock=SystemClock())
    wanted = program("open('left', 'w').write('x' * 9000)")
    runtime.start(wanted)
    ended(runtime, wanted.lease_id)
    held = [True]
    monkeypatch.setattr(disks, "remove", lambda folder: not held[0])

    runtime.forget(wanted.lease_id)

    assert list(runtime.works()) == []
    assert runtime.wiped(wanted.lease_id) is None
    with pytest.raises(NotYet):
        runtime.start(wanted)
    held.clear()
    held.append(False)
    until(lambda: not runtime.works() and runtime.wiped(wanted.lease_id))


def test_a_copy_ends_when_it_is_told_and_with_its_parent(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    os.mkfifo(source / "pipe")
    (source / "a").write_text("a")
    stop = threading.Event()
    copying.copy(source, target, stop)
    assert (target / "a").read_text() == "a"

    stop.set()
    (source / "large").write_bytes(bytes(64 << 20))
    with pytest.raises(OSError, match="not copied in time"):
        copying.copy(source, target, stop)

    with pytest.raises(OSError, match="No such file"):
        copying.copy(tmp_path / "nowhere", target, threading.Event())


def test_an_errand_is_waited_for_a_moment_and_asked_again() -> None:
    errands: Beside[str] = Beside("errands")
    slow = Slow()

    def work(_: threading.Event) -> str:
        slow.hold()
        return "done"

    first, second = uuid4(), uuid4()
    assert errands.ask(first, work) is None
    began = time.monotonic()
    assert errands.ask(second, work) is None  # not even a moment: one is slow already
    assert time.monotonic() - began < 0.05
    assert errands.runs(first) and first in errands
    slow.goes.set()
    until(lambda: not errands.runs(first) and not errands.runs(second))
    assert [errands.ask(each, work) for each in (first, second)] == ["done", "done"]
    assert first not in errands


def test_what_an_errand_raises_is_raised_to_who_asks() -> None:
    errands: Beside[str] = Beside("errands")

    def work(_: threading.Event) -> str:
        raise StartFailed("no")

    def ask() -> bool:
        return errands.ask(FIRST, work) is not None

    with pytest.raises(StartFailed):
        until(ask)


def test_what_earlier_runs_left_is_out_of_the_way_at_once(tmp_path: Path) -> None:
    for each in (FIRST, SECOND):
        (tmp_path / str(each) / "files").mkdir(parents=True)

    remove_all_but([SECOND], tmp_path)

    assert not (tmp_path / str(FIRST)).exists()
    until(lambda: [each.name for each in tmp_path.iterdir()] == [str(SECOND)])
