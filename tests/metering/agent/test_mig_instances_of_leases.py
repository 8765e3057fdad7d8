"""The agent makes a lease's MIG instance before its work, removes it after, and no other ever."""

from __future__ import annotations

import json
import os
import signal
import sys
from itertools import product
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from listings.domain.divisions import are_rivals, divide, read_share
from listings.domain.events import Division, Gpu
from metering.agent import doctor, shares
from metering.agent.clock import ManualClock, SystemClock
from metering.agent.gpus.nvml import NvmlGpus
from metering.agent.gpus.port import Instance
from metering.agent.gpus.simulated import SimulatedGpus
from metering.agent.instances import Instances
from metering.agent.runtimes.port import WorkSpec
from metering.agent.runtimes.process import ProcessRuntime
from tests.metering.agent.conftest import NOON_MS, Rig
from tests.metering.agent.market import Market, assignment, served
from tests.metering.agent.processes import DEADLINE_SECONDS, launch, until
from tests.metering.agent.workloads import ended
from tests.nvml.script import Proc, Script

SECOND = 1000
CARD = Gpu("GPU-a", "H100-80GB", 81_559, "9.0", "580.82.07", mig_enabled=True)
LAYOUTS = (
    ("3g.40gb", "2g.20gb", "1g.10gb"),
    ("3g.40gb", "3g.40gb"),
    ("4g.40gb", "1g.10gb+me", "1g.10gb", "1g.10gb"),
    ("1g.10gb+me", *("1g.10gb",) * 6),
    ("7g.80gb",),
)
IDS = [
    share.uuid
    for division in (*(Division("mig", profiles=each) for each in LAYOUTS),)
    for share in divide(CARD, division)
]
THREE, TWO, ONE = IDS[:3]


@pytest.fixture
def divisible(script: Script) -> Script:
    """The first card is in MIG mode."""
    script.cards.clear()
    script.card("GPU-a", "mig=1")
    script.card("GPU-b")
    return script


@pytest.fixture
def rig(divisible: Script, rig: Rig) -> Rig:
    return rig


def there(rig: Rig) -> list[tuple[str, int]]:
    return [(each.profile, each.first) for each in rig.gpus.instances("GPU-a")]


def told(rig: Rig, lease: UUID) -> list[str]:
    return [each.what for each in rig.market.told(lease)]


def test_agent_and_market_read_the_same_in_every_id() -> None:
    for uuid in [*IDS, "GPU-a/mig-3g.40gb@7-4", "GPU-a/mig-3g@0-3", "MIG-GPU-a/1/0"]:
        market, agent = read_share(uuid), shares.slice_of(uuid)
        assert (market is None) == (agent is None)
        if market is not None and agent is not None:
            said = (market.card_uuid, market.profile, market.first, market.last)
            assert agent == shares.Slice(*said)
    others = [*IDS, "GPU-a", "GPU-b", "GPU-a/mps-1of4/25pct-20389mib"]
    for one, other in product(others, others):
        assert shares.in_the_way(one, other) == (one == other or are_rivals(one, other))


def test_a_lease_has_its_instance_for_as_long_as_it_runs(rig: Rig) -> None:
    assert rig.script is not None
    lease = rig.market.assign(assignment(THREE, now_ms=NOON_MS, seconds=60))
    assert there(rig) == []

    rig.agent.run_once()

    (made,) = rig.gpus.instances("GPU-a")
    assert (made.profile, made.first, made.last) == ("3g.40gb", 0, 3)
    (pid,) = rig.runtime.holders()[made.uuid or ""]
    load = rig.script.proc(
        Proc(0, pid, sm=90, start_ms=NOON_MS + 3 * SECOND, mem_mib=7000, gi=made.number)
    )
    rig.steps(40)
    rig.script.end(pid, rig.clock.now_ms() + 20 * SECOND)
    rig.steps(40)

    intervals = rig.market.intervals(lease)
    assert {each.gpu_uuid for each in intervals} == {THREE}
    assert sum(each.granted_ms for each in intervals) == 58 * SECOND
    start_ms, end_ms = intervals[0].start_ms, intervals[-1].end_ms
    occupied = sum(each.occupied_ms or 0 for each in intervals)
    assert occupied == load.resident_ms(start_ms, end_ms)
    assert intervals[1].memory_used_mib == 7000
    assert {each.busy_ms for each in intervals[1:]} == {None}
    assert told(rig, lease) == ["started", "stopped"]
    assert there(rig) == []
    assert rig.market.health() == []


def test_the_market_is_told_of_the_card_and_never_of_what_the_agent_made(rig: Rig) -> None:
    rig.market.assign(assignment(THREE, now_ms=NOON_MS, seconds=2_000))
    rig.steps(20, 60 * SECOND)

    for registration in rig.market.registrations:
        assert [(gpu.uuid, gpu.mig_enabled, gpu.mig_profiles) for gpu in registration.gpus] == [
            ("GPU-a", True, ()),
            ("GPU-b", False, ()),
        ]


