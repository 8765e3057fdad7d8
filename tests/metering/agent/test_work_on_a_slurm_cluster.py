"""Leases as jobs of a real cluster, and what comes of them when a part of it fails."""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from metering.agent.clock import SystemClock
from metering.agent.runtimes.inside import NoWayIn
from metering.agent.runtimes.port import StartFailed, WorkSpec
from metering.agent.runtimes.slurm import SlurmRuntime
from metering.agent.runtimes.slurm_facts import Granted
from tests.metering.agent.cluster import LIMITS, TOGETHER, Cluster, JobsRuntime, of_cluster
from tests.metering.agent.workloads import ended, python, spec, state, until

pytestmark = TOGETHER

HOUR_MS = 3_600_000
Begin = Callable[[], SlurmRuntime]


@pytest.fixture
def agents(tmp_path: Path, cluster: Cluster) -> Iterator[Begin]:
    """Give a way to begin an agent's runtime anew on what the one before left."""
    begun: list[SlurmRuntime] = []

    def begin() -> SlurmRuntime:
        for each in begun:
            each.close()
        begun.append(
            SlurmRuntime(
                tmp_path, of_cluster(cluster), clock=SystemClock(), limits=LIMITS, pause=0.1
            )
        )
        return begun[-1]

    yield begin
    last = begin()

    def is_clear() -> bool:
        for work in last.works():
            last.kill(work.lease_id)
            last.forget(work.lease_id)
        return not last.works()

    until(is_clear)
    last.close()


def lasting(*command: str) -> WorkSpec:
    """Return a lease of an hour."""
    ends_ms = SystemClock().now_ms() + HOUR_MS
    return replace(spec(*command), stop_at_ms=ends_ms - 60_000, kill_at_ms=ends_ms)


def name_of(wanted: WorkSpec) -> str:
    return f"offpeak-{wanted.lease_id}"


def ran(cluster: Cluster, wanted: WorkSpec) -> list[str]:
    """Return the numbers of all jobs that the accounting knows of a lease."""
    said = cluster.call(
        "sacct", "-n", "-X", "-P", "-D", "-a", f"--name={name_of(wanted)}", "-o", "JobIDRaw",
        "-S", "now-1hour",
    )  # fmt: skip
    return said.split()


def shown(cluster: Cluster, wanted: WorkSpec) -> str:
    number = cluster.call("squeue", "-h", f"--name={name_of(wanted)}", "-o", "%A").strip()
    return cluster.call("scontrol", "show", "job", "-d", number)


def printed(tmp_path: Path, wanted: WorkSpec) -> str:
    for folder in ("leases", "ended"):
        file = tmp_path / folder / str(wanted.lease_id) / "stdout.log"
        if file.exists():
            return file.read_text()
    return ""


def detail(runtime: SlurmRuntime, wanted: WorkSpec) -> str:
    return next(each.detail for each in runtime.works() if each.lease_id == wanted.lease_id)


# --- what a lease is on a cluster ------------------------------------------------------------


def test_a_lease_is_one_job_under_bounds_of_its_own(cluster: Cluster, jobs: JobsRuntime) -> None:
    wanted = lasting("sleep", "60")
    jobs.start(wanted)

    job = shown(cluster, wanted)
    bounds = cluster.call("sacctmgr", "-n", "-P", "list", "qos", name_of(wanted),
                          "format=GrpTRES,MaxWall,GrpSubmit,Flags")  # fmt: skip

    assert "GRES=gpu:GPU-a:1(IDX:" in job and ",gpu:GPU-b:1(IDX:" in job
    assert "TimeLimit=01:02:00" in job and "Requeue=0" in job
    assert bounds.strip() == "gres/gpu=2|01:02:00|1|DenyOnLimit"
    refused = cluster.call("sbatch", f"--qos={name_of(wanted)}", "-A", "offpeak", "--wrap=true")
    assert "QOSGrpSubmitJobsLimit" in refused

    jobs.kill(wanted.lease_id)
    ended(jobs, wanted.lease_id)
    jobs.forget(wanted.lease_id)
    until(lambda: name_of(wanted) not in cluster.call("sacctmgr", "-n", "-P", "list", "qos"))


