"""What Slurm's commands print is read as it is, and accounting is held against the meter."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.agent.clock import SystemClock
from metering.agent.runtimes import slurm_facts as facts
from metering.agent.runtimes.limits import Limits
from metering.agent.runtimes.slurm_commands import Slurm
from metering.agent.runtimes.slurm_facts import Accounted, Granted, Job, differences
from metering.agent.runtimes.slurm_job import code_of
from metering.agent.runtimes.slurm_levels import sandbox_of
from metering.agent.work_as import SLURM_ALONE, Wish, WorkUnsafe, work_as
from metering.agent.work_in import runtime_of

NODE = """\
NodeName=gpu1 Arch=x86_64 CoresPerSocket=16
   CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=3.37
   Gres=gpu:GPU-a:1(S:0),gpu:GPU-b:1(S:0-1),fpga:2
   OS=Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC Debian
   RealMemory=16000 AllocMem=0 FreeMem=19749 Sockets=4 Boards=1
   State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Reason=new fans [root@2026-01-05T12:00:00]
"""
START_MS = 1_767_614_400_000
BEGAN = Accounted(7, "COMPLETED", START_MS, START_MS + 60_000, 2)
GRANTED = Granted(START_MS + 300, START_MS + 60_200, 2)


def kinds(*accounted: Accounted, granted: Granted = GRANTED) -> list[str]:
    return [each.kind for each in differences(granted, accounted)]


def test_a_node_is_read_with_its_cards_by_type() -> None:
    node = facts.node_of(NODE)

    assert node is not None
    assert (node.name, node.cpus, node.memory_mib) == ("gpu1", 64, 16_000)
    assert node.gpus == {"GPU-a": 1, "GPU-b": 1}
    assert node.closed == "IDLE+DRAIN: new fans"
    assert facts.share_of_node(node, 1) == (32, 7_200)
    assert facts.node_of("Node gpu2 not found") is None


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "ALLOCATED", "IDLE*"])
def test_a_node_that_takes_jobs_is_not_closed(state: str) -> None:
    node = facts.node_of(NODE.replace("IDLE+DRAIN", state))

    assert node is not None and node.closed == ""


def test_a_partition_that_is_not_up_takes_no_jobs() -> None:
    said = (
        "PartitionName=day Default=YES State=UP Nodes=gpu1\n"
        "PartitionName=night Default=NO State=DRAIN Nodes=gpu1\n"
    )

    assert facts.shut_partition(said) == facts.shut_partition(said, "day") == ""
    assert facts.shut_partition(said, "night") == "the partition night is DRAIN"
    assert facts.shut_partition(said, "noon") == "the cluster has no partition noon"
    assert facts.shut_partition("No partitions in the system\n")


def test_of_jobs_of_one_name_the_one_that_is_not_over_counts() -> None:
    said = "a|3|CANCELLED|None\na|4|PENDING|Resources\nb|5|FAILED|None\nb|6|COMPLETED|None\nx\n"

    assert facts.jobs_of(said) == {
        "a": Job(4, "PENDING", "Resources"),
        "b": Job(6, "COMPLETED", "None"),
    }


def test_accounting_is_read_with_jobs_that_did_not_run_or_end() -> None:
    said = (
        "7|COMPLETED|1767614400|1767614460|billing=2,cpu=2,gres/gpu=2,mem=100M,node=1\n"
        "8|CANCELLED by 0|Unknown|1767614460|\n"
        "9|RUNNING|1767614400|Unknown|cpu=2,gres/gpu=1,gres/gpu:a100=1\n"
    )

    assert facts.accounted_of(said) == [
        BEGAN,
        Accounted(8, "CANCELLED", None, START_MS + 60_000, 0),
        Accounted(9, "RUNNING", START_MS, None, 1),
    ]


def test_a_job_of_one_length_with_the_meter_is_not_told() -> None:
    assert kinds(BEGAN) == []
    assert kinds(BEGAN, Accounted(8, "CANCELLED", None, START_MS, 0)) == []


def test_each_difference_has_its_kind() -> None:
    assert kinds() == ["missing"]
    assert kinds(Accounted(7, "PENDING", None, None, 0)) == ["missing"]
    assert kinds(Accounted(7, "RUNNING", START_MS, None, 2)) == ["unended"]
    assert kinds(Accounted(7, "COMPLETED", START_MS, START_MS + 60_000, 1)) == ["gpus"]
    assert kinds(BEGAN, Accounted(8, "COMPLETED", START_MS, START_MS + 60_000, 2)) == ["several"]
    # A controller that was killed loses the job's record: it ran 60 s, and is accounted with none.
    lost = Accounted(7, "COMPLETED", START_MS + 60_000, START_MS + 60_000, 2)
    assert kinds(lost) == ["start"]
    assert "+59.7 s from when the work did" in differences(GRANTED, [lost])[0].text


@given(
    late_ms=st.integers(0, facts.TOLERANCE_MS - 1_000),
    length_ms=st.integers(0, 10**9),
    after_ms=st.integers(0, facts.TOLERANCE_MS - 1_000),
)
def test_whole_seconds_and_the_way_into_a_job_are_no_difference(
    late_ms: int, length_ms: int, after_ms: int
) -> None:
    start_ms = START_MS + late_ms
    end_ms = start_ms + length_ms
    theirs = ((end_ms + after_ms) // 1000) * 1000
    accounted = Accounted(7, "COMPLETED", START_MS, theirs, 2)

    assert kinds(accounted, granted=Granted(start_ms, end_ms, 2)) == []


@given(end_ms=st.integers(0, 10**13), now_ms=st.integers(0, 10**13))
def test_a_time_limit_never_ends_work_before_its_deadline(end_ms: int, now_ms: int) -> None:
    minutes = facts.minutes_until(end_ms, now_ms=now_ms)

    assert minutes >= 1 and now_ms + minutes * 60_000 > end_ms


@given(st.integers(-64, 255))
def test_a_job_ends_with_the_code_of_its_work(code: int) -> None:
    assert code_of(code) == (code if code >= 0 else 128 - code)
    assert code_of(None) == 127


def test_a_daemon_that_is_away_is_told_from_a_refusal() -> None:
    assert facts.is_away("slurm_submit: error: Unable to contact slurm controller")
    assert facts.is_away(
        "sacctmgr: error: Problem talking to the Slurm database: Connection refused"
    )
    assert not facts.is_away("sbatch: error: invalid partition specified: none")
    said = "sbatch: error: invalid partition specified: x\nsbatch: error: Batch job failed\n"
    assert facts.refusal_of(said) == "invalid partition specified: x. Batch job failed"


def test_only_what_the_cluster_enforces_is_said_to_be_kept() -> None:
    counted = {"TaskPlugin": "task/none", "ConstrainDevices": "yes"}
    enforced = {"TaskPlugin": "task/affinity,task/cgroup", "ConstrainDevices": "yes"}
    enforced |= {"ConstrainRAMSpace": "yes", "ConstrainCores": "no"}

    assert not any(by for _, by in sandbox_of(counted, None, None).enforces)
    kept = dict(sandbox_of(enforced, None, None).enforces)
    assert kept["devices"] == kept["memory"] == "Slurm's control group"
    assert kept["cpu"] == kept["processes"] == ""


def test_no_file_system_is_mounted_for_jobs(tmp_path: Path) -> None:
    wish = Wish(runtimes=("slurm",), users="300000-300003", cluster=Slurm(node="gpu1"))
    with pytest.raises(WorkUnsafe, match=r"not installed|--work-disk-gib"):
        runtime_of(
            wish, work_as(wish, uid=0), tmp_path, clock=SystemClock(),
            limits=Limits(disk_bytes=1 << 30), mps_pipe=tmp_path,
        )  # fmt: skip


def test_jobs_go_with_no_other_runtime() -> None:
    with pytest.raises(WorkUnsafe, match=SLURM_ALONE):
        work_as(Wish(runtimes=("slurm", "process"), users="300000-300003"), uid=0)
