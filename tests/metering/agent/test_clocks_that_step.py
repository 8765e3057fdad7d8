"""The wall clock of a host is set an hour forth or back under work: its measure stays whole."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from metering.agent.clock import ManualClock, SystemClock
from tests.metering.agent.conftest import NOON_MS, Rig
from tests.metering.agent.delivered import granted, sent
from tests.metering.agent.market import Market, assignment
from tests.nvml.script import Proc, Script

SECOND = 1_000
HOUR_MS = 3_600_000
STEPS = pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])


class Stepped(ManualClock):
    """A clock whose wall can be set without any time going by."""

    ahead_ms = 0

    def wall_us(self) -> int:
        return super().wall_us() + self.ahead_ms * 1000


class SteppedRig(Rig):
    """An agent on the scripted driver, which dates its samples by the wall clock."""

    def __init__(self, state_dir: Path, market: Market, script: Script) -> None:
        super().__init__(state_dir, market, script)
        self.agent.close()
        self.clock = Stepped(NOON_MS)
        self.runtime = type(self.runtime)(clock=self.clock)
        self.agent = self.make()

    def step(self, milliseconds: int = 1000) -> None:
        self.clock.advance(milliseconds)
        assert self.script is not None and isinstance(self.clock, Stepped)
        self.script.at(self.clock.wall_us() // 1000)
        self.agent.run_once()


@STEPS
def test_what_is_granted_and_busy_is_as_if_nobody_had_set_the_clock(
    tmp_path: Path, market: Market, script: Script, step_ms: int
) -> None:
    rig = SteppedRig(tmp_path / "state", market, script)
    lease = market.assign(assignment("GPU-a", now_ms=NOON_MS, command=("sleep", "300")))
    rig.step(0)
    script.proc(Proc(0, rig.pid("GPU-a"), sm=40, start_ms=NOON_MS + min(0, step_ms)))
    rig.steps(60)
    assert isinstance(rig.clock, Stepped)
    rig.clock.ahead_ms = step_ms
    rig.steps(260)
    sent(rig)
    rig.agent.close()

    intervals = market.intervals(lease)
    assert granted(intervals) == 300 * SECOND
    busy = sum(each.busy_ms or 0 for each in intervals)
    unknown = sum(each.granted_ms for each in intervals if each.busy_ms is None)
    assert all((each.busy_ms or 0) <= each.granted_ms for each in intervals)
    assert 120 * SECOND - (unknown + 2 * SECOND) <= busy <= 120 * SECOND
    assert unknown <= 20 * SECOND


@STEPS
def test_the_agents_own_time_knows_no_step_while_work_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_ms: int
) -> None:
    """Neither while it runs nor when it is started again; with nothing running it is taken anew."""
    real, file = time.time_ns, tmp_path / "clock.json"
    clock = SystemClock.kept_in(file, work_runs=False)
    before_ms = clock.now_ms()
    monkeypatch.setattr(time, "time_ns", lambda: real() + step_ms * 1_000_000)

    later = SystemClock.kept_in(file, work_runs=True)
    for each in (clock, later):
        assert 0 <= each.now_ms() - before_ms < 60_000
    anew = SystemClock.kept_in(file, work_runs=False)

    assert abs(anew.now_ms() - before_ms - step_ms) < 60_000
    assert json.loads(file.read_text())["offset_ns"] == anew.offset_ns
