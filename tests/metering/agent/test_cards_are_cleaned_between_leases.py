"""Between two leases of a card the agent looks whether its memory is back, and says what it did."""

from __future__ import annotations

from pathlib import Path

from metering.agent.clock import SystemClock
from metering.agent.runtimes.process import ProcessRuntime
from tests.metering.agent.conftest import NOON_MS, Rig
from tests.metering.agent.market import assignment
from tests.metering.agent.works import ended, program
from tests.nvml.script import Proc

SECOND = 1_000
GONE = 3_999_999
"""No process has this id: memory in its name is nobody's."""


def health(rig: Rig) -> list[tuple[str, str | None]]:
    return [(each.kind, each.gpu_uuid) for each in rig.market.health()]


def lease_of(rig: Rig, *, until_s: int, mem_mib: int = 61_440) -> str:
    """Let a lease run for 20 s, whose process is on the card until then or longer."""
    assert rig.script is not None
    begins_ms = rig.clock.now_ms()
    lease = rig.market.assign(assignment("GPU-a", now_ms=begins_ms, seconds=20))
    while not rig.runtime.holders():
        rig.step()
    ends_ms, now_ms = begins_ms + until_s * SECOND, rig.clock.now_ms()
    pid = rig.pid("GPU-a")
    rig.script.proc(Proc(0, pid, 50, start_ms=now_ms, end_ms=ends_ms, mem_mib=mem_mib))
    return str(lease)


def end(rig: Rig) -> None:
    """Let the lease end, and the market drop it."""
    while rig.runtime.holders():
        rig.step()
    rig.steps(2)
    rig.market.desired.clear()


def test_a_card_is_said_to_be_clean_when_its_memory_is_back(rig: Rig) -> None:
    rig.step()
    lease = lease_of(rig, until_s=18)

    end(rig)
    rig.steps(8)

    assert health(rig) == [("cleaned", "GPU-a")]
    (said,) = (each.detail for each in rig.market.health())
    assert said == (
        f"after lease {lease}: none of its processes is left; memory of no process is 0 MiB,"
        " 0 MiB before it; it used up to 61440 MiB"
    )


def test_a_card_whose_memory_is_not_back_takes_no_lease_and_says_why(rig: Rig) -> None:
    rig.step()
    lease = lease_of(rig, until_s=60)

    end(rig)
    rig.steps(12)
    assert health(rig) == [("card-filled", "GPU-a")]
    (said,) = (each.detail for each in rig.market.health())
    assert said.startswith(f"61440 MiB of its memory are not back after lease {lease}")
    second = rig.market.assign(assignment("GPU-a", now_ms=rig.clock.now_ms(), seconds=60))
    rig.steps(8)
    (report,) = rig.market.told(second)
    assert report.what == "refused"
    assert "not back" in report.detail

    rig.steps(40)
    assert health(rig)[1:] == [("cleaned", "GPU-a"), ("card-free", "GPU-a")]
    third = rig.market.assign(assignment("GPU-a", now_ms=rig.clock.now_ms(), seconds=60))
    rig.steps(8)
    assert [each.what for each in rig.market.told(third)] == ["started"]


def test_the_next_lease_waits_while_the_driver_takes_memory_back(rig: Rig) -> None:
    rig.step()
    lease_of(rig, until_s=26)
    while rig.runtime.holders():
        rig.step()
    second = rig.market.assign(assignment("GPU-a", now_ms=rig.clock.now_ms(), seconds=60))

    rig.steps(6)
    assert rig.market.told(second) == []

    rig.steps(8)
    assert [each.what for each in rig.market.told(second)] == ["started"]


def test_what_was_in_use_before_the_lease_is_not_held_against_it(rig: Rig) -> None:
    assert rig.script is not None
    rig.script.proc(Proc(0, GONE, 0, start_ms=NOON_MS, mem_mib=3_000))
    rig.step()
    lease_of(rig, until_s=18)

    end(rig)
    rig.steps(8)

    assert health(rig) == [("cleaned", "GPU-a")]
    assert "3000 MiB, 3000 MiB before it" in rig.market.health()[0].detail


def test_the_next_run_of_the_agent_looks_after_a_lease_of_the_one_before(rig: Rig) -> None:
    rig.step()
    lease_of(rig, until_s=60)
    while rig.runtime.holders():
        rig.step()
    rig.restart()

    end(rig)
    rig.steps(8)

    assert health(rig) == [("cleaned", "GPU-a")]
    assert "what is in use of the card's memory is not known" in rig.market.health()[0].detail


def test_the_files_that_were_removed_are_counted_once(tmp_path: Path) -> None:
    runtime = ProcessRuntime(tmp_path, clock=SystemClock())
    work = program("open('big', 'wb').write(b'x' * (3 << 20))")
    runtime.start(work)
    ended(runtime, work.lease_id)
    assert runtime.wiped(work.lease_id) is None

    runtime.forget(work.lease_id)

    counted = runtime.wiped(work.lease_id)
    assert counted is not None
    assert 3 << 20 <= counted < 4 << 20
    assert runtime.wiped(work.lease_id) is None