def test_the_job_sees_nothing_of_the_agents_environment(
    jobs: JobsRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFPEAK_AGENT_TOKEN", "secret")
    wanted = python("import os; print(*map('='.join, os.environ.items()), sep='\\n')", MODEL="x")
    jobs.start(wanted)
    ended(jobs, wanted.lease_id)

    seen = printed(tmp_path, wanted)

    assert "MODEL=x\n" in seen and "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b\n" in seen
    assert "secret" not in seen and "SLURM" not in seen


def test_a_longer_lease_has_its_time_limit_moved(cluster: Cluster, jobs: JobsRuntime) -> None:
    wanted = lasting("sleep", "60")
    jobs.start(wanted)
    assert wanted.kill_at_ms is not None

    later_ms = wanted.kill_at_ms + HOUR_MS
    jobs.limit(wanted.lease_id, stop_at_ms=later_ms, kill_at_ms=later_ms)

    until(lambda: "TimeLimit=02:02:00" in shown(cluster, wanted))


def test_parts_of_cards_and_secrets_are_refused(jobs: JobsRuntime) -> None:
    part = replace(spec("true"), gpu_uuids=("GPU-a/mps-1of2/50pct-40000mib",))
    with pytest.raises(StartFailed, match="whole cards only"):
        jobs.start(part)
    with pytest.raises(StartFailed, match="in bubblewrap only"):
        jobs.start(replace(spec("true"), secrets={"KEY": b"value"}))
    with pytest.raises(NoWayIn):
        jobs.inside(part.lease_id)


def test_accounting_that_agrees_is_not_told(jobs: JobsRuntime, tmp_path: Path) -> None:
    wanted = lasting("sleep", "1")
    jobs.start(wanted)
    ended(jobs, wanted.lease_id)

    until(lambda: not list((tmp_path / "slurm").iterdir()))

    assert jobs.findings() == []


def test_accounting_that_differs_is_told_once(jobs: JobsRuntime, cluster: Cluster) -> None:
    wanted = lasting("sleep", "1")
    work = jobs.start(wanted)
    ended(jobs, wanted.lease_id)
    until(lambda: not list((jobs._folder.parent / "slurm").iterdir()))

    more = Granted(work.started_ms, work.started_ms + 60_000, 3)
    jobs._errands.compare(wanted.lease_id, more, gpu_uuid="GPU-a")
    until(lambda: not list((jobs._folder.parent / "slurm").iterdir()))

    found = jobs.findings()
    assert [uuid for uuid, _ in found] == ["GPU-a", "GPU-a"]
    assert all(f"{name_of(wanted)}: " in text for _, text in found)
    assert ": gpus: measured 3 GPUs, the cluster gave 2" in found[1][1]
    assert jobs.findings() == []


CLOSED = """\
grep -E 'devices|memory' /proc/self/cgroup
for card in GPU-single-0 GPU-a-0; do cat "$1/$card" 2>&1; done
of=$(grep memory: /proc/self/cgroup | cut -d: -f3)
cat "/sys/fs/cgroup/memory${of%/step_*}/memory.limit_in_bytes"
"""


def test_a_cluster_with_control_groups_closes_the_cards_of_others(
    tmp_path: Path, bounding: Cluster
) -> None:
    runtime = JobsRuntime(
        tmp_path, of_cluster(bounding), clock=SystemClock(), limits=LIMITS, pause=0.1
    )
    wanted = lasting("sh", "-c", CLOSED, "sh", str(bounding.folder))
    wanted = replace(wanted, gpu_uuids=("GPU-single",))
    runtime.start(wanted)
    assert ended(runtime, wanted.lease_id).exit_code == 0
    said = printed(tmp_path, wanted)
    kept = dict(runtime.sandbox.enforces)
    runtime.close()

    assert "/job_" in said
    assert "GPU-single-0: No such device or address" in said  # it may, but there is no driver
    assert "GPU-a-0: Operation not permitted" in said
    assert said.splitlines()[-1] == str(64 << 20)
    assert (kept["devices"], kept["memory"], kept["cpu"]) == (
        "Slurm's control group",
        "Slurm's control group",
        "",
    )


# --- faults ----------------------------------------------------------------------------------

KILLED = """\
import os, pickle, signal, sys, time
from pathlib import Path
from metering.agent.clock import SystemClock
from metering.agent.runtimes.slurm import SlurmRuntime
from metering.agent.runtimes.slurm_commands import Slurm
from tests.metering.agent.cluster import LIMITS

folder, conf, node, where = sys.argv[1:]
wanted = pickle.loads(sys.stdin.buffer.read())

def doomed(name, before):
    real = getattr(Slurm, name)
    def call(*given, **named):
        if before:
            os.kill(os.getpid(), signal.SIGKILL)
        real(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(Slurm, name, call)

doomed(*{
    "before its bounds": ("add_qos", True),
    "after its bounds": ("add_qos", False),
    "before the job": ("submit", True),
    "after the job": ("submit", False),
}[where])
runtime = SlurmRuntime(
    Path(folder), Slurm(node=node, conf=conf), clock=SystemClock(), limits=LIMITS, pause=0.1
)
runtime.start(wanted)
time.sleep(60)
"""


@pytest.mark.parametrize(
    "where", ["before its bounds", "after its bounds", "before the job", "after the job"]
)
def test_an_agent_killed_while_it_submits_leaves_one_job(
    agents: Begin, cluster: Cluster, tmp_path: Path, where: str
) -> None:
    wanted = lasting("sh", "-c", "echo begun >> times; sleep 1; cat times")
    died = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(cluster.conf), cluster.host, where],
        input=pickle.dumps(wanted), timeout=60, check=False, env={**os.environ, "PYTHONPATH": "."},
    )  # fmt: skip
    assert died.returncode == -signal.SIGKILL

    runtime = agents()
    work = ended(runtime, wanted.lease_id)

    assert (work.exit_code, work.lost) == (0, False)
    assert printed(tmp_path, wanted) == "begun\n"
    until(lambda: len(ran(cluster, wanted)) == 1)


