"""The pure rules: intervals to windows, when windows close, meters, health."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.ids import HostId, LeaseId, TenantId
from ledger.domain.span import Window
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import load
from metering import commands
from metering.domain.closing import FOR_EVER, GpuProgress, LeaseSpan, known_until, next_window
from metering.domain.events import GpuUse, MeterGapFound, UsageWindowClosed
from metering.domain.health import HealthSaid, conditions, standing_of
from metering.domain.instants import instant_of, millis_down, millis_up
from metering.domain.meters import (
    Gap,
    Meter,
    MeterIsClosed,
    MeterOpenedOtherwise,
    MeterUnknown,
    WindowOutOfOrder,
)
from metering.domain.rollup import Rolled, Sampled, Span, roll_up
from tests.conftest import NOON, SOMEBODY

WHOLE: Span = (0, 10**6)
LEASE = LeaseId(UUID(int=1))
HOUR = timedelta(hours=1)
FIGURES = ("occupied_ms", "busy_ms", "energy_mj")


@st.composite
def intervals(draw: st.DrawFn, *, disjoint: bool = False) -> list[Sampled]:
    found, at = [], 0
    for _ in range(draw(st.integers(0, 12))):
        start = at + draw(st.integers(0, 50)) if disjoint else draw(st.integers(0, 900))
        length = draw(st.integers(1, 200))
        known = st.one_of(st.none(), st.integers(0, length))
        found.append(Sampled(start, start + length, 0, *(draw(known) for _ in FIGURES)))
        at = start + length
    return found


def milliseconds(samples: list[Sampled]) -> set[int]:
    return {ms for each in samples for ms in range(each.start_ms + each.late_ms, each.end_ms)}


@given(intervals(disjoint=True))
def test_granted_time_of_disjoint_intervals_is_the_sum_of_their_lengths(
    samples: list[Sampled],
) -> None:
    rolled = roll_up(samples, window=WHOLE)

    assert rolled.granted_ms == sum(each.end_ms - each.start_ms for each in samples)


@given(intervals(), st.randoms())
def test_no_millisecond_counts_twice_whatever_the_order(samples: list[Sampled], mix: Any) -> None:
    again = samples + samples
    mix.shuffle(again)

    rolled = roll_up(again, window=WHOLE)

    assert rolled == roll_up(samples, window=WHOLE)
    assert rolled.granted_ms == len(milliseconds(samples))


@given(intervals(disjoint=True), st.lists(st.integers(1, 2500), unique=True, max_size=8))
def test_windows_sum_to_the_whole_wherever_they_are_cut(
    samples: list[Sampled], cuts: list[int]
) -> None:
    borders = [0, *sorted(cuts), 10**6]
    whole = roll_up(samples, window=WHOLE)

    parts = [roll_up(samples, window=(start, end)) for start, end in pairwise(borders)]

    assert sum(part.granted_ms for part in parts) == whole.granted_ms
    for name in FIGURES:
        values = [getattr(part, name) for part in parts]
        if getattr(whole, name) is not None:
            assert sum(values) == getattr(whole, name)
        else:
            assert None in values


@given(intervals(), st.integers(1, 5_000))
def test_a_part_is_never_longer_than_its_window(samples: list[Sampled], end: int) -> None:
    rolled = roll_up(samples, window=(0, end))

    assert rolled.granted_ms <= end
    for value in (rolled.occupied_ms, rolled.busy_ms):
        assert value is None or 0 <= value <= rolled.granted_ms


@given(intervals(), st.integers(0, 1200), st.integers(0, 1200))
def test_gaps_are_what_was_expected_and_not_proven(
    samples: list[Sampled], one: int, other: int
) -> None:
    expected = (min(one, other), max(one, other))

    rolled = roll_up(samples, window=WHOLE, expected=expected)

    missing = {ms for start, end in rolled.gaps for ms in range(start, end)}
    assert missing == set(range(*expected)) - milliseconds(samples)
    assert rolled.gap_ms == len(missing)


@given(st.lists(st.integers(1, 400), min_size=1, max_size=6), st.randoms())
def test_leases_that_follow_each_other_never_exceed_the_card(lengths: list[int], mix: Any) -> None:
    """Each lease's agent sends too much on both sides; clipped to its lease, the card adds up."""
    borders = [0]
    for length in lengths:
        borders.append(borders[-1] + length)
    total = 0
    for start, end in pairwise(borders):
        sent = [Sampled(max(0, start - mix.randint(0, 99)), end + mix.randint(0, 99))]
        total += roll_up(sent, window=(start, end)).granted_ms

    assert total == borders[-1]


