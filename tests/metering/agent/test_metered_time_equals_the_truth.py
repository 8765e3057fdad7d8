"""The figures that reach the server, against what the driver's script says really happened."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest

from metering.agent.wire import Interval
from tests.metering.agent.conftest import NOON_MS, Rig
from tests.metering.agent.market import assignment
from tests.nvml.script import Proc

SECOND = 1000


def assert_contiguous(intervals: list[Interval]) -> None:
    for earlier, later in pairwise(intervals):
        assert earlier.end_ms == later.start_ms


def total(intervals: list[Interval], figure: str) -> int:
    return sum(getattr(each, figure) for each in intervals)


def test_two_leases_and_a_stray_each_get_their_own(rig: Rig) -> None:
    assert rig.script is not None
    one = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, seconds=100))
    two = rig.market.assign(assignment("GPU-b", now_ms=NOON_MS, seconds=60))
    rig.agent.run_once()
    since, until = NOON_MS + 3 * SECOND, NOON_MS + 98 * SECOND  # its memory is free with its end
    load_one = rig.script.proc(
        Proc(0, rig.pid("GPU-a"), sm=80, start_ms=since, end_ms=until, mem_mib=7000)
    )
    load_two = rig.script.proc(Proc(1, rig.pid("GPU-b"), sm=35, start_ms=NOON_MS + 7 * SECOND))
    rig.script.proc(Proc(1, os.getpid(), sm=15, start_ms=NOON_MS + 20 * SECOND))

    rig.steps(130)

    for lease, gpu, load, seconds in (
        (one, "GPU-a", load_one, 98),  # both stop on SIGTERM, which comes 2 s before the end
        (two, "GPU-b", load_two, 58),
    ):
        intervals = rig.market.intervals(lease)
        assert {each.gpu_uuid for each in intervals} == {gpu}
        assert_contiguous(intervals)
        start_ms, end_ms = intervals[0].start_ms, intervals[-1].end_ms
        assert (start_ms, end_ms) == (NOON_MS, NOON_MS + seconds * SECOND)
        assert total(intervals, "granted_ms") == seconds * SECOND
        assert total(intervals, "occupied_ms") == load.resident_ms(start_ms, end_ms)
        assert total(intervals, "busy_ms") == load.busy_ms(start_ms, end_ms)
    assert rig.market.intervals(one)[-1].memory_used_mib == 7000
    assert [(h.kind, h.gpu_uuid) for h in rig.market.health()] == [("stray-process", "GPU-b")]


@pytest.mark.parametrize("tick_ms", [250, 700, 1000])
def test_granted_time_is_exact_whatever_the_tick(rig: Rig, tick_ms: int) -> None:
    rig.step(437)
    now_ms = rig.clock.now_ms()
    lease = rig.market.assign(
        assignment("GPU-a", "GPU-b", now_ms=now_ms, command=("sleep", "33.217"))
    )
    rig.step(5000)
    started_ms = rig.clock.now_ms()

    rig.steps(60_000 // tick_ms, tick_ms)

    for gpu in ("GPU-a", "GPU-b"):
        intervals = rig.market.intervals(lease, gpu)
        assert_contiguous(intervals)
        assert intervals[0].start_ms == started_ms
        assert total(intervals, "granted_ms") == 33_217
    exited = rig.market.told(lease)[-1]
    assert (exited.what, exited.exit_code) == ("exited", 0)


def test_load_that_comes_and_goes_is_weighed_by_the_drivers_time_stamps(rig: Rig) -> None:
    assert rig.script is not None
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, command=("sleep", "50")))
    rig.agent.run_once()
    pid = rig.pid("GPU-a")
    bursts = [
        Proc(0, pid, sm=90, start_ms=NOON_MS + 5 * SECOND, end_ms=NOON_MS + 12 * SECOND),
        Proc(0, pid, sm=20, start_ms=NOON_MS + 20 * SECOND, end_ms=NOON_MS + 41 * SECOND),
    ]
    for burst in bursts:
        rig.script.proc(burst)

    rig.steps(55)

    intervals = rig.market.intervals(lease)
    assert total(intervals, "occupied_ms") == 28 * SECOND
    assert total(intervals, "busy_ms") == 7 * 900 + 21 * 200


@pytest.mark.parametrize("tick_ms", [100, 270, 500, 730])
def test_busy_time_does_not_depend_on_how_often_one_looks(rig: Rig, tick_ms: int) -> None:
    assert rig.script is not None
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, command=("sleep", "60")))
    rig.agent.run_once()
    pid = rig.pid("GPU-a")
    loads = [
        Proc(0, pid, sm=90, start_ms=NOON_MS + 5_000 * n, end_ms=NOON_MS + 5_000 * n + 3_000)
        for n in range(1, 11)
    ]
    for load in loads:
        rig.script.proc(load)

    rig.steps(65_000 // tick_ms, tick_ms)

    intervals = rig.market.intervals(lease)
    truth_ms = sum(load.busy_ms(NOON_MS, NOON_MS + 60 * SECOND) for load in loads)
    assert truth_ms == 27_000
    # Each of the ten bursts may lose or gain what lies between two looks.
    assert abs(total(intervals, "busy_ms") - truth_ms) <= 10 * tick_ms * 90 // 100
    assert abs(total(intervals, "occupied_ms") - 30 * SECOND) <= 10 * tick_ms


def test_garbage_of_the_driver_is_dropped(rig: Rig) -> None:
    assert rig.script is not None
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, command=("sleep", "20")))
    rig.agent.run_once()
    pid = rig.pid("GPU-a")
    rig.script.proc(Proc(0, pid, sm=50, start_ms=NOON_MS, end_ms=NOON_MS + 5 * SECOND))
    rig.script.proc(Proc(0, pid, sm=0, start_ms=NOON_MS + 5 * SECOND))
    rig.steps(5)
    now_us = rig.clock.now_ms() * 1000
    for sample in (
        f"pid={pid} sm=2147483632 until={now_us + 1_000_000}",
        f"pid={pid} sm=100 until={now_us + 3_600_000_000}",
        f"pid={pid} sm=100 until={now_us - 9_000_000}",
        f"pid=424242 sm=100 until={now_us + 2_000_000}",
    ):
        rig.script.say(f"sample gpu=0 {sample}")

    rig.steps(20)

    intervals = rig.market.intervals(lease)
    assert total(intervals, "busy_ms") == 5 * 500
    assert total(intervals, "granted_ms") == 20 * SECOND


def test_on_a_mig_instance_busy_time_is_unknown_and_not_zero(rig: Rig) -> None:
    assert rig.script is not None
    rig.script.card("GPU-c", "mig=1")
    rig.script.say("mig gpu=2 i=0 gi=1 ci=0 uuid=MIG-1 slices=3 mem=42949672960")
    rig.script.say("mig gpu=2 i=1 gi=2 ci=0 uuid=MIG-2 slices=4 mem=42949672960")
    rig.restart()
    lease = rig.market.assign(assignment("MIG-1", now_ms=NOON_MS, command=("sleep", "30")))
    rig.agent.run_once()
    rig.script.proc(Proc(2, rig.pid("MIG-1"), sm=50, start_ms=NOON_MS + 10 * SECOND, gi=1))

    rig.steps(35)

    intervals = rig.market.intervals(lease)
    assert {each.busy_ms for each in intervals} == {None}
    assert total(intervals, "occupied_ms") == 20 * SECOND
    registered = {gpu.uuid: gpu for gpu in rig.market.registrations[-1].gpus}
    assert registered.keys() == {"GPU-a", "GPU-b", "MIG-1", "MIG-2"}
    assert registered["MIG-1"].mig_profiles == ("3g.40gb",)
    assert {registered[name].card_uuid for name in ("MIG-1", "MIG-2")} == {"GPU-c"}


def test_without_the_hosts_process_ids_occupied_time_is_unknown(rig: Rig) -> None:
    rig.pids_are_ours = False
    rig.restart()
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, command=("sleep", "30")))
    rig.agent.run_once()

    rig.steps(35)

    intervals = rig.market.intervals(lease)
    assert total(intervals, "granted_ms") == 30 * SECOND
    assert {each.occupied_ms for each in intervals[1:]} == {None}


def test_a_process_on_a_gpu_that_its_lease_does_not_have_is_a_stray(rig: Rig) -> None:
    assert rig.script is not None
    one = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS))
    two = rig.market.assign(assignment("GPU-b", now_ms=NOON_MS))
    rig.agent.run_once()
    rig.script.proc(Proc(1, rig.pid("GPU-a"), sm=50, start_ms=NOON_MS))

    rig.steps(30)

    (health,) = rig.market.health()
    assert (health.kind, health.gpu_uuid) == ("stray-process", "GPU-b")
    assert str(one) in health.detail
    assert total(rig.market.intervals(one), "occupied_ms") == 0
    assert total(rig.market.intervals(two), "occupied_ms") == 0
