"""What cards take, divided among their leases: never more than the card took."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from listings.domain.divisions import divide
from listings.domain.events import Division, Gpu
from metering.agent.sharing import US_PERCENT_PER_MS, WHOLE_PPM, Sharer, energy_parts, within
from metering.agent.wire import Interval
from tests.metering.agent.conftest import NOON_MS, Rig
from tests.metering.agent.market import assignment
from tests.nvml.script import Proc, Script

SECOND = 1000
CARD = Gpu("GPU-a", "H100-80GB", 81_920, "9.0", "580.82.07")
SLICES = [share.uuid for share in divide(CARD, Division("timeslice", 4))]
IDLE_W, BUSY_W = 70, 600
COUNTS = f"idle_w={IDLE_W} busy_w={BUSY_W} since={NOON_MS * 1000} mj=123456"
E_MAX = 10**12


@st.composite
def cards(draw: st.DrawFn) -> tuple[int, int, list[Sharer], int]:
    length_ms = draw(st.integers(1, 100_000))
    busy = st.one_of(st.none(), st.integers(0, 2 * length_ms * US_PERCENT_PER_MS))
    sharers = [
        Sharer(
            part_ppm=draw(st.integers(0, WHOLE_PPM)),
            granted_ms=draw(st.integers(-5, 2 * length_ms)),
            busy_us_percent=draw(busy),
        )
        for _ in range(draw(st.integers(0, 7)))
    ]
    others = draw(st.integers(0, length_ms * US_PERCENT_PER_MS))
    return draw(st.integers(0, E_MAX)), length_ms, sharers, others


@given(cards())
def test_the_parts_of_leases_never_come_to_more_than_their_card(
    card: tuple[int, int, list[Sharer], int],
) -> None:
    energy_mj, length_ms, sharers, others = card

    parts = energy_parts(energy_mj, length_ms, sharers, others_us_percent=others)

    assert len(parts) == len(sharers)
    assert all(part >= 0 for part in parts)
    assert sum(parts) <= energy_mj


@given(st.integers(0, E_MAX), st.integers(1, 100_000), st.data())
def test_who_has_the_whole_card_has_all_of_it_while_it_is_granted(
    energy_mj: int, length_ms: int, data: st.DataObject
) -> None:
    busy = data.draw(st.one_of(st.none(), st.integers(0, length_ms * US_PERCENT_PER_MS)))
    alone = Sharer(part_ppm=WHOLE_PPM, granted_ms=length_ms, busy_us_percent=busy)

    assert energy_parts(energy_mj, length_ms, [alone]) == [energy_mj]
    half = replace(alone, granted_ms=length_ms // 2)
    assert energy_parts(energy_mj, length_ms, [half]) == [energy_mj * (length_ms // 2) // length_ms]


@given(st.lists(st.integers(0, 10**10), max_size=7), st.integers(0, 10**10))
def test_busy_time_that_a_card_has_no_room_for_does_not_count(wanted: list[int], room: int) -> None:
    counted = within(wanted, room)

    assert sum(counted) <= max(room, 0)
    assert all(0 <= part <= wish for part, wish in zip(counted, wanted, strict=True))
    if sum(wanted) <= room:
        assert counted == wanted


def total(intervals: list[Interval], figure: str) -> int:
    return sum(getattr(each, figure) for each in intervals)


def counting(script: Script, options: str = COUNTS) -> None:
    script.cards[0] = f"gpu i=0 uuid=GPU-a {options}"
    script.write()


def test_a_lease_of_a_whole_card_has_all_that_the_card_took_while_it_ran(rig: Rig) -> None:
    assert rig.script is not None
    counting(rig.script)
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, seconds=100))
    rig.agent.run_once()
    since, until = NOON_MS + 5 * SECOND, NOON_MS + 60 * SECOND
    rig.script.proc(Proc(0, rig.pid("GPU-a"), sm=80, start_ms=since, end_ms=until))

    rig.steps(110)

    intervals = rig.market.intervals(lease)
    assert total(intervals, "granted_ms") == 98 * SECOND
    busy_mj = 55 * SECOND * BUSY_W * 80 // 100
    assert total(intervals, "energy_mj") == 98 * SECOND * IDLE_W + busy_mj
    idle = [each for each in intervals if each.start_ms >= until]
    assert {each.energy_mj for each in idle} <= {each.granted_ms * IDLE_W for each in idle}


def test_sharers_of_a_card_have_what_they_kept_busy_and_their_parts_of_the_rest(rig: Rig) -> None:
    assert rig.script is not None
    counting(rig.script)
    one, two = (
        rig.market.assign(assignment(uuid, now_ms=NOON_MS, seconds=102)) for uuid in SLICES[:2]
    )
    rig.agent.run_once()
    first, second = rig.runtime.holders()["GPU-a"]
    rig.script.proc(Proc(0, first, sm=60, start_ms=NOON_MS, end_ms=NOON_MS + 99 * SECOND))
    rig.script.proc(Proc(0, second, sm=20, start_ms=NOON_MS, end_ms=NOON_MS + 99 * SECOND))

    rig.steps(115)

    took = {lease: total(rig.market.intervals(lease), "energy_mj") for lease in (one, two)}
    card_mj = 100 * SECOND * IDLE_W + 99 * SECOND * BUSY_W * 80 // 100
    busy_mj = {one: card_mj * 60 // 100, two: card_mj * 20 // 100}
    idle_each_mj = (
        card_mj * 20 // 100 // 4
    )  # a quarter of the idle fifth each: the rest is nobody's
    for lease, energy_mj in took.items():
        assert abs(energy_mj - busy_mj[lease] - idle_each_mj) < card_mj // 50
    assert sum(took.values()) <= card_mj


def test_sharers_are_never_busier_than_their_card_together(rig: Rig) -> None:
    """Rounding and time-slicing let a driver's per-process figures come to more than 100 %."""
    assert rig.script is not None
    leases = [
        rig.market.assign(assignment(uuid, now_ms=NOON_MS, seconds=62)) for uuid in SLICES[:3]
    ]
    rig.agent.run_once()
    for pid in rig.runtime.holders()["GPU-a"]:
        rig.script.proc(Proc(0, pid, sm=50, start_ms=NOON_MS, end_ms=NOON_MS + 59 * SECOND))

    rig.steps(75)

    busy = [total(rig.market.intervals(lease), "busy_ms") for lease in leases]
    granted_ms = total(rig.market.intervals(leases[0]), "granted_ms")
    assert sum(busy) <= granted_ms
    assert min(busy) > granted_ms * 3 // 10, "each has its third"
    at = {each.end_ms for lease in leases for each in rig.market.intervals(lease)}
    for start_ms, end_ms in pairwise(sorted({NOON_MS, *at})):
        within_ms = [
            each.busy_ms or 0
            for lease in leases
            for each in rig.market.intervals(lease)
            if (each.start_ms, each.end_ms) == (start_ms, end_ms)
        ]
        assert sum(within_ms) <= end_ms - start_ms


