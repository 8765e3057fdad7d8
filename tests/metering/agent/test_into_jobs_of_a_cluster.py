"""Jobs on a Slurm cluster: what their work is handed in memory, and the door into them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from metering.agent import sealing
from metering.agent.abilities import abilities_of
from metering.agent.clock import SystemClock
from metering.agent.runtimes.family import of_user
from metering.agent.runtimes.limits import Limits
from metering.agent.runtimes.port import StartFailed, WorkSpec
from metering.agent.runtimes.slurm import SlurmRuntime
from metering.agent.runtimes.slurm_secrets import Handover, is_in_memory
from tests.marketplace.secrets.hunting import files_with
from tests.metering.agent.cluster import TOGETHER, Cluster, JobsRuntime, of_cluster
from tests.metering.agent.doors import SERVES, Reached
from tests.metering.agent.hunted import OTHER, VALUE, processes_with
from tests.metering.agent.works import (
    ROOT,
    accounts,
    confinement,
    ended,
    let_through,
    program,
    said,
    state,
    until,
)

pytestmark = [TOGETHER, ROOT]

LIMITS = Limits(cpus=1, memory_bytes=256 << 20, processes=64)
HANDED = """
import hashlib, json, os, pathlib, time
files = {each.name: each.read_text() for each in pathlib.Path("/run/secrets").iterdir()}
digest = hashlib.sha256(files["HF_TOKEN"].encode()).hexdigest()
print(json.dumps([digest == os.environ["WANTED"], sorted(files)]), flush=True)
print(files["HF_TOKEN"], os.environ["HF_TOKEN"] == files["HF_TOKEN"], flush=True)
while not os.path.exists("over"):
    time.sleep(0.05)
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Give a folder of memory."""
    folder = Path("/run", f"offpeak-tests-{os.getpid()}-{uuid4().hex[:8]}")
    if not is_in_memory(Path("/run")):
        folder = Path("/dev/shm", folder.name)
    folder.mkdir(mode=0o700)
    yield folder
    for left in sorted(folder.rglob("*"), reverse=True):
        left.rmdir() if left.is_dir() else left.unlink()
    folder.rmdir()


@contextmanager
def jobs(
    cluster: Cluster, folder: Path, place: Path | None, *, confined: bool = True
) -> Iterator[JobsRuntime]:
    """Give a runtime with an account for each lease, and end what runs in it."""
    let_through(folder)
    users = accounts(3)
    handover = Handover(None) if place is None else Handover.for_agent(folder, place=place)
    runtime = JobsRuntime(
        folder,
        of_cluster(cluster),
        clock=SystemClock(),
        users=users,
        confinement=confinement(users) if confined else None,
        limits=LIMITS,
        pause=0.1,
        handover=handover,
    )
    try:
        yield runtime
        for work in runtime.works():
            runtime.kill(work.lease_id)
            ended(runtime, work.lease_id)
            runtime.forget(work.lease_id)
        until(lambda: not runtime.works())
    finally:
        runtime.close()


def with_secrets() -> WorkSpec:
    asked = program(HANDED)
    object.__setattr__(asked, "environment", {"WANTED": sha256(VALUE.encode()).hexdigest()})
    secrets = {"HF_TOKEN": VALUE.encode(), "OTHER": OTHER.encode()}
    return replace(asked, secrets=secrets, secret_variables=("HF_TOKEN",))


def in_memory(place: Path) -> list[Path]:
    return [each for each in place.rglob("*") if each.is_file()]


def test_a_job_is_handed_its_secrets_and_they_are_in_no_other_place(
    cluster: Cluster, tmp_path: Path, place: Path
) -> None:
    with jobs(cluster, tmp_path / "state", place) as runtime:
        assert "secrets" in abilities_of(runtime) or not sealing.is_possible()
        asked = with_secrets()
        runtime.start(asked)
        until(lambda: said(tmp_path / "state", asked).count("\n") == 2)

        told, shown = said(tmp_path / "state", asked).splitlines()
        assert json.loads(told) == [True, ["HF_TOKEN", "OTHER"]]
        assert shown == "[secret] True"  # what it prints of them is not in its log
        assert in_memory(place) == []
        of_slurm = cluster.call("scontrol", "show", "job", "-dd") + cluster.call(
            "sacct", "-P", "-D", "--allusers", "-o", "ALL"
        )
        assert VALUE not in of_slurm and OTHER not in of_slurm
        assert not files_with(cluster.folder, VALUE, OTHER)
        assert not files_with(tmp_path, VALUE, OTHER)
        work = [each for each in processes_with(OTHER) if "memfd" not in each]
        assert work == [], "no command line and no variable but the one that was asked for"
        (tmp_path / "state" / "leases" / str(asked.lease_id) / "work" / "over").touch()
        ended(runtime, asked.lease_id)
    assert not files_with(tmp_path, VALUE, OTHER)


def test_secrets_of_a_job_that_never_began_are_removed(
    cluster: Cluster, tmp_path: Path, place: Path
) -> None:
    with jobs(cluster, tmp_path / "state", place) as runtime:
        held = replace(program("import time; time.sleep(600)"), gpu_uuids=("GPU-single",))
        runtime.start(held)
        waits = replace(with_secrets(), gpu_uuids=("GPU-single",))
        SlurmRuntime.start(runtime, waits)
        assert [each.name for each in in_memory(place)] == [str(waits.lease_id)]
        assert {each.stat().st_mode & 0o777 for each in place.rglob("*")} == {0o700, 0o600}

        runtime.terminate(waits.lease_id)

        assert in_memory(place) == []
        assert ended(runtime, waits.lease_id).exit_code is None


def test_what_a_killed_agent_left_in_memory_is_removed_by_the_next(
    cluster: Cluster, tmp_path: Path, place: Path
) -> None:
    left = Handover.for_agent(tmp_path / "state", place=place)
    left.put(UUID(int=7), {"secrets": {}})

    with jobs(cluster, tmp_path / "state", place) as runtime:
        assert list(runtime.works()) == []

    assert in_memory(place) == []


def test_a_job_whose_secrets_are_gone_never_begins(
    cluster: Cluster, tmp_path: Path, place: Path
) -> None:
    with jobs(cluster, tmp_path / "state", place) as runtime:
        held = replace(program("import time; time.sleep(600)"), gpu_uuids=("GPU-single",))
        runtime.start(held)
        waits = replace(with_secrets(), gpu_uuids=("GPU-single",))
        SlurmRuntime.start(runtime, waits)
        for file in in_memory(place):
            file.unlink()  # the host was started anew

        runtime.kill(held.lease_id)

        work = ended(runtime, waits.lease_id)
        assert work.lost and "its secrets are not there any more" in work.detail


@pytest.mark.parametrize("lacks", ["memory", "bubblewrap"])
def test_a_host_without_a_way_for_them_says_so_and_takes_no_secrets(
    cluster: Cluster, tmp_path: Path, place: Path, lacks: str
) -> None:
    where = None if lacks == "memory" else place
    with jobs(cluster, tmp_path / "state", where, confined=lacks != "bubblewrap") as runtime:
        assert "secrets" not in abilities_of(runtime)
        with pytest.raises(StartFailed, match="through memory at /run"):
            runtime.start(with_secrets())


def test_what_no_job_can_do_is_among_no_abilities(
    cluster: Cluster, tmp_path: Path, place: Path
) -> None:
    with jobs(cluster, tmp_path / "state", place) as runtime:
        able = set(abilities_of(runtime))
        assert {"files", "hand", "logs", "volumes"} <= able
        assert not {"podman", "images-only"} & able
        digest = f"train@sha256:{'0' * 64}"
        share = "GPU-a/timeslice-1of2/50pct-40000mib"
        for asked, why in (
            (replace(program("0"), image=digest), "runs no images"),
            (replace(program("0"), gpu_uuids=(share,)), "whole cards only"),
        ):
            with pytest.raises(StartFailed, match=why):
                runtime.start(asked)


def test_what_is_beneath_run_is_in_memory_and_what_is_on_a_disk_is_not() -> None:
    assert is_in_memory(Path("/dev/shm/offpeak"))
    assert not is_in_memory(Path("/usr"))


# --- the door ------------------------------------------------------------------------------------


def within_its_job(pid: int) -> list[str]:
    """Return the control groups of jobs that a process is in."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return sorted(each.split(":", 2)[2] for each in lines if "/job_" in each)