def test_unknown_stays_unknown_and_is_not_zero() -> None:
    known, unknown = Sampled(0, 10, occupied_ms=10, busy_ms=4), Sampled(10, 20, occupied_ms=5)

    assert roll_up([known, unknown], window=WHOLE) == Rolled(20, 15, None)


def test_what_came_late_does_not_count() -> None:
    late = Sampled(0, 100, late_ms=60, occupied_ms=100, busy_ms=50)

    assert roll_up([late], window=WHOLE) == Rolled(40, 40, 20)


def lease(**fields: Any) -> LeaseSpan:
    known: dict[str, Any] = {
        "starts_ms": 0,
        "ends_ms": 250,
        "closed_ms": None,
        "ever_starting": True,
    }
    return LeaseSpan(**(known | fields))


def closable(span: LeaseSpan, known_ms: int, *, from_ms: int = 0, now_ms: int = 300) -> Span | None:
    return next_window(
        span, from_ms=from_ms, known_ms=known_ms, window_ms=100, now_ms=now_ms, grace_ms=1000
    )


def test_a_window_closes_when_it_is_known_in_full() -> None:
    assert closable(lease(), 99) is None
    assert closable(lease(), 100) == (0, 100)


def test_a_window_is_not_closed_before_it_is_over() -> None:
    assert closable(lease(), FOR_EVER, now_ms=99) is None
    assert closable(lease(), FOR_EVER, now_ms=100) == (0, 100)


def test_a_window_that_is_not_known_closes_after_the_grace() -> None:
    assert closable(lease(), 40, now_ms=1_099) is None
    assert closable(lease(), 40, now_ms=1_100) == (0, 100)


def test_the_last_window_waits_until_the_lease_is_over_because_it_may_be_extended() -> None:
    assert closable(lease(), 250, from_ms=200) is None
    assert closable(lease(closed_ms=270), 250, from_ms=200) == (200, 250)
    assert closable(lease(closed_ms=230), 230, from_ms=200) == (200, 230)
    assert closable(lease(closed_ms=230), 230, from_ms=230) is None


@pytest.mark.parametrize(
    ("progress", "over", "until"),
    [
        ({}, False, 0),
        ({"watermark_ms": 80}, False, 80),
        ({"watermark_ms": 80, "started_ms": 5, "stopped_ms": 90}, True, 80),
        ({"watermark_ms": 90, "started_ms": 5, "stopped_ms": 90}, True, FOR_EVER),
        # Clipped at the lease's end, nothing after it matters.
        ({"watermark_ms": 250, "started_ms": 5, "stopped_ms": 400}, True, FOR_EVER),
        # It said it never ran.
        ({"stopped_ms": 90}, True, FOR_EVER),
        # It said it was over and has gone on talking, without the last sample.
        ({"watermark_ms": 80, "stopped_ms": 90, "heard_for_ms": 900_000}, True, FOR_EVER),
        # Nobody heard of it any more: only the grace ends this.
        ({"watermark_ms": 80, "started_ms": 5}, True, 80),
    ],
)
def test_how_far_a_gpu_is_known(progress: dict[str, int], over: bool, until: int) -> None:
    span = lease(closed_ms=260 if over else None)

    assert known_until([GpuProgress(**progress)], span) == until


def test_a_lease_that_was_never_to_start_is_known_at_once() -> None:
    assert known_until([GpuProgress()], lease(closed_ms=10, ever_starting=False)) == FOR_EVER


def test_a_lease_is_known_only_as_far_as_its_slowest_gpu() -> None:
    gpus = [GpuProgress(watermark_ms=90), GpuProgress(watermark_ms=40)]

    assert known_until(gpus, lease()) == 40


def hour(number: int) -> Window:
    return Window(NOON + number * HOUR, NOON + (number + 1) * HOUR)


