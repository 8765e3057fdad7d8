"""What every implementation of the GPU port promises: the scripted driver and the simulation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from metering.agent.clock import ManualClock
from metering.agent.gpus.guarded import GuardedGpus
from metering.agent.gpus.nvml import NvmlGpus
from metering.agent.gpus.port import GpuFault, Gpus, Reading
from metering.agent.gpus.simulated import SimulatedGpus, parse_models
from metering.agent.wire import Gpu
from tests.metering.agent.conftest import NOON_MS
from tests.nvml.script import Proc, Script


@dataclass
class Bench:
    """One implementation, and the means to make things happen on it."""

    gpus: Gpus
    occupy: Callable[[str, int], object]
    lose: Callable[[str], None]
    heal: Callable[[str], None]
    break_driver: Callable[[], None]
    mend_driver: Callable[[], None]
    announce: Callable[[str, int], None]
    at: Callable[[int], None]


def nvml_bench(script: Script) -> Bench:
    index = {"GPU-a": 0, "GPU-b": 1}
    mismatch = "err fn=* gpu=-1 code=18"
    return Bench(
        gpus=NvmlGpus(pids_are_ours=True),
        occupy=lambda uuid, pid: script.proc(Proc(index[uuid], pid, sm=60, start_ms=NOON_MS)),
        lose=lambda uuid: script.say(f"err fn=* gpu={index[uuid]} code=15"),
        heal=lambda uuid: script.unsay(f"err fn=* gpu={index[uuid]} code=15"),
        break_driver=lambda: script.say(mismatch),
        mend_driver=lambda: script.unsay(mismatch),
        announce=lambda uuid, number: script.say(
            f"event gpu={index[uuid]} data={number} seq={len(script.more) + 1}"
        ),
        at=script.at,
    )


def simulated_bench() -> Bench:
    clock = ManualClock(NOON_MS)
    on: dict[str, list[int]] = {}
    gpus = SimulatedGpus(["H100", "H100"], clock=clock, holders=lambda: on)
    return Bench(
        gpus=gpus,
        occupy=lambda uuid, pid: on.setdefault(uuid, []).append(pid),
        lose=gpus.fail,
        heal=gpus.heal,
        break_driver=lambda: gpus.fail(None),
        mend_driver=lambda: gpus.heal(None),
        announce=gpus.announce,
        at=lambda ms: clock.advance(ms - clock.now_ms()),
    )


@pytest.fixture(params=["nvml", "simulated", "guarded"])
def bench(request: pytest.FixtureRequest, script: Script) -> Bench:
    if request.param == "nvml":
        return nvml_bench(script)
    bench = simulated_bench()
    if request.param == "guarded":
        bench.gpus = GuardedGpus(bench.gpus)
    return bench


def look(bench: Bench, uuid: str, since_ms: int = NOON_MS) -> Reading:
    return bench.gpus.read(uuid, since_us=since_ms * 1000)


def uuids(bench: Bench) -> list[str]:
    return [gpu.uuid for gpu in bench.gpus.inventory()]


def test_the_inventory_names_each_gpu_and_can_be_sent(bench: Bench) -> None:
    gpus = bench.gpus.inventory()

    assert len({gpu.uuid for gpu in gpus}) == 2
    for gpu in gpus:
        assert Gpu.from_json(gpu.to_json()) == gpu
        assert "H100" in gpu.model and gpu.memory_mib > 80_000
        assert gpu.compute_capability == "9.0" and not gpu.mig_enabled
    assert len({gpu.nvlink_group for gpu in gpus} - {None}) == 1


def test_an_idle_gpu_reads_as_idle_and_not_as_unknown(bench: Bench) -> None:
    reading = look(bench, uuids(bench)[0])

    assert reading.residents == () and reading.utilisation == ()


def test_a_process_shows_on_its_gpu_only_with_memory_and_load(bench: Bench) -> None:
    first, second = uuids(bench)
    bench.occupy(first, 4242)

    bench.at(NOON_MS + 2_000)

    reading = look(bench, first)
    (resident,) = reading.residents
    assert resident.pid == 4242 and resident.memory_mib
    assert reading.utilisation is not None
    (sample,) = reading.utilisation
    assert sample.pid == 4242 and 0 < sample.percent <= 100
    assert sample.until_us == (NOON_MS + 2_000) * 1000
    assert look(bench, second).residents == ()


def test_a_sample_is_given_only_when_newer_than_asked_for(bench: Bench) -> None:
    (uuid, _) = uuids(bench)
    bench.occupy(uuid, 4242)

    bench.at(NOON_MS + 2_000)

    assert look(bench, uuid, since_ms=NOON_MS + 2_000).utilisation == ()


def test_a_lost_gpu_does_not_hide_the_other_and_comes_back(bench: Bench) -> None:
    lost, other = uuids(bench)
    bench.lose(lost)

    with pytest.raises(GpuFault) as fault:
        look(bench, lost)
    assert (fault.value.kind, fault.value.uuid) == ("gpu-lost", lost)
    assert look(bench, other).residents == ()
    assert uuids(bench) == [other]

    bench.heal(lost)
    assert look(bench, lost).residents == ()
    assert uuids(bench) == [lost, other]


def test_a_driver_updated_under_us_is_told_apart_and_comes_back(bench: Bench) -> None:
    (uuid, _) = uuids(bench)
    bench.break_driver()

    with pytest.raises(GpuFault) as fault:
        look(bench, uuid)
    assert (fault.value.kind, fault.value.uuid) == ("driver-mismatch", None)
    with pytest.raises(GpuFault):
        bench.gpus.inventory()

    bench.mend_driver()
    assert look(bench, uuid).residents == ()


def test_an_announced_error_is_given_once(bench: Bench) -> None:
    (_, uuid) = uuids(bench)
    bench.announce(uuid, 79)

    assert [(x.uuid, x.number) for x in bench.gpus.xids()] == [(uuid, 79)]
    assert list(bench.gpus.xids()) == []


def test_an_unknown_gpu_is_a_fault(bench: Bench) -> None:
    with pytest.raises(GpuFault):
        look(bench, "GPU-of-another-host")


def test_it_can_be_closed_twice(bench: Bench) -> None:
    bench.gpus.inventory()
    bench.gpus.close()
    bench.gpus.close()


def test_the_simulation_follows_from_its_seed() -> None:
    one, same = (SimulatedGpus(["L4"] * 3, clock=ManualClock(NOON_MS), holders=dict, seed="x")
                 for _ in range(2))  # fmt: skip
    other = SimulatedGpus(["L4"] * 3, clock=ManualClock(NOON_MS), holders=dict, seed="y")

    assert one.inventory() == same.inventory() != other.inventory()
    assert [one.percent("u", s) for s in range(90)] == [same.percent("u", s) for s in range(90)]


@pytest.mark.parametrize(
    "text", ["", "H1000:8", "H100:0", "H100:-1", "H100:x", "H100:9999", "L4:²"]
)
def test_a_list_of_models_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"GPU|number"):
        parse_models(text)


def test_a_list_of_models_names_each_gpu() -> None:
    assert parse_models("h100:2,L4") == ("H100", "H100", "L4")


class Hanging(SimulatedGpus):
    """A driver whose next read hangs until it is let go."""

    def __init__(self) -> None:
        super().__init__(["H100"], clock=ManualClock(NOON_MS), holders=dict)
        self.hang = threading.Event()
        self.go = threading.Event()

    def read(self, uuid: str, *, since_us: int) -> Reading:
        if self.hang.is_set():
            self.go.wait(timeout=30)
        return super().read(uuid, since_us=since_us)


def test_a_driver_that_hangs_holds_nobody_up_and_may_come_back() -> None:
    inner = Hanging()
    gpus = GuardedGpus(inner, seconds=0.05)
    (gpu,) = gpus.inventory()
    inner.hang.set()

    for _ in range(3):
        with pytest.raises(GpuFault, match="answer"):
            gpus.read(gpu.uuid, since_us=0)
    assert list(gpus.xids()) == []

    inner.hang.clear()
    inner.go.set()
    for _ in range(1000):
        try:
            assert gpus.read(gpu.uuid, since_us=0).residents == ()
            break
        except GpuFault:
            threading.Event().wait(timeout=0.01)  # the other thread's turn
    else:
        pytest.fail("it did not come back")
