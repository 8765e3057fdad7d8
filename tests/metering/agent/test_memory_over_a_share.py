"""Work that holds more GPU memory than its share has is asked to end, and says why."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listings.domain.divisions import divide
from listings.domain.events import Division, Gpu
from metering.agent import over_share
from metering.agent.gpus.port import Reading, Resident
from metering.agent.meters import Meter, see
from metering.agent.over_share import (
    GRACE_MS_MAX,
    PATIENCE_MS,
    TOLERANCE_MIB,
    Over,
    allowed_mib,
    follow,
    said,
)
from metering.agent.reconcile import Held, Kill, Terminate, Terms, kill_ms, reconcile
from tests.metering.agent.conftest import NOON_MS, Rig
from tests.metering.agent.market import assignment
from tests.nvml.script import Proc

SECOND = 1000
CARD = Gpu("GPU-a", "H100-80GB", 81_920, "9.0", "580.82.07")
SLICES = [share.uuid for share in divide(CARD, Division("timeslice", 4))]
MPS = [share.uuid for share in divide(CARD, Division("mps", 4))]
SHARE_MIB = 20_480
TOO_MUCH_MIB = allowed_mib(SHARE_MIB) + 1

looks = st.lists(
    st.tuples(
        st.integers(1, 3 * SECOND), st.one_of(st.none(), st.sampled_from([100, 20_480, 30_000]))
    ),
    max_size=40,
)


@given(looks)
def test_only_what_every_look_for_long_enough_saw_too_much_of_is_stopped(
    looks: list[tuple[int, int | None]],
) -> None:
    over: Over | None = None
    now_ms, since_ms = NOON_MS, None
    for step_ms, held_mib in looks:
        now_ms += step_ms
        over = follow(over, share_mib=SHARE_MIB, held_mib=held_mib, now_ms=now_ms)
        too_much = held_mib is not None and held_mib > allowed_mib(SHARE_MIB)
        since_ms = (since_ms if since_ms is not None else now_ms) if too_much else None
        long_enough = since_ms is not None and now_ms - since_ms >= PATIENCE_MS
        assert bool(said(over)) == long_enough


@given(st.integers(1024, 200_000))
def test_a_lease_may_hold_its_share_and_a_context_for_good(share_mib: int) -> None:
    within = allowed_mib(share_mib)

    assert within >= share_mib + TOLERANCE_MIB
    assert follow(None, share_mib=share_mib, held_mib=within, now_ms=0) is None
    assert follow(None, share_mib=share_mib, held_mib=within + 1, now_ms=0) is not None
    assert follow(None, share_mib=None, held_mib=within + 1, now_ms=0) is None


def test_what_it_says_has_the_figures() -> None:
    text = said(Over(20_480, NOON_MS, NOON_MS + PATIENCE_MS, 30_000))

    assert text.startswith(over_share.BEGINS)
    assert "30000 MiB" in text and "20480 MiB" in text and "21504 MiB" in text


def test_the_processes_of_a_lease_count_together() -> None:
    lease, other = uuid4(), uuid4()
    meter = Meter(cut_ms=0, seen_ms=0, ends_ms=9, present=None, opened_us=0, share_mib=SHARE_MIB)
    residents = (Resident(1, 11_000), Resident(2, 11_000), Resident(3, None), Resident(4, 90_000))
    owners = {1: lease, 2: lease, 3: lease, 4: other}

    see(meter, lease, Reading(residents, None), owners, now_ms=NOON_MS)

    assert meter.over == Over(SHARE_MIB, NOON_MS, NOON_MS, 22_000)


def held(uuid: str, over: str, *, stopping_ms: int | None = None, grace: int = 60) -> Held:
    terms = replace(
        Terms.of(assignment(uuid, now_ms=NOON_MS, seconds=3600)), grace_ms=grace * SECOND
    )
    return Held(terms=terms, listed=True, work="running", over=over, stopping_ms=stopping_ms)


def test_work_over_its_share_is_asked_to_end_with_the_reason() -> None:
    lease = held(SLICES[0], "too much")

    assert reconcile([lease], now_ms=NOON_MS + SECOND) == [
        Terminate(lease.terms.lease_id, "too much")
    ]


@pytest.mark.parametrize(("over", "grace_ms"), [("too much", GRACE_MS_MAX), ("", 60 * SECOND)])
def test_work_that_keeps_holding_too_much_has_a_short_grace(over: str, grace_ms: int) -> None:
    lease = held(SLICES[0], over, stopping_ms=NOON_MS)

    assert kill_ms(lease) == NOON_MS + grace_ms
    assert reconcile([lease], now_ms=NOON_MS + grace_ms - 1) == []
    assert reconcile([lease], now_ms=NOON_MS + grace_ms) == [Kill(lease.terms.lease_id)]


def test_a_grace_that_is_shorter_stays_so() -> None:
    assert kill_ms(held(SLICES[0], "too much", stopping_ms=NOON_MS, grace=2)) == NOON_MS + 2000


@pytest.mark.parametrize("shares", [SLICES, MPS], ids=["time slices", "MPS"])
def test_work_over_its_share_is_stopped_and_its_neighbour_goes_on(
    rig: Rig, shares: list[str]
) -> None:
    assert rig.script is not None
    one = rig.market.assign(assignment(shares[0], now_ms=NOON_MS, seconds=100))
    two = rig.market.assign(assignment(shares[1], now_ms=NOON_MS, seconds=100))
    rig.agent.run_once()
    first, second = rig.runtime.holders()["GPU-a"]
    mps = shares is MPS
    rig.script.proc(Proc(0, second, sm=9, start_ms=NOON_MS, mem_mib=SHARE_MIB, mps=mps))
    rig.script.proc(Proc(0, first, sm=9, start_ms=NOON_MS, mem_mib=9_000, mps=mps))

    rig.steps(9)
    rig.script.end(first, rig.clock.now_ms())
    grown_ms = rig.clock.now_ms()
    rig.script.proc(Proc(0, first, sm=9, start_ms=grown_ms, mem_mib=TOO_MUCH_MIB, mps=mps))
    rig.steps(5)
    assert [each.what for each in rig.market.told(one)] == ["started"]
    rig.steps(3)
    rig.script.end(first, rig.clock.now_ms())
    rig.steps(10)

    (_, end) = rig.market.told(one)
    assert (end.what, end.over_share, end.reclaimed) == ("stopped", True, False)
    assert f"{TOO_MUCH_MIB} MiB" in end.detail and f"{SHARE_MIB} MiB" in end.detail
    granted = sum(each.granted_ms for each in rig.market.intervals(one))
    assert granted == round(end.at.timestamp() * 1000) - NOON_MS  # billed to that moment
    assert [each.what for each in rig.market.told(two)] == ["started"]


def test_a_short_peak_stops_nobody(rig: Rig) -> None:
    assert rig.script is not None
    lease = rig.market.assign(assignment(SLICES[0], now_ms=NOON_MS, seconds=100))
    rig.agent.run_once()
    (pid,) = rig.runtime.holders()["GPU-a"]
    for second in range(0, 40, 5):
        start_ms = NOON_MS + second * SECOND
        mem = TOO_MUCH_MIB if second % 10 else 1_000
        rig.script.proc(Proc(0, pid, 9, start_ms, start_ms + 4 * SECOND, mem_mib=mem))

    rig.steps(45)

    assert [each.what for each in rig.market.told(lease)] == ["started"]


def test_memory_that_cannot_be_seen_stops_nobody(rig: Rig) -> None:
    assert rig.script is not None
    lease = rig.market.assign(assignment(SLICES[0], now_ms=NOON_MS, seconds=100))
    rig.agent.run_once()
    (pid,) = rig.runtime.holders()["GPU-a"]
    rig.script.proc(Proc(0, pid, sm=9, start_ms=NOON_MS, mem_mib=TOO_MUCH_MIB))
    rig.steps(3)
    rig.script.say("err fn=* gpu=0 code=15")
    rig.steps(20)

    assert [each.what for each in rig.market.told(lease)] == ["started"]


def test_a_card_of_its_own_has_no_share_to_be_over(rig: Rig) -> None:
    assert rig.script is not None
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, seconds=100))
    rig.agent.run_once()
    rig.script.proc(Proc(0, rig.pid("GPU-a"), sm=9, start_ms=NOON_MS, mem_mib=80_000))

    rig.steps(30)

    assert [each.what for each in rig.market.told(lease)] == ["started"]


def test_an_agent_that_was_killed_still_says_why_it_stopped_the_work(rig: Rig) -> None:
    assert rig.script is not None
    lease = rig.market.assign(assignment(SLICES[0], now_ms=NOON_MS, seconds=100))
    rig.agent.run_once()
    rig.runtime.stubborn.add(lease)
    rig.script.proc(Proc(0, rig.pid("GPU-a"), sm=9, start_ms=NOON_MS, mem_mib=TOO_MUCH_MIB))
    rig.steps(7)
    rig.restart()  # between the request to end and the end

    rig.steps(30)

    assert [(each.what, each.over_share) for each in rig.market.told(lease)] == [
        ("started", False),
        ("stopped", True),
    ]
