"""Between two leases a card computes something whose result is known; one that fails takes none."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.agent.agent import Agent, AgentConfig
from metering.agent.diagnosing.bus import Best
from metering.agent.diagnosing.diagnostics import AGAIN_MS_MAX, MINUTE_MS, again_after_ms
from metering.agent.diagnosing.port import Prober, Verdict
from metering.agent.diagnosing.process_prober import ProcessProber
from metering.agent.diagnosing.simulated_prober import SimulatedProber
from metering.agent.gpus.port import Link
from metering.agent.gpus.simulated import FAULTS
from metering.agent.uplink import HttpUplink
from tests.cuda.library import build
from tests.metering.agent.conftest import Rig
from tests.metering.agent.market import TOKEN, Market, assignment
from tests.nvml.script import Script

FAILED = ("diagnostic-failed", "GPU-a")


class ProbedRig(Rig):
    """A rig whose agent probes its cards."""

    prober: Prober

    def make(self) -> Agent:
        super().make().close()
        config = AgentConfig(state_dir=self.state_dir, hostname="h1", diagnostics="short")
        return Agent(
            config,
            gpus=self.gpus,
            runtime=self.runtime,
            uplink=HttpUplink(self.market.url, TOKEN),
            clock=self.clock,
            prober=self.prober,
        )

    def told(self) -> list[tuple[str, str]]:
        return [
            (each.kind, each.gpu_uuid or "")
            for each in self.market.health()
            if each.kind.startswith("diagnostic")
        ]

    def said(self) -> str:
        """Return what was told last of GPU-a."""
        told = [each for each in self.market.health() if each.gpu_uuid == "GPU-a"]
        return [each for each in told if each.kind.startswith("diag")][-1].detail

    def lease(self, card: str, seconds: int = 20) -> object:
        return self.market.assign(assignment(card, now_ms=self.clock.now_ms(), seconds=seconds))


@pytest.fixture
def probed(tmp_path: Path, market: Market, script: Script) -> Iterator[ProbedRig]:
    """Cards of the compiled driver, probed as a script says."""
    ProbedRig.prober = SimulatedProber()
    rig = ProbedRig(tmp_path / "state", market, script)
    yield rig
    rig.agent.close()


def prober(rig: ProbedRig) -> SimulatedProber:
    assert isinstance(rig.prober, SimulatedProber)
    return rig.prober


def test_each_card_is_probed_after_the_start_and_told_once_a_day(probed: ProbedRig) -> None:
    probed.steps(3)
    both = [("diagnostic-passed", "GPU-a"), ("diagnostic-passed", "GPU-b")]
    assert sorted(probed.told()) == both  # probed side by side: either may be done first
    probed.steps(26, 3_600_000)
    assert sorted(probed.told()) == sorted([*both, *both])


def test_it_is_probed_after_each_lease_and_never_while_one_runs(probed: ProbedRig) -> None:
    probed.steps(3)
    prober(probed).begun.clear()
    probed.lease("GPU-a")
    while not probed.runtime.holders():
        probed.step()
    probed.steps(10)
    assert prober(probed).begun == []
    while probed.runtime.holders():
        probed.step()
    probed.market.desired.clear()
    probed.steps(6)
    assert prober(probed).begun == ["GPU-a"]
    assert probed.told().count(("diagnostic-passed", "GPU-a")) == 1  # no news each time


def test_one_that_corrupts_is_told_at_once_and_takes_no_lease(probed: ProbedRig) -> None:
    prober(probed).said["GPU-a"] = "corrupt"
    probed.steps(3)
    assert ("diagnostic-failed", "GPU-a") in probed.told()

    refused, fine = probed.lease("GPU-a"), probed.lease("GPU-b")
    probed.steps(5)

    (report,) = probed.market.told(refused)  # type: ignore[arg-type]
    assert report.what == "failed" and "silent corruption" in report.detail
    assert [each.what for each in probed.market.told(fine)] == ["started"]  # type: ignore[arg-type]


def test_it_is_probed_again_ever_later_until_it_passes(probed: ProbedRig) -> None:
    prober(probed).said["GPU-a"] = "launch"
    probed.steps(2)
    for minutes in (1, 2, 4, 8):
        assert probed.said().endswith(f"probed again in {minutes} min")
        failures, since_ms = probed.told().count(FAILED), probed.clock.now_ms()
        while probed.told().count(FAILED) == failures:
            probed.step(5_000)
        after_ms = probed.clock.now_ms() - since_ms
        assert minutes * MINUTE_MS - 20_000 <= after_ms <= minutes * MINUTE_MS + 20_000
    prober(probed).said.clear()
    probed.steps(100, 10_000)

    assert probed.told()[-1] == ("diagnostic-passed", "GPU-a")
    lease = probed.lease("GPU-a", seconds=120)
    probed.steps(12)
    assert [each.what for each in probed.market.told(lease)] == ["started"]  # type: ignore[arg-type]


def test_a_lease_waits_for_a_probe_no_longer_than_its_bound(probed: ProbedRig) -> None:
    prober(probed).said["GPU-a"] = "hang"
    lease = probed.lease("GPU-a", seconds=120)
    probed.steps(15)
    assert probed.market.told(lease) == []  # type: ignore[arg-type]
    probed.steps(10)
    (report,) = probed.market.told(lease)  # type: ignore[arg-type]
    assert report.what == "failed" and "it hangs: no result within 20 s" in report.detail


def test_a_card_with_somebody_elses_process_is_left_alone(
    probed: ProbedRig, script: Script
) -> None:
    script.say("proc gpu=0 pid=999999 mem=1048576 sm=0 start=0 end=0")
    probed.steps(40)
    assert probed.told() == [("diagnostic-passed", "GPU-b")]


def test_an_owner_who_takes_the_host_back_ends_probes(probed: ProbedRig) -> None:
    prober(probed).said["GPU-a"] = "hang"
    probed.steps(2)
    assert probed.agent._diagnostics.probing == {"GPU-a"}
    probed.agent.heed("released")
    assert probed.agent._diagnostics.probing == set()


def test_a_bus_that_lost_lanes_is_a_fault_until_it_has_them_again(
    probed: ProbedRig, script: Script
) -> None:
    script.cards[0] = "gpu i=0 uuid=GPU-a nvlink=1 lanes=16"
    probed.steps(2)
    script.cards[0] = "gpu i=0 uuid=GPU-a nvlink=1 lanes=8"
    probed.restart()  # what was best is kept
    probed.steps(2)
    assert "its bus has 8 lanes of 16 that it had" in probed.said()
    script.cards[0] = "gpu i=0 uuid=GPU-a nvlink=1 lanes=16"
    probed.steps(8, 10_000)
    assert probed.told()[-1] == ("diagnostic-passed", "GPU-a")


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_pauses_grow_and_have_a_bound(one: int, other: int) -> None:
    fewer, more = sorted((one, other))
    assert MINUTE_MS <= again_after_ms(fewer) <= again_after_ms(more) <= AGAIN_MS_MAX


def test_a_link_that_rests_is_no_worse_and_one_that_repeats_packets_is() -> None:
    best = Best()
    assert best.worse("GPU-a", Link(16, 5, 7), awake=True) == ""
    assert best.worse("GPU-a", Link(16, 1, 60), awake=False) == ""
    assert best.worse("GPU-a", Link(16, 4, 60), awake=True).endswith("generation 4, it was 5")
    assert best.worse("GPU-a", Link(16, 5, 160), awake=True) == "its bus had to repeat 100 packets"


@pytest.mark.parametrize("word", ["corrupt", "launch", "hang"])
def test_simulated_cards_fail_as_a_file_says(tmp_path: Path, word: str) -> None:
    (tmp_path / FAULTS).write_text(json.dumps({"GPU-a": word}))
    made = SimulatedProber(tmp_path)
    made.begin("GPU-a")
    verdict = made.look("GPU-a")
    assert verdict is None if word == "hang" else verdict is not None and verdict.fine is False
    assert made.look("GPU-b") == Verdict(True, "computes and keeps what it should (simulated)")


# --- through the CUDA driver ------------------------------------------------------------------


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.getbasetemp().parent / "offpeak-cuda")


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Say what is wrong with GPU-a."""
    monkeypatch.setenv("FAKE_CUDA_STATE", str(tmp_path / "cuda"))

    def say(word: str) -> None:
        (tmp_path / "cuda").write_text(f"GPU-a {word}\n")

    return say


