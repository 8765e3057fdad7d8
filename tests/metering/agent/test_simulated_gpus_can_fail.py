"""Simulated GPUs fail as a file in the agent's state directory says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from metering.agent.clock import ManualClock
from metering.agent.gpus.port import GpuFault
from metering.agent.gpus.simulated import FAULTS, SimulatedGpus


@pytest.fixture
def gpus(tmp_path: Path) -> SimulatedGpus:
    return SimulatedGpus(["L4"] * 2, clock=ManualClock(0), holders=dict, kept_in=tmp_path)


def say(folder: Path, faults: object) -> None:
    (folder / FAULTS).write_text(json.dumps(faults))


def test_a_gpu_that_fell_off_the_bus_answers_nothing_until_the_file_does_not_name_it(
    gpus: SimulatedGpus, tmp_path: Path
) -> None:
    first, second = (each.uuid for each in gpus.inventory())
    say(tmp_path, {first: 79})

    assert gpus.xids() == ()
    with pytest.raises(GpuFault, match="lost"):
        gpus.read(first, since_us=0)
    assert [each.uuid for each in gpus.inventory()] == [second]

    (tmp_path / FAULTS).unlink()
    gpus.xids()
    gpus.read(first, since_us=0)


def test_another_xid_is_announced_once(gpus: SimulatedGpus, tmp_path: Path) -> None:
    first, _ = (each.uuid for each in gpus.inventory())
    say(tmp_path, {first: 119})

    assert [(each.uuid, each.number) for each in gpus.xids()] == [(first, 119)]
    assert gpus.xids() == ()
    gpus.read(first, since_us=0)


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"GPU-nowhere": "x"}'])
def test_a_file_that_says_nothing_of_use_changes_nothing(
    gpus: SimulatedGpus, tmp_path: Path, text: str
) -> None:
    (tmp_path / FAULTS).write_text(text)

    assert gpus.xids() == () and len(gpus.inventory()) == 2