def test_instances_of_several_leases_are_beside_each_other(rig: Rig) -> None:
    short = rig.market.assign(assignment(THREE, now_ms=NOON_MS, seconds=20))
    long = rig.market.assign(assignment(ONE, now_ms=NOON_MS, seconds=100))
    rig.agent.run_once()
    assert sorted(there(rig)) == [("1g.10gb", 6), ("3g.40gb", 0)]

    rig.steps(30)

    assert (told(rig, short), told(rig, long)) == (["started", "stopped"], ["started"])
    assert there(rig) == [("1g.10gb", 6)]
    next_one = rig.market.assign(assignment(THREE, now_ms=rig.clock.now_ms(), seconds=20))
    rig.steps(6)
    assert told(rig, next_one) == ["started"]


def test_another_layout_begins_where_the_slices_are_free(rig: Rig) -> None:
    rig.market.assign(assignment(THREE, now_ms=NOON_MS, seconds=100))
    rig.agent.run_once()

    half = rig.market.assign(assignment("GPU-a/mig-3g.40gb@4-7", now_ms=NOON_MS, seconds=50))
    rig.steps(6)

    assert told(rig, half) == ["started"]
    assert sorted(there(rig)) == [("3g.40gb", 0), ("3g.40gb", 4)]


def test_an_instance_is_removed_as_soon_as_the_driver_lets_it_go(rig: Rig) -> None:
    assert rig.script is not None
    lease = rig.market.assign(assignment(THREE, now_ms=NOON_MS, seconds=20))
    rig.agent.run_once()
    (made,) = rig.gpus.instances("GPU-a")
    rig.script.proc(Proc(0, 99_999, sm=0, start_ms=NOON_MS, end_ms=0, gi=made.number))
    rig.steps(30)
    assert told(rig, lease) == ["started", "stopped"]
    assert there(rig) == [("3g.40gb", 0)]
    follower = rig.market.assign(assignment(THREE, now_ms=rig.clock.now_ms(), seconds=60))
    rig.steps(6)
    assert told(rig, follower) == []

    rig.script.end(99_999, rig.clock.now_ms())
    rig.steps(6)

    assert told(rig, follower) == ["started"]
    rig.steps(70)
    assert there(rig) == []


def test_a_card_that_is_not_in_mig_mode_fails_the_lease_with_the_reason(rig: Rig) -> None:
    lease = rig.market.assign(assignment("GPU-b/mig-3g.40gb@0-3", now_ms=NOON_MS, seconds=60))

    rig.agent.run_once()

    (report,) = rig.market.told(lease)
    assert report.what == "failed" and "MIG mode is off: nvidia-smi -mig 1" in report.detail


def test_what_the_owner_made_is_never_touched(rig: Rig) -> None:
    assert rig.script is not None
    first = rig.market.assign(assignment(ONE, now_ms=NOON_MS, seconds=30))
    rig.agent.run_once()
    own = "mig gpu=0 i=5 gi=9 ci=0 uuid=MIG-own slices=3 mem=42949672960 start=0 profile=4"
    rig.script.say(own)
    second = rig.market.assign(assignment(THREE, now_ms=NOON_MS, seconds=30))

    rig.steps(60)

    assert told(rig, first) == ["started", "stopped"]
    (report,) = rig.market.told(second)
    assert report.what == "failed" and "the host's own 3g.40gb at 0-3" in report.detail
    assert there(rig) == [("3g.40gb", 0)]


def test_an_agent_that_starts_again_goes_on_with_its_instance(rig: Rig) -> None:
    lease = rig.market.assign(assignment(THREE, now_ms=NOON_MS, seconds=60))
    rig.agent.run_once()
    before = rig.gpus.instances("GPU-a")

    rig.restart()
    rig.steps(10)

    assert rig.gpus.instances("GPU-a") == before
    assert told(rig, lease) == ["started"]
    rig.steps(60)
    assert there(rig) == []
    assert {each.gpu_uuid for each in rig.market.intervals(lease)} == {THREE}


def test_a_lease_that_is_gone_while_no_agent_ran_leaves_no_instance(rig: Rig) -> None:
    lease = rig.market.assign(assignment(THREE, now_ms=NOON_MS, seconds=60))
    rig.agent.run_once()
    del rig.market.desired[lease]

    rig.restart()
    rig.steps(10)

    assert there(rig) == []


def test_what_was_written_down_before_a_restart_of_the_host_is_void(divisible: Script) -> None:
    gpus = NvmlGpus(pids_are_ours=True, may_divide=True)
    file = divisible.path.with_name("instances.json")
    Instances(gpus, file, boot="one").make(uuid4(), [THREE])
    (made,) = gpus.instances("GPU-a")

    after = Instances(gpus, file, boot="two")
    after.settle()

    assert after.tidy([]) == [] and after.devices == frozenset()
    assert gpus.instances("GPU-a") == (made,)  # whoever made it anew


