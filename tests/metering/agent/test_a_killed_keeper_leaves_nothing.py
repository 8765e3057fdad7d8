"""kill -9 of a keeper at any step: its work is over, told as it was, and nothing is left of it."""

from __future__ import annotations

from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from metering.agent.clock import SystemClock
from metering.agent.runtimes import keeper
from metering.agent.runtimes.port import StartFailed, WorkSpec
from metering.agent.runtimes.process import ProcessRuntime
from tests.metering.agent.doomed_keepers import doomed_at
from tests.metering.agent.workloads import ended, spec, until

TOGETHER = 16
"""Keepers that are killed beside one another."""
PLACES = {
    "keep": range(1, 450, 7),  # until it has written down that the work began
    "write_json": range(1, 70, 3),
    "_watch": range(1, 4_000, 500),
    "_end": range(1, 80, 4),
}
"""Where calls are counted from, and after how many a keeper dies: a start makes some 430."""


def is_gone(mark: str) -> bool:
    """Tell if no process lives whose environment has a word, or its command line."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            said = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if mark.encode() in said:
            return False
    return True


def is_empty(runtime: ProcessRuntime) -> bool:
    return not (runtime.works() or runtime._leaving)


def begin(runtime: ProcessRuntime, place: str, at: int, folder: Path) -> WorkSpec | None:
    """Start work whose keeper is doomed, and that ends by its deadline; None: it was refused."""
    wanted = spec(
        "/bin/sh",
        "-c",
        f"echo >> {folder / f'{place}-{at}.ran'}; sleep 600 & exec sleep 600",
        DOOM=f"{folder.name}-{place}-{at}.",
    )
    script = str(doomed_at(place, at, folder))
    before, keeper.__file__ = keeper.__file__, script
    now_ms = SystemClock().now_ms()
    try:
        runtime.start(wanted)
    except StartFailed:
        return None
    finally:
        keeper.__file__ = before
    runtime.limit(wanted.lease_id, stop_at_ms=now_ms + 1_000, kill_at_ms=now_ms + 2_000)
    return wanted


@pytest.mark.parametrize("place", PLACES)
def test_at_whatever_call_a_keeper_is_killed_its_work_is_over_and_began_once_at_most(
    tmp_path: Path, place: str
) -> None:
    dooms = iter(PLACES[place])
    while some := list(islice(dooms, TOGETHER)):
        runtime = ProcessRuntime(tmp_path / f"host-{some[0]}", clock=SystemClock())
        begun = {at: begin(runtime, place, at, tmp_path) for at in some}
        for at, wanted in begun.items():
            if wanted is not None:
                work = ended(runtime, wanted.lease_id)
                assert work.lost or work.stopped, at
            mark = f"{tmp_path.name}-{place}-{at}."
            until(partial(is_gone, mark), why=f"work of keeper {at} lives")
            ran = tmp_path / f"{place}-{at}.ran"
            assert not ran.exists() or ran.read_text() == "\n", at
            if wanted is not None:
                runtime.forget(wanted.lease_id)
        until(partial(is_empty, runtime), why="it stays")
