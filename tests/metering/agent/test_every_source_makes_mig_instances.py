"""What every implementation of the GPU port promises of MIG instances that the agent makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import pytest

from listings.domain import mig
from metering.agent.clock import ManualClock
from metering.agent.gpus.guarded import GuardedGpus
from metering.agent.gpus.nvml import NvmlGpus
from metering.agent.gpus.port import GpuFault, Gpus, Instance, InstanceBusy, InstanceRefused
from metering.agent.gpus.simulated import SimulatedGpus, parse_models
from metering.agent.gpus.simulated_mig import NAMES, profiles_of
from tests.metering.agent.conftest import NOON_MS
from tests.nvml.script import Proc, Script


@dataclass
class Bench:
    """A card in MIG mode, one that is not, and the means to put work on an instance."""

    gpus: Gpus
    divisible: str
    plain: str
    occupy: Callable[[Instance, int], object]
    leave: Callable[[Instance, int], object]
    lose: Callable[[], None]


def nvml_bench(script: Script) -> Bench:
    script.cards.clear()
    script.card("GPU-a", "mig=1")
    script.card("GPU-b")
    return Bench(
        gpus=NvmlGpus(pids_are_ours=True, may_divide=True),
        divisible="GPU-a",
        plain="GPU-b",
        occupy=lambda made, pid: script.proc(
            Proc(0, pid, sm=60, start_ms=NOON_MS - 1, gi=made.number)
        ),
        leave=lambda made, pid: script.end(pid, NOON_MS),
        lose=lambda: script.say("err fn=* gpu=0 code=15"),
    )


def simulated_bench() -> Bench:
    on: dict[str, list[int]] = {}
    gpus = SimulatedGpus(["H100@MIG", "H100"], clock=ManualClock(NOON_MS), holders=lambda: on)
    divisible, plain = (gpu.uuid for gpu in gpus.inventory())

    def occupy(made: Instance, pid: int) -> None:
        on.setdefault(made.uuid or "", []).append(pid)

    return Bench(
        gpus=gpus,
        divisible=divisible,
        plain=plain,
        occupy=occupy,
        leave=lambda made, pid: on.clear(),
        lose=lambda: gpus.fail(divisible),
    )


@pytest.fixture(params=["nvml", "simulated", "guarded"])
def bench(request: pytest.FixtureRequest, script: Script) -> Bench:
    bench = simulated_bench() if request.param == "simulated" else nvml_bench(script)
    if request.param == "guarded":
        bench.gpus = GuardedGpus(bench.gpus)
    return bench


def test_an_instance_is_made_at_its_place_and_is_what_cuda_can_use(bench: Bench) -> None:
    made = bench.gpus.make_instance(bench.divisible, "3g.40gb", 4, 7)

    assert (made.profile, made.first, made.last) == ("3g.40gb", 4, 7)
    assert made.uuid is not None and made.uuid.startswith("MIG-")
    assert bench.gpus.instances(bench.divisible) == (made,)
    reading = bench.gpus.read(made.uuid, since_us=0)
    assert reading.residents == () and reading.utilisation is None


def test_an_instance_shows_its_own_processes_only(bench: Bench) -> None:
    one = bench.gpus.make_instance(bench.divisible, "3g.40gb", 4, 7)
    two = bench.gpus.make_instance(bench.divisible, "1g.10gb", 0, 0)
    bench.occupy(one, 4242)

    for made, pids in ((one, [4242]), (two, [])):
        reading = bench.gpus.read(made.uuid or "", since_us=0)
        assert [each.pid for each in reading.residents] == pids


def test_a_removed_instance_leaves_its_place_to_another(bench: Bench) -> None:
    made = bench.gpus.make_instance(bench.divisible, "3g.40gb", 4, 7)
    with pytest.raises(InstanceRefused):
        bench.gpus.make_instance(bench.divisible, "2g.20gb", 4, 5)

    bench.gpus.remove_instance(made)
    bench.gpus.remove_instance(made)

    assert bench.gpus.instances(bench.divisible) == ()
    bench.gpus.make_instance(bench.divisible, "2g.20gb", 4, 5)


def test_an_instance_in_use_is_not_removed(bench: Bench) -> None:
    made = bench.gpus.make_instance(bench.divisible, "7g.80gb", 0, 7)
    bench.occupy(made, 4242)

    with pytest.raises(InstanceBusy):
        bench.gpus.remove_instance(made)
    assert bench.gpus.instances(bench.divisible) == (made,)

    bench.leave(made, 4242)
    bench.gpus.remove_instance(made)
    assert bench.gpus.instances(bench.divisible) == ()


@pytest.mark.parametrize(
    ("profile", "first", "last", "reason"),
    [
        ("5g.60gb", 0, 4, "no MIG profile 5g.60gb"),
        ("3g.40gb", 2, 5, "no place for 3g.40gb at the slices 2-5"),
        ("3g.40gb", 4, 6, "no place"),
        ("1g.10gb", 7, 7, "no place"),
    ],
)
def test_what_the_card_has_no_place_for_is_refused(
    bench: Bench, profile: str, first: int, last: int, reason: str
) -> None:
    with pytest.raises(InstanceRefused, match=reason):
        bench.gpus.make_instance(bench.divisible, profile, first, last)
    assert bench.gpus.instances(bench.divisible) == ()


def test_a_card_that_is_not_in_mig_mode_says_how_to_switch_it_on(bench: Bench) -> None:
    with pytest.raises(InstanceRefused, match="nvidia-smi -mig 1"):
        bench.gpus.make_instance(bench.plain, "1g.10gb", 0, 0)
    assert bench.gpus.instances(bench.plain) == ()


def test_a_lost_card_is_a_fault_and_no_refusal(bench: Bench) -> None:
    bench.lose()

    for ask in (
        lambda: bench.gpus.instances(bench.divisible),
        lambda: bench.gpus.make_instance(bench.divisible, "1g.10gb", 0, 0),
    ):
        with pytest.raises(GpuFault):
            ask()


def test_a_card_in_mig_mode_is_in_the_inventory_beside_instances_of_the_agent_only(
    bench: Bench,
) -> None:
    def found(made: tuple[str, ...]) -> list[tuple[str, bool, tuple[str, ...]]]:
        gpus = bench.gpus.inventory(made)
        return [(gpu.uuid, gpu.mig_enabled, gpu.mig_profiles) for gpu in gpus]

    assert found(()) == [(bench.divisible, True, ()), (bench.plain, False, ())]
    one = bench.gpus.make_instance(bench.divisible, "3g.40gb", 4, 7)
    assert one.uuid is not None
    assert found((one.uuid,)) == [(bench.divisible, True, ()), (bench.plain, False, ())]
    two = bench.gpus.make_instance(bench.divisible, "2g.20gb", 0, 1)

    beside = found((one.uuid,))

    assert [(uuid, mode) for uuid, mode, _ in beside] == [(two.uuid, True), (bench.plain, False)]
    assert beside[0][2][0].startswith("2g.")


def test_each_card_says_whether_mig_can_divide_it(bench: Bench) -> None:
    bench.gpus.make_instance(bench.divisible, "1g.10gb", 3, 3)

    said = [(card.uuid, card.mode, card.instances, card.allowed) for card in bench.gpus.modes()]

    assert said == [(bench.divisible, "on", 1, True), (bench.plain, "off", 0, True)]


def test_scripted_driver_and_simulation_take_the_same_layouts(script: Script) -> None:
    """Whatever is asked for in whatever order, both make the same or refuse the same."""
    benches = (nvml_bench(script), simulated_bench())
    places = [
        (name, start, start + profile.memory - 1)
        for name, profile in profiles_of("H100").items()
        for start in (*profile.starts, 1)
    ]
    for one, two in product(places, places[::3]):
        outcomes = []
        for bench in benches:
            tried = []
            for place in (one, two):
                try:
                    bench.gpus.make_instance(bench.divisible, *place)
                    tried.append(True)
                except InstanceRefused:
                    tried.append(False)
            for made in bench.gpus.instances(bench.divisible):
                bench.gpus.remove_instance(made)
            outcomes.append(tried)
        assert outcomes[0] == outcomes[1], (one, two)


def test_the_simulation_and_the_market_know_the_same_profiles() -> None:
    for model, card in (("A100", "A100-80GB"), ("H100", "H100-80GB"), ("H200", "H200")):
        told = {
            name: (profile.compute, profile.memory, profile.starts)
            for name, profile in profiles_of(model).items()
        }
        assert told == {
            each.name: (each.compute, each.memory, each.starts) for each in mig.CARDS[card].profiles
        }
    assert set(NAMES) == {"A100", "H100", "H200"}


@pytest.mark.parametrize("text", ["L4@mig", "H100@MPS:2", "@mig:2"])
def test_only_what_knows_mig_is_simulated_in_mig_mode(text: str) -> None:
    with pytest.raises(ValueError, match=r"GPU model|MIG mode"):
        parse_models(text)


# --- of the driver only --------------------------------------------------------------------------


@pytest.fixture
def nvml(script: Script) -> NvmlGpus:
    bench = nvml_bench(script)
    assert isinstance(bench.gpus, NvmlGpus)
    return bench.gpus


@pytest.mark.parametrize(
    ("code", "reason"),
    [(4, "run it as root"), (3, "MIG mode is off"), (23, "other MIG instances on the card")],
)
def test_the_drivers_refusals_are_told_in_words(
    nvml: NvmlGpus, script: Script, code: int, reason: str
) -> None:
    script.say(f"err fn=nvmlDeviceCreateGpuInstanceWithPlacement gpu=0 code={code}")

    with pytest.raises(InstanceRefused, match=reason):
        nvml.make_instance("GPU-a", "1g.10gb", 0, 0)


def test_an_instance_without_a_compute_instance_is_taken_away_again(
    nvml: NvmlGpus, script: Script
) -> None:
    script.say("err fn=nvmlGpuInstanceCreateComputeInstance gpu=0 code=23")

    with pytest.raises(InstanceRefused, match="no compute instance"):
        nvml.make_instance("GPU-a", "1g.10gb", 0, 0)

    assert nvml.instances("GPU-a") == ()


def test_a_driver_that_does_not_name_profiles_is_asked_for_their_size(
    nvml: NvmlGpus, script: Script
) -> None:
    script.say("err fn=nvmlDeviceGetGpuInstanceProfileInfoV gpu=0 code=13")

    for name, first, last in (("3g.40gb", 0, 3), ("1g.20gb", 4, 5), ("1g.10gb+me", 6, 6)):
        nvml.make_instance("GPU-a", name, first, last)

    made = [(each.profile, each.first) for each in nvml.instances("GPU-a")]
    assert sorted(made) == [("1g.10gb+me", 6), ("1g.20gb", 4), ("3g.40gb", 0)]


def test_who_may_not_make_instances_does_not_report_an_empty_card(script: Script) -> None:
    nvml_bench(script)
    gpus = NvmlGpus(pids_are_ours=True, may_divide=False)

    assert [gpu.uuid for gpu in gpus.inventory()] == ["GPU-b"]
    assert [(card.mode, card.allowed) for card in gpus.modes()] == [("on", False), ("off", False)]


def test_what_runs_on_a_card_in_mig_mode_may_be_roots_to_know(
    nvml: NvmlGpus, script: Script
) -> None:
    script.say("err fn=nvmlDeviceGetComputeRunningProcesses_v3 gpu=0 code=4")

    reading = nvml.read("GPU-a", since_us=0)

    assert reading.residents == () and not reading.pids_are_ours
