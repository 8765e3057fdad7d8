"""Several leases on one card, each with its share: its limits, its time, and nothing of others."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from listings.domain.divisions import are_rivals, divide, read_share
from listings.domain.events import Division, Gpu, Part
from metering.agent import doctor, shares
from metering.agent.clock import SystemClock
from metering.agent.gpus.nvml import NvmlGpus
from metering.agent.reconcile import Held, Start, Terms, reconcile
from metering.agent.runtimes.mps.owners import OwnersDaemon
from metering.agent.runtimes.port import StartFailed, WorkSpec
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.wire import Interval
from tests.metering.agent.conftest import NOON_MS, Rig
from tests.metering.agent.market import assignment
from tests.metering.agent.workloads import ended
from tests.nvml.script import Proc, Script

SECOND = 1000
CARD = Gpu("GPU-a", "H100-80GB", 81_920, "9.0", "580.82.07")
WAYS = (
    Division("mps", 4),
    Division("mps", 2),
    Division("mps", parts=(Part(50_000, 75), Part(20_000, 25))),
    Division("timeslice", 4),
)
IDS = ["GPU-a", "GPU-b", *(share.uuid for way in WAYS for share in divide(CARD, way))]
MPS = [share.uuid for share in divide(CARD, WAYS[0])]
SLICES = [share.uuid for share in divide(CARD, WAYS[3])]


def test_agent_and_market_read_the_same_in_every_id() -> None:
    for uuid in [*IDS, "MIG-GPU-a/1/0", "GPU-a/mps-1of4"]:
        market, agent = read_share(uuid), shares.share_of(uuid)
        assert (market is None) == (agent is None)
        if market is not None and agent is not None:
            assert agent == shares.Share(
                market.card_uuid,
                market.kind,
                market.division,
                market.compute_percent,
                market.memory_mib,
            )
        for other in IDS:
            assert shares.in_the_way(uuid, other) == (uuid == other or are_rivals(uuid, other))


def daemon(pipe: Path, pid: int | str) -> Path:
    pipe.mkdir(exist_ok=True)
    (pipe / shares.PID_FILE).write_text(f"{pid}\n")
    return pipe


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which this very process passes for MPS's control daemon."""
    monkeypatch.setattr(shares, "DAEMONS", Path(f"/proc/{os.getpid()}/comm").read_text().strip())
    return daemon(tmp_path / "mps", os.getpid())


def seen_by(uuid: str, folder: Path, pipe: Path) -> dict[str, str]:
    """Return the environment of work on a GPU."""
    runtime = ProcessRuntime(folder, clock=SystemClock(), mps=OwnersDaemon(pipe))
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    environment = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100", "CUDA_VISIBLE_DEVICES": "all"}
    wanted = WorkSpec(
        lease_id=uuid4(),
        gpu_uuids=(uuid,),
        command=(sys.executable, "-c", code),
        environment=environment,
    )
    runtime.start(wanted)
    ended(runtime, wanted.lease_id)
    said: dict[str, str] = json.loads(
        (folder / "leases" / str(wanted.lease_id) / "stdout.log").read_text()
    )
    return said


