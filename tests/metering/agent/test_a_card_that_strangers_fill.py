"""No lease begins on a card whose memory somebody else's process holds."""

from __future__ import annotations

import os

from tests.metering.agent.conftest import NOON_MS, Rig
from tests.metering.agent.market import assignment
from tests.nvml.script import Proc

SLICES = tuple(f"GPU-a/timeslice-{n}of2/50pct-40000mib" for n in (1, 2))
SECOND = 1_000


def stranger(rig: Rig, *, gpu: int = 0, mem_mib: int, until_s: int = 0) -> None:
    """Let a process that lives, and is of no lease, hold memory of a card."""
    assert rig.script is not None
    ends = NOON_MS + until_s * SECOND if until_s else 0
    rig.script.proc(Proc(gpu, os.getpid(), sm=50, start_ms=NOON_MS, end_ms=ends, mem_mib=mem_mib))


def kinds(rig: Rig) -> list[tuple[str, str | None]]:
    return [(each.kind, each.gpu_uuid) for each in rig.market.health()]


def test_a_start_beside_a_process_that_fills_the_card_is_refused(rig: Rig) -> None:
    stranger(rig, mem_mib=61_440)
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS))

    rig.steps(3)

    (report,) = rig.market.told(lease)
    assert report.what == "refused"
    assert "61440 MiB are held by others" in report.detail
    assert rig.market.intervals(lease) == []
    assert not rig.runtime.holders()
    assert kinds(rig) == [("card-filled", "GPU-a")]


def test_the_other_cards_of_the_host_start_their_leases(rig: Rig) -> None:
    stranger(rig, gpu=1, mem_mib=61_440)
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS))

    rig.steps(3)

    assert [each.what for each in rig.market.told(lease)] == ["started"]


def test_a_gang_is_refused_for_one_filled_card(rig: Rig) -> None:
    stranger(rig, gpu=1, mem_mib=61_440)
    lease = rig.market.assign(assignment("GPU-a", "GPU-b", now_ms=NOON_MS))

    rig.steps(3)

    assert [each.what for each in rig.market.told(lease)] == ["refused"]


def test_several_small_strangers_fill_a_card_together(rig: Rig) -> None:
    assert rig.script is not None
    for pid in (os.getpid(), os.getppid()):
        rig.script.proc(Proc(0, pid, sm=1, start_ms=NOON_MS, mem_mib=600))
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS))

    rig.steps(3)

    assert [each.what for each in rig.market.told(lease)] == ["refused"]


def test_a_desktop_on_the_card_is_in_nobodys_way(rig: Rig) -> None:
    stranger(rig, mem_mib=400)
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS))

    rig.steps(3)

    assert [each.what for each in rig.market.told(lease)] == ["started"]
    assert kinds(rig) == [("stray-process", "GPU-a")]


def test_a_process_that_is_gone_fills_nothing(rig: Rig) -> None:
    assert rig.script is not None
    rig.script.proc(Proc(0, 3_999_999, sm=50, start_ms=NOON_MS, mem_mib=61_440))
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS))

    rig.steps(3)

    assert [each.what for each in rig.market.told(lease)] == ["started"]


def test_an_idle_card_that_is_filled_is_told_before_anybody_comes(rig: Rig) -> None:
    stranger(rig, mem_mib=2_000, until_s=50)

    rig.steps(40)
    assert kinds(rig) == [("card-filled", "GPU-a")]

    rig.steps(40)
    assert kinds(rig) == [("card-filled", "GPU-a"), ("card-free", "GPU-a")]
    lease = rig.market.assign(assignment("GPU-a", now_ms=rig.clock.now_ms()))
    rig.steps(3)
    assert [each.what for each in rig.market.told(lease)] == ["started"]


def test_another_lease_on_its_share_of_the_card_is_no_stranger(rig: Rig) -> None:
    assert rig.script is not None
    first = rig.market.assign(assignment(SLICES[0], now_ms=NOON_MS, seconds=100))
    rig.agent.run_once()
    (pid,) = rig.runtime.holders()["GPU-a"]
    rig.script.proc(Proc(0, pid, sm=10, start_ms=NOON_MS, mem_mib=30_000))
    second = rig.market.assign(assignment(SLICES[1], now_ms=NOON_MS, seconds=100))

    rig.steps(8)

    for lease in (first, second):
        assert [each.what for each in rig.market.told(lease)] == ["started"]
    assert kinds(rig) == []


def test_work_of_another_card_that_spreads_here_is_a_stranger(rig: Rig) -> None:
    assert rig.script is not None
    first = rig.market.assign(assignment("GPU-b", now_ms=NOON_MS, seconds=100))
    rig.agent.run_once()
    pid = rig.pid("GPU-b")
    rig.script.proc(Proc(0, pid, sm=10, start_ms=NOON_MS, mem_mib=30_000))
    second = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, seconds=100))

    rig.steps(8)

    (report,) = rig.market.told(second)
    assert report.what == "refused"
    assert str(first) in report.detail