def test_what_still_submits_for_a_killed_agent_is_waited_for(
    agents: Begin, cluster: Cluster, tmp_path: Path
) -> None:
    wanted = lasting("true")
    before = agents()
    before._errands.close()
    before.start(wanted)
    file = tmp_path / "leases" / str(wanted.lease_id) / "submit.lock"
    lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)

    runtime = agents()
    assert [each.state for each in runtime.works()] == ["starting"]
    for _ in range(3):
        runtime._errands.turn()
    assert ran(cluster, wanted) == []
    os.close(lock)

    assert ended(runtime, wanted.lease_id).exit_code == 0


def test_work_is_found_again_running_and_ended(agents: Begin) -> None:
    runs, ends = lasting("sleep", "60"), lasting("false")
    first = agents()
    for wanted in (runs, ends):
        first.start(wanted)
    ended(first, ends.lease_id)
    until(lambda: state(first, runs.lease_id) == "running")
    known = {work.lease_id: work for work in first.works()}

    again = {work.lease_id: work for work in agents().works()}

    assert again[runs.lease_id] == known[runs.lease_id]
    assert again[ends.lease_id].exit_code == 1


def test_a_job_that_the_owner_cancels_is_lost_and_says_so(
    jobs: JobsRuntime, cluster: Cluster
) -> None:
    wanted = lasting("sleep", "60")
    jobs.start(wanted)

    cluster.call("scancel", f"--name={name_of(wanted)}")

    work = ended(jobs, wanted.lease_id)
    assert work.lost and work.exit_code == -signal.SIGTERM
    assert work.detail == "its job was cancelled on the cluster"


def test_work_whose_keeper_is_killed_ends_and_is_called_lost(jobs: JobsRuntime) -> None:
    wanted = lasting("sleep", "60")
    jobs.start(wanted)
    (pid,) = jobs.holders()["GPU-a"]

    os.kill(jobs._roots[wanted.lease_id]["keeper_pid"], signal.SIGKILL)

    work = ended(jobs, wanted.lease_id)
    assert work.lost and work.exit_code is None
    assert "the process that kept it was killed" in work.detail
    until(lambda: jobs.name_of(pid) is None)


def test_a_job_that_is_cancelled_while_it_waits_never_begins(
    agents: Begin, cluster: Cluster
) -> None:
    held, wanted = lasting("sleep", "60"), lasting("true")
    held, wanted = (replace(each, gpu_uuids=("GPU-single",)) for each in (held, wanted))
    runtime = agents()
    runtime.start(held)
    until(lambda: state(runtime, held.lease_id) == "running")
    runtime.start(wanted)
    until(lambda: "it waits on the cluster: " in detail(runtime, wanted))

    cluster.call("scancel", f"--name={name_of(wanted)}")

    work = ended(runtime, wanted.lease_id)
    assert work.lost and not work.started_ms
    assert work.detail == "it never began: its job was cancelled on the cluster"


