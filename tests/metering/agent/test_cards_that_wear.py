"""A card whose memory is not to be trusted, or that is held back, says so and when no more."""

from __future__ import annotations

import pytest

from metering.agent.strict import Message
from tests.metering.agent.conftest import NOON_MS, Rig
from tests.metering.agent.market import assignment

SEES = 35


def told(rig: Rig) -> list[tuple[str, str | None, str]]:
    return [(each.kind, each.gpu_uuid, each.detail) for each in rig.market.health()]


def set_card(rig: Rig, options: str) -> None:
    assert rig.script is not None
    rig.script.cards[1] = f"gpu i=1 uuid=GPU-b {options}"
    rig.script.write()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("remap=1", "a row of its memory has errors and is replaced by a reset"),
        ("remap=2", "a row of its memory has errors and no spare row is left"),
        ("retire=1", "a page of its memory has errors and is retired by a reset"),
    ],
)
def test_memory_that_waits_for_a_reset_is_a_fault_until_then(
    rig: Rig, options: str, said: str
) -> None:
    rig.step()
    set_card(rig, f"{options} ecc=3 ecc_ever=9")
    rig.steps(2 * SEES)
    counted = f"{said} (3 uncorrected errors since the driver was loaded, 9 ever)"
    assert told(rig) == [("memory-fault", "GPU-b", counted)]

    set_card(rig, "ecc_ever=9")
    rig.steps(SEES)

    assert told(rig)[1:] == [("memory-well", "GPU-b", f"no longer: {counted}")]


def test_a_card_that_is_too_hot_says_so(rig: Rig) -> None:
    rig.step()
    set_card(rig, "slowed=0x40")
    rig.steps(SEES)
    set_card(rig, "")
    rig.steps(SEES)
    assert told(rig) == [
        ("slowed", "GPU-b", "its clocks are held down: it is too hot"),
        ("steady", "GPU-b", "no longer: it is too hot"),
    ]


def test_a_card_that_knows_nothing_of_its_memory_is_taken_as_it_is(rig: Rig) -> None:
    assert rig.script is not None
    for each in ("RemappedRows", "RetiredPagesPendingStatus", "CurrentClocksThrottleReasons"):
        rig.script.say(f"err fn=nvmlDeviceGet{each} gpu=-1 code=3")
    set_card(rig, "remap=2 slowed=0x40")
    rig.steps(SEES)
    assert told(rig) == []


def test_what_is_wrong_with_a_card_is_told_before_the_end_of_its_work(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The market asks then whether the work died of it."""
    assert rig.script is not None
    rig.market.assign(assignment("GPU-b", now_ms=NOON_MS, command=("sleep", "20")))
    rig.steps(15)
    asked: list[bytes] = []
    answer = rig.market.answer

    def note(method: str, path: str, body: bytes) -> Message:
        asked.append(body)
        return answer(method, path, body)

    monkeypatch.setattr(rig.market, "answer", note)
    rig.script.say("event gpu=1 data=79 seq=1")
    rig.clock.advance(10_000)
    rig.steps(5)

    fault = next(number for number, body in enumerate(asked) if b"XID 79" in body)
    end = next(number for number, body in enumerate(asked) if b'"exited"' in body)
    assert fault < end
