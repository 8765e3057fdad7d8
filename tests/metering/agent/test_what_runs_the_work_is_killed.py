"""What runs the work is killed with -9, as by an administrator or for want of memory."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from metering.agent.runtimes import keeper
from metering.agent.runtimes.family import descendants, stat_of
from metering.agent.runtimes.port import StartFailed
from tests.metering.agent.containers import ContainerRuntime
from tests.metering.agent.containers import image as image
from tests.metering.agent.containers import podman as podman
from tests.metering.agent.doomed_keepers import doomed_at
from tests.metering.agent.workloads import containers as containers
from tests.metering.agent.works import ROOT, accounts, ended, program, running, state, until

pytestmark = ROOT
LASTS = program("import time; time.sleep(600)")


def test_work_whose_bubblewrap_is_killed_is_over_and_its_card_is_free(work_folder: Path) -> None:
    with running(work_folder, users=accounts(2), confined=True) as runtime:
        runtime.start(LASTS)
        root = runtime._roots[LASTS.lease_id]["pid"]
        until(lambda: len(descendants(root)) > 1)
        below = descendants(root)

        os.kill(root, signal.SIGKILL)

        ended(runtime, LASTS.lease_id)
        assert not any(runtime.holders().values())
        until(lambda: not any(stat_of(each.pid) == each for each in below))


def test_work_whose_conmon_is_killed_goes_on_and_ends_when_it_has_to(
    containers: ContainerRuntime,
) -> None:
    """It prints past conmon, and its deadline is kept by its keeper, so nothing has to end."""
    containers.start(LASTS)
    lease_id = LASTS.lease_id
    root = stat_of(containers._roots[lease_id]["pid"])
    assert root is not None
    conmon = stat_of(root.parent)
    assert conmon is not None and conmon.name == "conmon"

    os.kill(conmon.pid, signal.SIGKILL)

    until(lambda: stat_of(conmon.pid) != conmon)
    assert stat_of(root.pid) is not None and state(containers, lease_id) == "running"
    containers.kill(lease_id)
    assert ended(containers, lease_id).exit_code == -signal.SIGKILL
    assert stat_of(root.pid) is None and not any(containers.holders().values())
    containers.forget(lease_id)
    podman = containers._containers.podman  # type: ignore[union-attr]
    until(lambda: not podman.call("ps", "--all", "--quiet").stdout.strip())


def test_a_container_whose_keeper_is_killed_before_it_wrote_of_it_is_gone(
    containers: ContainerRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its command runs by then, and no record says so."""
    script = doomed_at("put", 1, tmp_path)
    monkeypatch.setattr(keeper, "__file__", str(script))

    with pytest.raises(StartFailed, match="died at its start"):
        containers.start(LASTS)

    podman = containers._containers.podman  # type: ignore[union-attr]
    until(lambda: not podman.call("ps", "--all", "--quiet").stdout.strip())