def test_a_counter_that_fell_is_a_new_base_and_that_interval_is_not_known(rig: Rig) -> None:
    assert rig.script is not None
    counting(rig.script)
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, seconds=100))
    rig.agent.run_once()
    rig.steps(25)
    since_us = rig.clock.now_ms() * 1000
    counting(rig.script, f"idle_w={IDLE_W} busy_w=0 since={since_us} mj=0")

    rig.steps(40)

    energies = [each.energy_mj for each in rig.market.intervals(lease)]
    assert energies.count(None) == 1
    assert {each for each in energies if each is not None} == {10 * SECOND * IDLE_W}


def test_a_card_without_a_counter_has_no_energy_and_not_0(rig: Rig) -> None:
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, seconds=100))
    rig.agent.run_once()
    rig.steps(25)

    assert {each.energy_mj for each in rig.market.intervals(lease)} == {None}


def test_an_agent_that_was_away_does_not_guess_what_the_card_took_meanwhile(rig: Rig) -> None:
    assert rig.script is not None
    counting(rig.script)
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, seconds=100))
    rig.agent.run_once()
    rig.steps(15)
    rig.restart()
    rig.steps(30)

    energies = [each.energy_mj for each in rig.market.intervals(lease)]
    assert energies.count(None) == 1
    assert energies[0] == energies[-1] == 10 * SECOND * IDLE_W


def test_a_card_that_does_not_answer_for_a_while_is_not_known_for_that_time(rig: Rig) -> None:
    assert rig.script is not None
    counting(rig.script)
    lease = rig.market.assign(assignment("GPU-a", now_ms=NOON_MS, seconds=100))
    rig.agent.run_once()
    rig.steps(15)
    rig.script.say("err fn=* gpu=0 code=15")
    rig.steps(10)
    rig.script.unsay("err fn=* gpu=0 code=15")
    rig.steps(60)

    intervals = rig.market.intervals(lease)
    assert intervals[0].energy_mj == 10 * SECOND * IDLE_W == intervals[-1].energy_mj
    assert None in {each.energy_mj for each in intervals}
    assert total(intervals, "granted_ms") == intervals[-1].end_ms - intervals[0].start_ms


def test_instances_of_a_card_have_their_slices_of_what_it_took(rig: Rig) -> None:
    assert rig.script is not None
    rig.script.cards[0] = f"gpu i=0 uuid=GPU-a mig=1 {COUNTS}"
    for slot, (uuid, slices) in enumerate((("MIG-a", 3), ("MIG-b", 2))):
        rig.script.say(
            f"mig gpu=0 i={slot} gi={slot + 1} ci=0 uuid={uuid} slices={slices} mem={20 * 2**30}"
        )
    leases = {
        slices: rig.market.assign(assignment(uuid, now_ms=NOON_MS, seconds=52))
        for uuid, slices in (("MIG-a", 3), ("MIG-b", 2))
    }
    rig.agent.run_once()
    rig.steps(60)

    for slices, lease in leases.items():
        intervals = rig.market.intervals(lease)
        card_mj = total(intervals, "granted_ms") * IDLE_W
        exact_mj = card_mj * slices // 7
        assert exact_mj - len(intervals) * SECOND <= total(intervals, "energy_mj") <= exact_mj


def test_a_simulated_card_counts_too(simulated_rig: Rig) -> None:
    rig = simulated_rig
    (uuid, *_) = rig.uuids()
    lease = rig.market.assign(assignment(uuid, now_ms=NOON_MS, seconds=100))
    rig.agent.run_once()
    rig.steps(45)

    intervals = rig.market.intervals(lease)
    watts = total(intervals, "energy_mj") / total(intervals, "granted_ms")
    assert 400 < watts <= 700