def verdict_of(prober: ProcessProber) -> Verdict:
    prober.begin("GPU-a")
    until = time.monotonic() + 60
    while (found := prober.look("GPU-a")) is None:
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


@pytest.mark.parametrize(
    ("word", "fine", "said"),
    [
        ("well", True, "16777216 hashes and 64 MiB of memory are as they should be"),
        ("corrupt", False, "1 of 16777216 words were computed wrongly"),
        ("flipped", False, "words were kept wrongly"),
        ("launch", False, "CUDA_ERROR_LAUNCH_FAILED"),
        ("ecc", False, "CUDA_ERROR_ECC_UNCORRECTABLE"),
        ("busy", None, "CUDA_ERROR_DEVICE_UNAVAILABLE"),
    ],
)
def test_a_wrong_bit_is_found_and_what_keeps_it_from_the_card_is_no_fault(
    cuda: Path, say: Callable[[str], None], word: str, fine: bool | None, said: str
) -> None:
    say(word)
    found = verdict_of(ProcessProber(seconds=60, mib=512, library=str(cuda)))
    assert found.fine is fine and said in found.said


def test_a_probe_that_hangs_is_killed(cuda: Path, say: Callable[[str], None]) -> None:
    say("hang")
    prober = ProcessProber(seconds=60, mib=64, library=str(cuda))
    prober.begin("GPU-a")
    process = prober._running["GPU-a"]
    assert prober.owns(process.pid) and prober.look("GPU-a") is None
    prober.end("GPU-a")
    assert process.poll() is not None and not prober.owns(process.pid)


def test_a_host_without_cuda_says_so_and_is_asked_once() -> None:
    prober = ProcessProber(seconds=60, mib=64, library="libcuda-of-nobody.so.1")
    assert verdict_of(prober) == Verdict(None, "no CUDA driver is at hand")
    prober.begin("GPU-a")
    assert prober._running == {} and prober.look("GPU-a") is not None