def test_work_on_a_share_by_mps_sees_its_card_and_its_limits(tmp_path: Path, pipe: Path) -> None:
    seen = seen_by(MPS[1], tmp_path / "state", pipe)

    assert seen["CUDA_VISIBLE_DEVICES"] == seen["NVIDIA_VISIBLE_DEVICES"] == "GPU-a"
    assert seen["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert seen["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=20480M"
    assert seen["CUDA_MPS_PIPE_DIRECTORY"] == str(pipe)


def test_work_on_a_time_slice_sees_its_card_and_no_limits(tmp_path: Path) -> None:
    seen = seen_by(SLICES[0], tmp_path / "state", tmp_path / "no-mps")

    assert seen["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in seen


def test_work_without_a_share_does_not_reach_the_hosts_mps(tmp_path: Path, pipe: Path) -> None:
    seen = seen_by("GPU-a", tmp_path / "state", pipe)

    assert seen["CUDA_MPS_PIPE_DIRECTORY"] == f"{seen['HOME']}/mps"
    assert not Path(seen["CUDA_MPS_PIPE_DIRECTORY"]).exists()


@pytest.mark.parametrize("pid", ["", "4194305", str(os.getpid())], ids=["none", "gone", "another"])
def test_a_share_by_mps_is_not_started_without_the_daemon(tmp_path: Path, pid: str) -> None:
    pipe = daemon(tmp_path / "mps", pid)
    runtime = ProcessRuntime(tmp_path / "state", clock=SystemClock(), mps=OwnersDaemon(pipe))

    with pytest.raises(StartFailed, match="no MPS control daemon"):
        runtime.start(WorkSpec(lease_id=uuid4(), gpu_uuids=(MPS[0],), command=("true",)))

    assert list(runtime.works()) == []


def test_the_doctor_says_whether_shares_by_mps_can_be_leased(tmp_path: Path, pipe: Path) -> None:
    def said(where: Path) -> doctor.Check:
        checks = doctor.examine(
            make_gpus=lambda: NvmlGpus(),
            uplink=None,
            state_dir=tmp_path / "state",
            token_file=None,
            mps_pipe=where,
        )
        return next(check for check in checks if check.name == "MPS")

    assert said(pipe).fine is True
    without = said(tmp_path / "nowhere")
    assert without.fine is None
    assert "nvidia-cuda-mps-control -d" in without.mend


def test_leases_share_a_card_and_each_is_measured_by_its_own_processes(rig: Rig) -> None:
    assert rig.script is not None
    one = rig.market.assign(assignment(SLICES[0], now_ms=NOON_MS, seconds=100))
    two = rig.market.assign(assignment(SLICES[1], now_ms=NOON_MS, seconds=60))
    rig.agent.run_once()
    first, second = rig.runtime.holders()["GPU-a"]
    loads = {
        one: rig.script.proc(Proc(0, first, sm=50, start_ms=NOON_MS + 3 * SECOND, mem_mib=7000)),
        two: rig.script.proc(Proc(0, second, sm=30, start_ms=NOON_MS + 7 * SECOND)),
    }

    rig.steps(100)
    rig.script.end(first, rig.clock.now_ms())
    rig.script.end(second, rig.clock.now_ms())
    rig.steps(30)

    for lease, seconds, uuid in ((one, 98, SLICES[0]), (two, 58, SLICES[1])):
        intervals = rig.market.intervals(lease)
        assert {each.gpu_uuid for each in intervals} == {uuid}
        start_ms, end_ms = intervals[0].start_ms, intervals[-1].end_ms
        assert total(intervals, "granted_ms") == seconds * SECOND
        assert total(intervals, "occupied_ms") == loads[lease].resident_ms(start_ms, end_ms)
        assert total(intervals, "busy_ms") == loads[lease].busy_ms(start_ms, end_ms)
    assert rig.market.intervals(one)[-1].memory_used_mib == 7000
    assert rig.market.health() == []


@pytest.mark.parametrize("counted_together", [False, True])
def test_what_the_driver_counts_as_the_servers_is_no_shares_own(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, counted_together: bool
) -> None:
    """The server of MPS works for all: its process is no stray, and its load nobody's."""
    assert rig.script is not None
    server = os.getpid()
    name_of = rig.runtime.name_of
    monkeypatch.setattr(
        rig.runtime, "name_of", lambda pid: "nvidia-cuda-mps" if pid == server else name_of(pid)
    )
    lease = rig.market.assign(assignment(MPS[0], now_ms=NOON_MS, seconds=60))
    rig.agent.run_once()
    (client,) = rig.runtime.holders()["GPU-a"]
    started = NOON_MS + 2 * SECOND
    rig.script.proc(Proc(0, server, sm=60 * counted_together, start_ms=NOON_MS))
    sm = 0 if counted_together else 60
    load = rig.script.proc(Proc(0, client, sm=sm, start_ms=started, mem_mib=900, mps=True))

    rig.steps(70)

    intervals = rig.market.intervals(lease)
    end_ms = intervals[-1].end_ms
    assert total(intervals, "occupied_ms") == load.resident_ms(NOON_MS, end_ms)
    assert intervals[-1].memory_used_mib == 900
    if counted_together:
        assert {each.busy_ms for each in intervals[1:]} == {None}
    else:
        assert total(intervals, "busy_ms") == load.busy_ms(NOON_MS, end_ms)
    assert rig.market.health() == []


def test_a_process_of_another_share_is_no_stray_but_a_strangers_is(rig: Rig) -> None:
    assert rig.script is not None
    rig.market.assign(assignment(SLICES[0], now_ms=NOON_MS, seconds=100))
    rig.market.assign(assignment("GPU-b", now_ms=NOON_MS, seconds=100))
    rig.agent.run_once()
    rig.script.proc(Proc(0, rig.pid("GPU-b"), sm=10, start_ms=NOON_MS))

    rig.steps(5)

    assert [(h.kind, h.gpu_uuid) for h in rig.market.health()] == [("stray-process", "GPU-a")]


def test_a_lost_card_is_unknown_to_all_its_shares(rig: Rig) -> None:
    assert rig.script is not None
    leases = [
        rig.market.assign(assignment(uuid, now_ms=NOON_MS, seconds=100)) for uuid in SLICES[:2]
    ]
    rig.agent.run_once()
    rig.script.say("err fn=* gpu=0 code=15")

    rig.steps(40)

    for lease in leases:
        assert {each.occupied_ms for each in rig.market.intervals(lease)[1:]} == {None}
    assert [(h.kind, h.gpu_uuid) for h in rig.market.health()] == [("gpu-lost", "GPU-a")]


def test_the_end_of_one_share_leaves_the_others_running(rig: Rig) -> None:
    one = rig.market.assign(assignment(SLICES[0], now_ms=NOON_MS, seconds=20))
    two = rig.market.assign(assignment(SLICES[1], now_ms=NOON_MS, seconds=100))

    rig.steps(30)

    assert [each.what for each in rig.market.told(one)] == ["started", "stopped"]
    assert [each.what for each in rig.market.told(two)] == ["started"]
    three = rig.market.assign(assignment(SLICES[0], now_ms=rig.clock.now_ms(), seconds=20))
    rig.steps(5)
    assert [each.what for each in rig.market.told(three)] == ["started"]


@pytest.mark.parametrize(
    ("leaving", "wanted", "starts"),
    [
        (SLICES[0], SLICES[1], True),
        (SLICES[0], SLICES[0], False),
        (SLICES[0], "GPU-a", False),
        ("GPU-a", SLICES[0], False),
        (SLICES[0], MPS[1], False),
        (SLICES[0], "GPU-b", True),
    ],
)
def test_work_waits_for_what_leaves_its_share_or_the_card_in_another_form(
    leaving: str, wanted: str, starts: bool
) -> None:
    old, new = (
        Terms.of(replace(assignment(uuid, now_ms=NOON_MS, seconds=100)))
        for uuid in (leaving, wanted)
    )
    held = [
        Held(terms=replace(old, phase="stop"), listed=True, work="running", stopping_ms=NOON_MS),
        Held(terms=new, listed=True, work="none"),
    ]

    actions = reconcile(held, now_ms=NOON_MS + 1)

    assert (Start(new.lease_id) in actions) == starts


def test_the_driver_lists_the_clients_of_mps_apart(script: Script) -> None:
    script.proc(Proc(0, 11, sm=10, start_ms=NOON_MS))
    script.proc(Proc(0, 12, sm=20, start_ms=NOON_MS, mps=True))
    script.at(NOON_MS + 2 * SECOND)
    gpus = NvmlGpus(pids_are_ours=True)

    reading = gpus.read("GPU-a", since_us=NOON_MS * 1000)
    script.say("err fn=nvmlDeviceGetMPSComputeRunningProcesses_v3 gpu=0 code=3")
    without = gpus.read("GPU-a", since_us=NOON_MS * 1000)

    assert sorted(each.pid for each in reading.residents) == [11, 12]
    assert reading.clients_listed
    assert [each.pid for each in without.residents] == [11]
    assert not without.clients_listed
    gpus.close()


def total(intervals: list[Interval], figure: str) -> int:
    return sum(getattr(each, figure) or 0 for each in intervals)
