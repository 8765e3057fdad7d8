"""MIG instances are measured as a whole, and short lives by the card's accounts."""

from __future__ import annotations

import os

import pytest

from metering.agent.gpus.nvml import NvmlGpus
from metering.agent.wire import Interval
from tests.metering.agent.conftest import NOON_MS, Rig
from tests.metering.agent.market import assignment
from tests.nvml.script import Proc, Script

SECOND = 1000
ONE, TWO = ("MIG-one", 1, 3), ("MIG-two", 2, 2)


def total(intervals: list[Interval], figure: str) -> int:
    return sum(getattr(each, figure) for each in intervals)


def divided(script: Script, options: str = "gpm=1") -> None:
    script.cards[0] = f"gpu i=0 uuid=GPU-a mig=1 {options}"
    for slot, (uuid, number, slices) in enumerate((ONE, TWO)):
        memory = f"mem={20 * 2**30}"
        script.say(f"mig gpu=0 i={slot} gi={number} ci=0 uuid={uuid} slices={slices} {memory}")


def test_an_instance_is_as_busy_as_gpm_says_and_its_neighbour_is_not(rig: Rig) -> None:
    assert rig.script is not None
    divided(rig.script)
    busy, idle = (
        rig.market.assign(assignment(uuid, now_ms=NOON_MS, seconds=102))
        for uuid, _, _ in (ONE, TWO)
    )
    rig.agent.run_once()
    pid = rig.pid("MIG-one")
    load = rig.script.proc(
        Proc(0, pid, sm=73, start_ms=NOON_MS + 3 * SECOND, end_ms=NOON_MS + 90 * SECOND, gi=1)
    )

    rig.steps(115)

    intervals = rig.market.intervals(busy)
    truth_ms = load.busy_ms(NOON_MS, NOON_MS + 100 * SECOND)
    assert abs(total(intervals, "busy_ms") - truth_ms) <= truth_ms // 200
    assert total(rig.market.intervals(idle), "busy_ms") == 0


def test_without_gpm_an_instance_is_not_known_to_be_busy(rig: Rig) -> None:
    assert rig.script is not None
    divided(rig.script, "gpm=0")
    lease = rig.market.assign(assignment("MIG-one", now_ms=NOON_MS, seconds=60))
    rig.agent.run_once()
    rig.steps(30)

    assert {each.busy_ms for each in rig.market.intervals(lease)} == {None}


def test_a_stranger_on_an_instance_makes_its_load_nobodys(rig: Rig) -> None:
    assert rig.script is not None
    divided(rig.script)
    lease = rig.market.assign(assignment("MIG-one", now_ms=NOON_MS, seconds=100))
    rig.agent.run_once()
    rig.steps(12)
    rig.script.proc(Proc(0, os.getpid(), sm=50, start_ms=rig.clock.now_ms(), gi=1))
    rig.steps(30)

    busy = [each.busy_ms for each in rig.market.intervals(lease)]
    assert busy[0] == 0
    assert busy[-1] is None
    assert "stray-process" in {each.kind for each in rig.market.health()}


def accounted(script: Script, options: str = "acct=1") -> None:
    script.cards[0] = f"gpu i=0 uuid=GPU-a {options}"
    script.write()


@pytest.mark.parametrize("on", [True, False])
def test_lives_that_no_look_saw_count_where_the_card_keeps_accounts(rig: Rig, on: bool) -> None:
    """A process of 400 ms comes and goes between two samples of the driver."""
    assert rig.script is not None
    accounted(rig.script, f"acct={int(on)}")
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, seconds=62))
    rig.agent.run_once()
    for number in range(20):
        start_ms = NOON_MS + number * 2 * SECOND + 300
        brief = Proc(0, 4_100_000 + number, sm=90, start_ms=start_ms, end_ms=start_ms + 400)
        rig.script.proc(brief)

    rig.steps(75)

    busy_ms = total(rig.market.intervals(lease), "busy_ms")
    assert busy_ms == (20 * 360 if on else 0)


def test_what_was_sampled_does_not_count_again_when_it_is_accounted(rig: Rig) -> None:
    assert rig.script is not None
    accounted(rig.script)
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, seconds=62))
    rig.agent.run_once()
    pid = rig.pid("GPU-a")
    load = rig.script.proc(Proc(0, pid, sm=80, start_ms=NOON_MS + 3_300, end_ms=NOON_MS + 9_700))

    rig.steps(75)

    assert total(rig.market.intervals(lease), "busy_ms") == load.busy_ms(NOON_MS, NOON_MS + 60_000)


def test_what_ended_before_a_lease_is_not_its_own(rig: Rig) -> None:
    assert rig.script is not None
    accounted(rig.script)
    rig.script.proc(Proc(0, 4_100_000, sm=90, start_ms=NOON_MS - 900, end_ms=NOON_MS - 100))
    rig.agent.run_once()
    before = Proc(0, 4_100_001, sm=90, start_ms=NOON_MS + 200, end_ms=NOON_MS + 700)
    rig.script.proc(before)
    rig.step()
    lease = rig.market.assign(assignment("GPU-a", now_ms=rig.clock.now_ms(), seconds=60))
    rig.steps(30)

    assert total(rig.market.intervals(lease), "busy_ms") == 0


def test_a_short_life_on_a_shared_card_that_nobody_saw_is_nobodys(rig: Rig) -> None:
    assert rig.script is not None
    accounted(rig.script)
    leases = [
        rig.market.assign(
            assignment(f"GPU-a/timeslice-{n}of2/50pct-40960mib", now_ms=NOON_MS, seconds=60)
        )
        for n in (1, 2)
    ]
    rig.agent.run_once()
    rig.script.proc(Proc(0, 4_100_000, sm=90, start_ms=NOON_MS + 300, end_ms=NOON_MS + 800))
    rig.steps(30)

    for lease in leases:
        assert total(rig.market.intervals(lease), "busy_ms") == 0


def test_it_is_said_how_busy_is_measured(script: Script) -> None:
    script.cards[0] = "gpu i=0 uuid=GPU-a acct=1"
    script.cards[1] = "gpu i=1 uuid=GPU-b"
    script.card("GPU-c", "mig=1 gpm=1")
    script.card("GPU-d", "mig=1")
    script.say("err fn=nvmlDeviceGetProcessUtilization gpu=2 code=3")
    script.say("err fn=nvmlDeviceGetProcessUtilization gpu=3 code=3")
    for gpu, uuid in ((2, "MIG-c"), (3, "MIG-d")):
        script.say(f"mig gpu={gpu} i=0 gi=1 ci=0 uuid={uuid} slices=3 mem={20 * 2**30}")
    gpus = NvmlGpus(pids_are_ours=True)
    gpus.inventory()

    said = {uuid: gpus.busy_by(uuid) for uuid in ("GPU-a", "GPU-b", "MIG-c", "MIG-d")}

    assert said == {
        "GPU-a": "processes and accounts",
        "GPU-b": "processes",
        "MIG-c": "instance",
        "MIG-d": "",
    }
