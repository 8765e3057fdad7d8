"""Work says in a file up to when it is safe; the agent passes that on, at the latest at its end."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest

from metering.agent.clock import SystemClock
from metering.agent.reconcile import epoch_ms
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.runtimes.saved import VARIABLE, written_ms
from tests.metering.agent.conftest import NOON_MS, Rig
from tests.metering.agent.market import assignment
from tests.metering.agent.workloads import ended, python


def told(rig: Rig, lease: UUID) -> list[tuple[str, int]]:
    return [(each.what, epoch_ms(each.at) - NOON_MS) for each in rig.market.told(lease)]


@pytest.fixture
def lease(simulated_rig: Rig) -> UUID:
    rig = simulated_rig
    lease = rig.market.assign(assignment(rig.uuids()[0], now_ms=NOON_MS))
    rig.step()
    return lease


def test_a_checkpoint_is_reported_once(simulated_rig: Rig, lease: UUID) -> None:
    rig = simulated_rig
    rig.runtime.saved_ms[lease] = NOON_MS + 30_000

    rig.steps(40)

    assert told(rig, lease)[1:] == [("saved", 30_000)]
    assert rig.market.repeated == 0


def test_work_that_saves_itself_all_the_time_is_reported_once_a_minute(
    simulated_rig: Rig, lease: UUID
) -> None:
    rig = simulated_rig
    for _ in range(150):
        rig.runtime.saved_ms[lease] = rig.clock.now_ms()
        rig.step()

    saved = [at for what, at in told(rig, lease) if what == "saved"]
    assert len(saved) == 3
    assert all(later - sooner >= 60_000 for sooner, later in pairwise(saved))


def test_the_last_checkpoint_goes_before_the_end(simulated_rig: Rig, lease: UUID) -> None:
    rig = simulated_rig
    rig.runtime.saved_ms[lease] = NOON_MS + 10_000
    rig.steps(15)
    rig.runtime.saved_ms[lease] = NOON_MS + 20_000
    rig.market.desired.pop(lease)

    rig.steps(8)

    assert [what for what, _ in told(rig, lease)] == ["started", "saved", "saved", "stopped"]
    assert told(rig, lease)[2] == ("saved", 20_000)


def test_an_agent_that_begins_again_does_not_report_it_again(
    simulated_rig: Rig, lease: UUID
) -> None:
    rig = simulated_rig
    rig.runtime.saved_ms[lease] = NOON_MS + 10_000
    rig.steps(5)

    rig.restart()
    rig.steps(5)

    assert [what for what, _ in told(rig, lease)] == ["started", "saved"]


def test_a_file_that_was_touched_means_then(tmp_path: Path) -> None:
    clock = SystemClock()
    file = tmp_path / "checkpoint"
    assert written_ms(file, now_ms=clock.now_ms()) is None
    file.touch()
    os.utime(file, ns=(0, file.stat().st_mtime_ns - 5_000_000_000))

    ago_ms = clock.now_ms() - (written_ms(file, now_ms=clock.now_ms()) or 0)

    assert 5_000 <= ago_ms < 60_000


def test_a_line_says_the_moment(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    file.write_text("2026-01-05T13:30:00+01:00\n")

    assert written_ms(file, now_ms=0) == NOON_MS + 1_800_000


@pytest.mark.parametrize(
    "line", ["soon", "2026-01-05T12:30:00", "1767616200", "\x00", "é", "2026-01-05T12:30:00Z" * 9]
)
def test_what_is_no_moment_says_nothing(tmp_path: Path, line: str) -> None:
    file = tmp_path / "checkpoint"
    file.write_text(line)

    assert written_ms(file, now_ms=NOON_MS) is None


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("2026-01-05T12:30:00Z")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()

    for name in ("link", "pipe", "folder"):
        assert written_ms(tmp_path / name, now_ms=NOON_MS) is None


def test_a_real_process_saves_itself(tmp_path: Path) -> None:
    clock = SystemClock()
    runtime = ProcessRuntime(tmp_path, clock=clock)
    code = f"import os, pathlib; pathlib.Path(os.environ[{VARIABLE!r}]).touch()"
    before_ms = clock.now_ms()
    asked = python(code)
    assert asked.command[0] == sys.executable
    runtime.start(asked)

    work = ended(runtime, asked.lease_id)

    assert work.saved_ms is not None
    slack = timedelta(seconds=1) // timedelta(milliseconds=1)
    assert before_ms - slack <= work.saved_ms <= clock.now_ms()