def test_an_instance_that_took_the_place_of_ours_is_left_alone(divisible: Script) -> None:
    gpus = NvmlGpus(pids_are_ours=True, may_divide=True)
    file = divisible.path.with_name("instances.json")
    instances = Instances(gpus, file, boot="one")
    instances.make(uuid4(), [THREE])
    gpus.remove_instance(gpus.instances("GPU-a")[0])
    gpus.make_instance("GPU-a", "1g.10gb", 6, 6)
    other = gpus.make_instance("GPU-a", "3g.40gb", 0, 3)

    assert instances.tidy([]) != []

    assert other in gpus.instances("GPU-a")


def test_work_sees_its_instance_and_nothing_else(tmp_path: Path) -> None:
    runtime = ProcessRuntime(tmp_path, clock=SystemClock())
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    wanted = WorkSpec(
        lease_id=uuid4(),
        gpu_uuids=(THREE,),
        command=(sys.executable, "-c", code),
        environment={"CUDA_VISIBLE_DEVICES": "all"},
        device_uuids=("MIG-1234",),
    )

    runtime.start(wanted)
    ended(runtime, wanted.lease_id)

    output = tmp_path / "leases" / str(wanted.lease_id) / "stdout.log"
    seen = json.loads(output.read_text())
    assert seen["CUDA_VISIBLE_DEVICES"] == seen["NVIDIA_VISIBLE_DEVICES"] == "MIG-1234"
    assert ProcessRuntime(tmp_path, clock=SystemClock()).works()[0].devices == ("MIG-1234",)


def test_the_doctor_says_of_each_card_whether_the_market_can_divide_it(
    divisible: Script, tmp_path: Path
) -> None:
    def said(*, may_divide: bool) -> dict[str, doctor.Check]:
        checks = doctor.examine(
            make_gpus=lambda: NvmlGpus(may_divide=may_divide),
            uplink=None,
            state_dir=tmp_path / "state",
            token_file=None,
        )
        return {check.name: check for check in checks}

    ready = said(may_divide=True)
    assert ready["MIG on GPU-a"].fine is True
    assert ready["MIG on GPU-b"].fine is None
    assert "nvidia-smi -i GPU-b -mig 1" in ready["MIG on GPU-b"].mend
    assert said(may_divide=False)["MIG on GPU-a"].fine is False
    divisible.say("mig gpu=0 i=0 gi=9 ci=0 uuid=MIG-own slices=3 start=0 profile=4")
    assert "1 instances are there" in said(may_divide=True)["MIG on GPU-a"].found


# --- kill -9 -------------------------------------------------------------------------------------

(_, SIMULATED) = (
    gpu.uuid
    for gpu in SimulatedGpus(["L4", "H100@MIG"], clock=ManualClock(0), holders=dict).inventory()
)
LEASED = f"{SIMULATED}/mig-2g.20gb@4-5"


def made_in(state_dir: Path) -> list[Instance]:
    file = state_dir / "simulated-mig.json"
    return (
        [Instance(**each) for each in json.loads(file.read_text())["made"]] if file.exists() else []
    )


@pytest.mark.parametrize("still_leased", [True, False])
@pytest.mark.parametrize(
    "doom", ["make-before:1", "make-after:1", "start-before:1", "remove-before:1", "remove-after:1"]
)
def test_a_kill_leaves_neither_an_instance_nor_a_lease_without_one(
    tmp_path: Path, doom: str, still_leased: bool
) -> None:
    state_dir = tmp_path / "host"
    with served(Market(sample_seconds=1, poll_seconds=1)) as market:
        now_ms = SystemClock().now_ms()
        command = (sys.executable, "-c", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
        lease = market.assign(assignment(LEASED, now_ms=now_ms, command=command))
        agent = launch(market, state_dir, doom)
        assert agent.wait(DEADLINE_SECONDS) == -signal.SIGKILL
        instances = {"make-before": 0, "remove-after": 0}.get(doom.partition(":")[0], 1)
        assert len(made_in(state_dir)) == instances
        if not still_leased:
            del market.desired[lease]

        agent = launch(market, state_dir, "none:0")
        try:
            if still_leased:
                until(
                    lambda: "exited" in [each.what for each in market.told(lease)],
                    what="its work is done",
                )
                output = state_dir / "leases" / str(lease) / "stdout.log"
                assert output.read_text().startswith("MIG-")
            until(lambda: not made_in(state_dir), what="its instance is removed")
            record = state_dir / "instances.json"
            until(lambda: not json.loads(record.read_text())["made"], what="and forgotten")
        finally:
            agent.send_signal(signal.SIGTERM)
            assert agent.wait(DEADLINE_SECONDS) == 0
    assert os.path.exists(state_dir)
