"""A host with all that happens to one, read by the agent, by gpustat and by nvitop.

All three go through NVIDIA's binding to one compiled library, whose script is the truth.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from metering.agent.wire import Interval
from metering.domain.health import HealthSaid, conditions
from tests.metering.agent.conftest import NOON_MS, Rig
from tests.metering.agent.market import assignment
from tests.nvml import second_opinions
from tests.nvml.script import Proc

SECOND = 1000
CARDS = ("GPU-a", "GPU-b", "GPU-c", "GPU-d")
HALVES = [f"GPU-b/timeslice-{n}of2/50pct-40960mib" for n in (1, 2)]
SECONDS, XID_AT = 100, 40
LOST, MISMATCH = 15, 18
READERS = ("gpustat", "nvitop")
Ask = Callable[[], dict[str, Any]]


@pytest.fixture
def others(nvml_library: Path, rig: Rig) -> Iterator[Ask]:
    """Ask gpustat and nvitop, in a process of their own, what they see now."""
    for name in READERS:
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed: see tests/requirements.txt")
    assert rig.script is not None
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(nvml_library.parent),
        "FAKE_NVML_STATE": str(rig.script.path),
    }
    command = [sys.executable, str(Path(second_opinions.__file__))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as reader:
        assert reader.stdin is not None and reader.stdout is not None
        sent, told = reader.stdin, reader.stdout

        def ask() -> dict[str, Any]:
            sent.write("\n")
            sent.flush()
            found: dict[str, Any] = json.loads(told.readline())
            return found

        yield ask
        sent.close()


def at(seconds: int) -> int:
    return NOON_MS + seconds * SECOND


def total(intervals: list[Interval], figure: str) -> int:
    return sum(getattr(each, figure) for each in intervals)


def quarantined(rig: Rig) -> dict[str, str]:
    """Return what the market makes of all that it was told of health so far."""
    said = [
        HealthSaid(each.gpu_uuid, each.kind, each.at, each.detail) for each in rig.market.health()
    ]
    return {uuid: how for uuid, how in conditions(CARDS, said).items() if how != "healthy"}


def test_busy_is_true_granted_exact_and_a_fault_told_at_once(rig: Rig, others: Ask) -> None:
    script, market = rig.script, rig.market
    assert script is not None
    script.cards[2:] = ["gpu i=2 uuid=GPU-c mig=1 gpm=1", "gpu i=3 uuid=GPU-d"]
    for slot, uuid in enumerate(("MIG-one", "MIG-two")):
        memory = f"mem={20 * 2**30}"
        script.say(f"mig gpu=2 i={slot} gi={slot + 1} ci=0 uuid={uuid} slices=3 {memory}")
    gpus = ("GPU-a", *HALVES, "MIG-one", "MIG-two", "GPU-d")
    length = SECONDS + 2  # work is asked to stop two seconds before the end
    leases = {
        uuid: market.assign(assignment(uuid, now_ms=NOON_MS, seconds=length)) for uuid in gpus
    }
    rig.agent.run_once()
    first, second = rig.runtime.holders()["GPU-b"]
    last = SECONDS - 1
    loads = {
        "GPU-a": [
            Proc(0, rig.pid("GPU-a"), sm=83, start_ms=at(3), end_ms=at(47)),
            Proc(0, rig.pid("GPU-a"), sm=17, start_ms=at(55), end_ms=at(last)),
        ],
        HALVES[0]: [Proc(1, first, sm=52, start_ms=at(2), end_ms=at(last))],
        HALVES[1]: [Proc(1, second, sm=31, start_ms=at(9), end_ms=at(last))],
        "MIG-one": [Proc(2, rig.pid("MIG-one"), sm=73, start_ms=at(1), end_ms=at(last), gi=1)],
        "MIG-two": [],
        "GPU-d": [Proc(3, rig.pid("GPU-d"), sm=60, start_ms=at(1), end_ms=at(last))],
    }
    for load in [each for of_gpu in loads.values() for each in of_gpu]:
        script.proc(load)
    script.proc(Proc(0, os.getpid(), sm=9, start_ms=at(20), end_ms=at(last)))  # a stray

    seen = {(reader, uuid): 0 for reader in READERS for uuid in ("GPU-a", "GPU-b")}

    def step() -> None:
        rig.step()
        told = others()
        assert told["nvitop"]["MIG-one"]["percent"] is None, "no other reader knows it of MIG"
        assert told["gpustat"]["GPU-c"]["percent"] is None
        for reader, uuid in seen:
            seen[reader, uuid] += told[reader][uuid]["percent"] * SECOND // 100
        assert told["gpustat"]["GPU-b"]["memory_mib"] == told["nvitop"]["GPU-b"]["memory_mib"]

    for _ in range(XID_AT):
        step()
    assert quarantined(rig) == {}
    script.say("event gpu=3 data=79 seq=1")
    step()
    assert quarantined(rig) == {"GPU-d": "failing"}, "it was told in the next report"
    script.say(f"err fn=* gpu=3 code={LOST}")
    step()
    assert quarantined(rig) == {"GPU-d": "lost"}
    for _ in range(SECONDS - XID_AT):
        step()

    start_ms, end_ms = NOON_MS, at(SECONDS)
    for uuid, lease in leases.items():
        intervals = market.intervals(lease)
        for earlier, later in pairwise(intervals):
            assert earlier.end_ms == later.start_ms
        assert total(intervals, "granted_ms") == end_ms - start_ms
        if uuid == "GPU-d":
            assert None in {each.busy_ms for each in intervals}
            continue
        truth_ms = sum(load.busy_ms(start_ms, end_ms) for load in loads[uuid])
        assert abs(total(intervals, "busy_ms") - truth_ms) <= truth_ms * 5 // 1000
    assert "stray-process" in {each.kind for each in market.health()}
    # The others show what anybody did on a card, and so the stray's load too.
    stray_ms = (last - 20) * SECOND * 9 // 100
    for reader, uuid in seen:
        mine = ["GPU-a"] if uuid == "GPU-a" else HALVES
        agents_ms = sum(total(market.intervals(leases[each]), "busy_ms") for each in mine)
        agents_ms += stray_ms if uuid == "GPU-a" else 0
        assert abs(seen[reader, uuid] - agents_ms) <= agents_ms * 3 // 100

    script.say(f"err fn=* gpu=-1 code={MISMATCH}")
    rig.steps(31)  # cards without a lease are looked at every half minute
    assert quarantined(rig).keys() == set(CARDS)