@pytest.mark.parametrize("bounds", ["counting", "bounding"])
@pytest.mark.parametrize("confined", [True, False], ids=["bubblewrap", "account"])
def test_a_shell_in_a_job_has_the_rights_and_the_control_groups_of_its_work(
    request: pytest.FixtureRequest, tmp_path: Path, bounds: str, confined: bool
) -> None:
    cluster = request.getfixturevalue("cluster" if bounds == "counting" else "bounding")
    with jobs(cluster, tmp_path / "state", None, confined=confined) as runtime:
        lease = program(SERVES, "8888" if confined else "0")
        runtime.start(lease)
        until(lambda: state(runtime, lease.lease_id) == "running")
        until(lambda: "ready" in said(tmp_path / "state", lease))
        inside = runtime.inside(lease.lease_id)

        async def story() -> None:
            on = Reached(runtime, tmp_path / "state", lease.lease_id)
            try:
                async with await on.ssh() as ssh:
                    shown = str((await ssh.run("id -u; cat mine")).stdout).splitlines()
                    assert shown == [str(inside.uid), "of the lease"]
                    process = await ssh.create_process("sleep 321; true")
                    await asyncio.to_thread(until, lambda: sleeping(inside.uid))
                    (pid,) = sleeping(inside.uid)
                    assert within_its_job(pid) == within_its_job(inside.pid)
                    assert bool(within_its_job(pid)) == (bounds == "bounding")
                    assert runtime.lease_of(pid) == lease.lease_id
                    # With the work everything ends, the shell too.
                    await asyncio.to_thread(runtime.kill, lease.lease_id)
                    await asyncio.to_thread(ended, runtime, lease.lease_id)
                    assert of_user(inside.uid) == []
                    process.close()
            finally:
                on.doors.close()

        asyncio.run(asyncio.wait_for(story(), 60))


def sleeping(uid: int) -> list[int]:
    return [each.pid for each in of_user(uid) if each.name == "sleep"]