def test_work_whose_time_is_over_while_it_waits_never_begins(
    agents: Begin, cluster: Cluster, tmp_path: Path
) -> None:
    held, wanted = lasting("sleep", "60"), lasting("echo", "begun")
    held, wanted = (replace(each, gpu_uuids=("GPU-single",)) for each in (held, wanted))
    runtime = agents()
    runtime.start(held)
    until(lambda: state(runtime, held.lease_id) == "running")
    runtime.start(wanted)
    until(lambda: "Resources" in detail(runtime, wanted) or "Priority" in detail(runtime, wanted))

    runtime.terminate(wanted.lease_id)

    work = ended(runtime, wanted.lease_id)
    assert work.lost and "it never began: it waits on the cluster" in work.detail
    until(lambda: not cluster.call("squeue", "-h", f"--name={name_of(wanted)}"))
    runtime.kill(held.lease_id)
    ended(runtime, held.lease_id)
    assert printed(tmp_path, wanted) == ""


def test_nothing_begins_on_a_drained_node_until_it_is_resumed(
    agents: Begin, cluster: Cluster
) -> None:
    wanted = lasting("true")
    runtime = agents()
    cluster.call("scontrol", "update", f"NodeName={cluster.host}", "State=DRAIN", "Reason=mine")
    try:
        runtime.start(wanted)
        until(lambda: "it waits on the cluster: " in detail(runtime, wanted))
        assert state(runtime, wanted.lease_id) == "starting"
        node = of_cluster(cluster).this_node()
        assert node is not None and node.closed.endswith(": mine")
    finally:
        cluster.call("scontrol", "update", f"NodeName={cluster.host}", "State=RESUME")

    assert ended(runtime, wanted.lease_id).exit_code == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"partition": "none"}, "invalid partition"),
        ({"account": "none"}, "the cluster refused"),
        ({"node": "none"}, "Node none not found"),
    ],
)
def test_a_job_that_the_cluster_refuses_is_refused_with_its_reason(
    tmp_path: Path, cluster: Cluster, change: dict[str, str], why: str
) -> None:
    runtime = JobsRuntime(
        tmp_path, replace(of_cluster(cluster), **change), clock=SystemClock(), pause=0.1
    )
    with pytest.raises(StartFailed, match=why):
        runtime.start(lasting("true"))

    assert list(runtime.works()) == []
    runtime.close()


def test_a_gpu_that_the_cluster_does_not_know_is_refused(jobs: JobsRuntime) -> None:
    with pytest.raises(StartFailed, match="the cluster refused its job"):
        jobs.start(replace(lasting("true"), gpu_uuids=("GPU-unknown",)))


def test_without_the_accounting_a_lease_waits_and_then_begins(
    agents: Begin, cluster: Cluster
) -> None:
    wanted = lasting("true")
    runtime = agents()
    cluster.end("slurmdbd")
    try:
        runtime.start(wanted)
        until(lambda: runtime._errands.trouble)
        assert state(runtime, wanted.lease_id) == "starting"
    finally:
        cluster.start("slurmdbd")

    assert ended(runtime, wanted.lease_id).exit_code == 0


def test_work_outlives_the_clusters_controller_and_is_measured_by_us(
    agents: Begin, cluster: Cluster, tmp_path: Path
) -> None:
    wanted = lasting("sh", "-c", "echo begun; while ! test -e go; do sleep 0.1; done; exit 7")
    runtime = agents()
    runtime.start(wanted)
    until(lambda: state(runtime, wanted.lease_id) == "running")
    cluster.end("slurmctld")
    folder = runtime.folder_of(wanted.lease_id)
    assert folder is not None
    (folder / "go").touch()

    work = ended(runtime, wanted.lease_id)
    again = agents()
    assert [each.exit_code for each in again.works()] == [7]
    cluster.start("slurmctld")

    assert (work.exit_code, work.lost) == (7, False)
    assert work.ended_ms is not None and work.ended_ms > work.started_ms
    # How long the cluster takes to hear of the end is its own affair: it asks again by the quarter
    # of a minute.
    until(lambda: "up" in cluster.call("sinfo", "-h", "-o", "%a"))
    assert printed(tmp_path, wanted) == "begun\n"
