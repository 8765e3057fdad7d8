"""`offpeak-agent run --runtimes slurm` on a real cluster, as its owner starts and checks it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from metering.agent.__main__ import main
from metering.agent.clock import SystemClock
from tests.metering.agent.cluster import PRETENDED, PRETENDED_GPU, TOGETHER, Cluster
from tests.metering.agent.market import TOKEN, Market, assignment
from tests.metering.agent.works import accounts, let_through, until

pytestmark = TOGETHER

Start = Callable[[], subprocess.Popen[bytes]]


@pytest.fixture
def start(work_folder: Path, market: Market, cluster: Cluster) -> Iterator[Start]:
    """Give a way to start an agent with an account for each lease, again and again."""
    let_through(work_folder)
    uids, begun = accounts(2).uids, list[subprocess.Popen[bytes]]()
    command = [
        *(sys.executable, "-m", "metering.agent", "run", "--runtimes", "slurm", *PRETENDED),
        *("--server", market.url, "--state-dir", str(work_folder), "--confine", "off"),
        *("--work-users", f"{uids[0]}-{uids[-1]}", "--work-cpus", "1", "--work-memory-gib", "1"),
    ]
    known = {**os.environ, "SLURM_CONF": str(cluster.conf), "OFFPEAK_AGENT_TOKEN": TOKEN}

    def again() -> subprocess.Popen[bytes]:
        with (work_folder / "agent.out").open("ab") as log:
            begun.append(subprocess.Popen(command, env=known, stdout=log, stderr=log))
        return begun[-1]

    yield again
    for each in begun:
        each.kill()
        each.wait()
    cluster.call("scancel", "--user=root")
    cluster.ask(lambda: not cluster.call("squeue", "-h", "-o", "%A"))


def reports(market: Market, lease_id: UUID) -> list[str]:
    return [each.what for each in market.told(lease_id)]


def test_a_lease_runs_as_a_job_and_is_measured_over_kills_of_the_agent(
    start: Start, market: Market, cluster: Cluster, work_folder: Path
) -> None:
    market.poll_seconds = market.sample_seconds = 1
    begun = "import os; print(os.getuid(), flush=True); import time; time.sleep(6); print('done')"
    wanted = assignment(
        PRETENDED_GPU,
        now_ms=SystemClock().now_ms(),
        command=("/usr/bin/python3", "-c", begun),
    )
    lease_id = market.assign(wanted)
    agent = start()
    until(lambda: "started" in reports(market, lease_id))
    agent.send_signal(signal.SIGKILL)
    agent.wait()

    start()
    until(lambda: "exited" in reports(market, lease_id))

    (exited,) = [each for each in market.told(lease_id) if each.what == "exited"]
    (registered,) = {each.abilities for each in market.registrations}
    said = (work_folder / "leases" / str(lease_id) / "stdout.log").read_text().split()
    assert exited.exit_code == 0 and reports(market, lease_id).count("started") == 1
    # Without bubblewrap: no secrets. What no job can do is never among them.
    assert set(registered) == {"access", "files", "hand", "logs", "network-open", "volumes"}
    assert int(said[0]) >= 400_000 and said[1:] == ["done"]
    until(lambda: sum(each.granted_ms for each in market.intervals(lease_id)) >= 6_000)
    jobs = cluster.call("sacct", "-n", "-X", "-P", "-D", f"--name=offpeak-{lease_id}",
                        "-o", "State,AllocTRES")  # fmt: skip
    assert len(jobs.splitlines()) == 1 and "gres/gpu=1" in jobs
    assert [each.kind for each in market.health()] == []


def test_a_lease_that_is_stopped_before_the_cluster_began_it_says_why(
    start: Start, market: Market, cluster: Cluster
) -> None:
    market.poll_seconds = 1
    held = cluster.call("sbatch", "--parsable", "-A", "offpeak", f"--gres=gpu:{PRETENDED_GPU}:1",
                        "--mem=10M", "--output=/dev/null", "--wrap=sleep 600")  # fmt: skip
    cluster.ask(lambda: "RUNNING" in cluster.call("squeue", "-h", "-j", held.strip(), "-o", "%T"))
    wanted = assignment(PRETENDED_GPU, now_ms=SystemClock().now_ms(), command=("/bin/true",))
    lease_id = market.assign(wanted)
    start()
    until(lambda: str(lease_id) in cluster.call("squeue", "-h", "-t", "PENDING", "-o", "%j"))

    market.assign(replace(wanted, phase="stop"))

    until(lambda: reports(market, lease_id))
    (told,) = market.told(lease_id)
    assert (told.what, told.exit_code) == ("failed", None)
    assert "it never began: it waits on the cluster" in told.detail


def test_an_agent_on_a_drained_node_tells_that_it_can_start_nothing(
    start: Start, market: Market, cluster: Cluster
) -> None:
    market.poll_seconds = 1
    cluster.call("scontrol", "update", f"NodeName={cluster.host}", "State=DRAIN", "Reason=fans")
    try:
        start()
        until(lambda: market.health())
    finally:
        cluster.call("scontrol", "update", f"NodeName={cluster.host}", "State=RESUME")
        cluster.ask(cluster.is_idle)

    (told,) = market.health()
    assert (told.kind, told.gpu_uuid) == ("cannot-start", None)
    assert told.detail.endswith("DRAIN: fans")


def test_the_doctor_says_what_the_cluster_lacks(
    cluster: Cluster,
    market: Market,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    options = ["--server", market.url, "--state-dir", str(tmp_path), "--runtimes", "slurm"]
    options += ["--work-users", "450000-450003"]
    cluster.ask(cluster.is_idle)

    main(["doctor", *options, *PRETENDED])
    found = capsys.readouterr().out
    assert "ok   Slurm: the cluster tests answers" in found
    assert "ok   bounds of leases" in found
    assert f"ok   node {cluster.host}: takes jobs" in found
    assert "ok   GPUs of the node" in found
    assert "ok   partition (the default): takes jobs" in found
    assert "ok   account offpeak" in found
    assert "secrets of jobs: " in found
    assert (
        "?    ConstrainDevices: not so: GPUs of others are closed to a job -> TaskPlugin=" in found
    )

    main(["doctor", *options, "--simulate", "L4:1", "--slurm-account", "none"])
    found = capsys.readouterr().out
    assert "FAIL GPUs of the node: the cluster knows no type GPU-" in found
    assert "FAIL account none: root may not submit jobs in it -> sacctmgr add account none" in found

    main(["doctor", *options, *PRETENDED, "--slurm-partition", "none"])
    assert "FAIL partition none: " in capsys.readouterr().out

    main(["doctor", *options, *PRETENDED, "--slurm-node", "none"])
    assert "FAIL Slurm: Node none not found" in capsys.readouterr().out
