"""Processes on a GPU belong to a lease by control group, family or account, and by nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from metering.agent.clock import SystemClock
from metering.agent.runtimes.family import stat_of
from metering.agent.runtimes.groups import all_of
from metering.agent.runtimes.owning import Owners, groups_in
from metering.agent.runtimes.podman import Podman
from metering.agent.runtimes.process import ProcessRuntime
from tests.metering.agent.conftest import NOON_MS, Rig
from tests.metering.agent.containers import ContainerRuntime
from tests.metering.agent.containers import image as image
from tests.metering.agent.containers import podman as podman
from tests.metering.agent.market import assignment
from tests.metering.agent.workloads import containers as containers
from tests.metering.agent.workloads import end_all, spec, until
from tests.metering.agent.workloads import processes as processes
from tests.metering.agent.works import PYTHON, ROOT, accounts, let_through
from tests.nvml.script import Proc

LEASE, OTHER = UUID(int=1), UUID(int=2)
POD = "libpod-" + "ab" * 32
ORPHAN = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        print(os.getpid(), flush=True)
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        (f"4:memory:/offpeak/{LEASE}\n0::/\n", [f"offpeak/{LEASE}"]),
        (f"0::/offpeak/{LEASE}/inner\n", [f"offpeak/{LEASE}"]),
        (f"4:memory:/libpod_parent/{POD}\n", [POD]),
        (f"0::/machine.slice/{POD}.scope/container\n", [POD]),
        (f"0::/x/{POD}/y/libpod-{'cd' * 32}\n", [POD]),
        ("4:memory:/slurm_n1/uid_0/job_12/step_batch/task_0\n", ["/slurm_n1/uid_0/job_12"]),
        ("0::/system.slice/slurmstepd.scope/job_7/step_0/user\n", [
            "/system.slice/slurmstepd.scope/job_7"
        ]),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", []),
        (f"0::/not-offpeak{LEASE}\n0::/libpod-short\n", []),
        ("", []),
    ],
)  # fmt: skip
def test_a_group_is_named_by_what_is_one_leases_alone(text: str, groups: list[str]) -> None:
    assert list(groups_in(text)) == groups


@contextmanager
def living(*command: str, **options: Any) -> Iterator[int]:
    process = subprocess.Popen(command or ("sleep", "600"), **options)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def root_of(pid: int) -> dict[str, Any]:
    stat = stat_of(pid)
    assert stat is not None
    return {"pid": pid, "ticks": stat.ticks}


def asked(owners: Owners, pid: int, roots: dict[UUID, dict[str, Any]]) -> UUID | None:
    sessions = {root["pid"]: lease for lease, root in roots.items()}
    return owners.owner(pid, roots=roots, tops={}, sessions=sessions, accounts={})


def test_what_is_in_a_containers_group_is_its_leases_though_no_child_of_it() -> None:
    with living() as first, living() as entered, living() as other:
        groups = {first: [POD], entered: [POD], other: ["libpod-" + "cd" * 32]}
        owners = Owners(groups=lambda pid: groups.get(pid, []))
        roots = {LEASE: root_of(first)}

        assert asked(owners, entered, roots) == LEASE
        assert asked(owners, other, roots) is None
        assert asked(owners, entered, {}) is None, "the lease is over"


def test_a_group_that_the_agent_is_in_as_well_says_nothing() -> None:
    """An agent that runs as a job of a cluster has its leases and itself in one group."""
    with living() as first, living() as other:
        owners = Owners(groups=lambda _: ["/slurm/job_5"])

        assert asked(owners, other, {LEASE: root_of(first)}) is None


def test_a_session_whose_leaders_id_went_to_another_process_is_no_leases() -> None:
    with living(start_new_session=True) as leader:
        root = root_of(leader)
        owners = Owners(groups=lambda _: [])

        assert asked(owners, leader, {LEASE: root}) == LEASE
        assert asked(owners, leader, {LEASE: root | {"ticks": root["ticks"] - 1}}) is None


def test_what_forks_twice_and_outlives_its_parents_is_still_its_leases(
    processes: ProcessRuntime, tmp_path: Path
) -> None:
    wanted = spec(sys.executable, "-c", ORPHAN)
    processes.start(wanted)
    output = tmp_path / "leases" / str(wanted.lease_id) / "stdout.log"
    until(lambda: output.exists() and output.read_text().endswith("\n"))

    orphan = int(output.read_text())
    stat = stat_of(orphan)
    assert stat is not None and stat.session == orphan
    assert processes.lease_of(orphan) == wanted.lease_id
    assert processes.lease_of(os.getpid()) is None


@ROOT
def test_what_is_put_into_a_leases_control_group_or_has_its_account_is_its_own(
    tmp_path: Path,
) -> None:
    let_through(tmp_path)
    users = accounts(1)
    runtime = ProcessRuntime(tmp_path / "state", clock=SystemClock(), users=users)
    wanted = spec("sleep", "600")
    runtime.start(wanted)
    try:
        with living() as put, living(user=users.uids[0]) as of_account:
            made = all_of(str(wanted.lease_id))
            if not made:
                pytest.skip("control groups are not ours here")
            assert runtime.lease_of(put) is None
            (made[0] / "cgroup.procs").write_text(str(put))

            assert runtime.lease_of(put) == wanted.lease_id
            assert runtime.lease_of(of_account) == wanted.lease_id
    finally:
        end_all(runtime)


def test_what_podman_enters_into_a_container_is_its_leases(
    containers: ContainerRuntime, podman: Podman
) -> None:
    wanted = spec("sleep", "600")
    containers.start(wanted)
    name = podman.call("ps", "--format", "{{.Names}}").stdout.split()[0]
    command = [*podman.command, "exec", name, PYTHON, "-c", "import time; time.sleep(599)"]
    entered = subprocess.Popen(command, env={**os.environ, **podman.variables})
    try:
        inside = until(lambda: next((pid for pid in _pids() if _runs(pid)), None))
        assert isinstance(inside, int)
        assert containers.lease_of(inside) == wanted.lease_id
        assert containers.lease_of(entered.pid) is None, "podman itself is outside"
    finally:
        entered.send_signal(signal.SIGKILL)
        entered.wait()


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _runs(pid: int) -> bool:
    """Tell if this is the program that was entered, and not podman, which has it in its words."""
    try:
        said = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return said[0] == PYTHON.encode() and b"sleep(599)" in said[2]


def test_an_id_that_went_to_another_lease_brings_nothing_to_the_one_before(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rig.script is not None
    one, two = (
        rig.market.assign(
            assignment(f"GPU-a/timeslice-{n}of2/50pct-40960mib", now_ms=NOON_MS, seconds=102)
        )
        for n in (1, 2)
    )
    rig.agent.run_once()
    pid, owner = 4_100_000, {NOON_MS: one, NOON_MS + 40_000: two}
    known = rig.runtime.lease_of

    def lease_of(asked: int) -> UUID | None:
        at = max(since for since in owner if since <= rig.clock.now_ms())
        return owner[at] if asked == pid else known(asked)

    monkeypatch.setattr(rig.runtime, "lease_of", lease_of)
    loads = {
        one: rig.script.proc(Proc(0, pid, sm=50, start_ms=NOON_MS, end_ms=NOON_MS + 20_000)),
        two: rig.script.proc(
            Proc(0, pid, sm=30, start_ms=NOON_MS + 40_000, end_ms=NOON_MS + 80_000)
        ),
    }
    rig.steps(115)

    for lease, load in loads.items():
        busy_ms = sum(each.busy_ms or 0 for each in rig.market.intervals(lease))
        assert abs(busy_ms - load.busy_ms(NOON_MS, NOON_MS + 100_000)) <= 1_000