def use(granted_ms: int, uuid: str = "GPU-a") -> GpuUse:
    return GpuUse(
        uuid, HostId(UUID(int=2)), TenantId(UUID(int=3)), granted_ms, None, None, gap_ms=0
    )


def open_meter(store: MemoryStore, **fields: Any) -> None:
    known: dict[str, Any] = {"window": Window(NOON, NOON + 4 * HOUR), "gpus": 1}
    commands.open_meter(store, lease_id=LEASE, by=SOMEBODY, now=NOON, **(known | fields))


def close(store: MemoryStore, number: int, granted_ms: int, *gaps: Gap) -> int:
    return commands.close_usage_window(
        store,
        lease_id=LEASE,
        window=hour(number),
        gpus=[use(granted_ms)],
        gaps=gaps,
        by=SOMEBODY,
        now=NOON,
    )


def test_a_window_is_closed_once_and_stays_as_it_was(store: MemoryStore) -> None:
    open_meter(store)
    close(store, 0, 1000)

    close(store, 0, 2000)

    events = [each.event for each in store.read_stream(f"meter-{LEASE}")]
    assert [e.gpus[0].granted_ms for e in events if isinstance(e, UsageWindowClosed)] == [1000]


def test_a_meter_sums_its_windows_and_closes_once(store: MemoryStore) -> None:
    open_meter(store)
    open_meter(store)
    close(store, 0, 1000)
    close(store, 2, 500, Gap("GPU-a", (millis_up(NOON), millis_up(NOON) + 7)))
    commands.close_meter(store, lease_id=LEASE, by=SOMEBODY, now=NOON)
    commands.close_meter(store, lease_id=LEASE, by=SOMEBODY, now=NOON)

    meter = load(store, Meter, LEASE)
    assert meter is not None
    assert (meter.granted_ms, meter.is_closed) == (1500, True)
    *_, gap, _closed = [each.event for each in store.read_stream(f"meter-{LEASE}")]
    assert isinstance(gap, MeterGapFound)
    assert gap.window == Window(NOON, NOON + timedelta(milliseconds=7))
    with pytest.raises(MeterIsClosed):
        close(store, 3, 1)


def test_what_does_not_fit_a_meter_is_refused(store: MemoryStore) -> None:
    with pytest.raises(MeterUnknown):
        close(store, 0, 1)
    open_meter(store)
    with pytest.raises(MeterOpenedOtherwise):
        open_meter(store, gpus=2)
    with pytest.raises(WindowOutOfOrder):
        close(store, -1, 1)
    close(store, 0, 1)
    with pytest.raises(WindowOutOfOrder):
        commands.close_usage_window(
            store,
            lease_id=LEASE,
            window=Window(NOON + HOUR / 2, NOON + 2 * HOUR),
            gpus=[use(1)],
            gaps=[],
            by=SOMEBODY,
            now=NOON,
        )


@given(st.datetimes(timezones=st.just(NOON.tzinfo)))
def test_milliseconds_round_into_the_lease(moment: Any) -> None:
    assert instant_of(millis_down(moment)) <= moment <= instant_of(millis_up(moment))
    assert millis_up(moment) - millis_down(moment) in (0, 1)


def test_an_agent_is_judged_by_when_the_server_heard_it() -> None:
    ages = [timedelta(seconds=s) for s in (0, 15, 16, 90, 91)]

    found = [standing_of(NOON - age, now=NOON, poll_seconds=2) for age in ages]

    assert found == ["healthy", "healthy", "late", "late", "silent"]
    assert standing_of(NOON - 2 * HOUR, now=NOON, poll_seconds=600) == "late"


def test_one_lost_gpu_does_not_condemn_the_rest_and_recovers() -> None:
    said = [
        HealthSaid("GPU-a", "gpu-lost", NOON),
        HealthSaid("GPU-b", "xid", NOON),
        HealthSaid(None, "driver-mismatch", NOON),
        HealthSaid("GPU-b", "recovered", NOON),
    ]

    assert conditions(["GPU-a", "GPU-b"], said[:2]) == {"GPU-a": "lost", "GPU-b": "healthy"}
    assert conditions(["GPU-a", "GPU-b"], said) == {"GPU-a": "mismatched", "GPU-b": "healthy"}
