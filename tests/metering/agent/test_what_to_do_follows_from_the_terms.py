"""Desired and actual in, actions out; no clock, no I/O."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from metering.agent.reconcile import (
    Action,
    Forget,
    GiveUp,
    Held,
    Kill,
    Notice,
    Start,
    Terminate,
    Terms,
    kill_ms,
    next_due_ms,
    reconcile,
)

LEASE = UUID(int=1)
OTHER = UUID(int=2)
HOUR = 3_600_000
GRACE = 30_000
TERMS = Terms(
    lease_id=LEASE,
    gpu_uuids=("GPU-a",),
    starts_ms=0,
    ends_ms=HOUR,
    phase="run",
    stop_ms=None,
    grace_ms=GRACE,
)
NONE = Held(terms=TERMS, listed=True, work="none")
RUNNING = replace(NONE, work="running")
WARNED = replace(RUNNING, terms=replace(TERMS, phase="warn", stop_ms=600_000))


def do(*held: Held, at: int) -> list[Action]:
    return reconcile(held, now_ms=at)


def reason(actions: list[Action]) -> str:
    (action,) = actions
    assert isinstance(action, Terminate)
    return action.reason


def test_work_starts_at_its_start_and_not_before() -> None:
    later = replace(NONE, terms=replace(TERMS, starts_ms=5_000))

    assert do(later, at=4_999) == []
    assert next_due_ms([later], now_ms=4_999) == 5_000
    assert do(later, at=5_000) == [Start(LEASE)]


def test_what_runs_is_left_alone() -> None:
    assert do(RUNNING, at=1_000_000) == []


def test_work_is_asked_to_end_the_grace_before_the_end_and_killed_at_the_end() -> None:
    asked_ms = HOUR - GRACE
    assert do(RUNNING, at=asked_ms - 1) == []
    assert reason(do(RUNNING, at=asked_ms)) == "the lease's time is over"

    stopping = replace(RUNNING, stopping_ms=asked_ms)

    assert do(stopping, at=HOUR - 1) == []
    assert do(stopping, at=HOUR) == [Kill(LEASE)]


def test_a_short_lease_is_not_all_grace() -> None:
    short = replace(RUNNING, terms=replace(TERMS, ends_ms=60_000))

    assert do(short, at=53_999) == []
    assert reason(do(short, at=54_000)) == "the lease's time is over"


def test_a_reclaim_gives_notice_once_and_keeps_running_until_it_is_due() -> None:
    assert do(WARNED, at=1_000) == [Notice(LEASE, 600_000)]
    told = replace(WARNED, noticed_ms=600_000)

    assert do(told, at=569_999) == []
    assert reason(do(told, at=570_000)) == "the lease's time is over"
    assert do(replace(told, stopping_ms=570_000), at=600_000) == [Kill(LEASE)]


def test_a_changed_deadline_is_told_again() -> None:
    told = replace(WARNED, noticed_ms=900_000)

    assert do(told, at=1_000) == [Notice(LEASE, 600_000)]


def test_stop_gives_the_whole_grace_from_now() -> None:
    stopped = replace(RUNNING, terms=replace(TERMS, phase="stop", stop_ms=90_000))
    assert reason(do(stopped, at=100_000)) == "the server asked for it"

    stopping = replace(stopped, stopping_ms=100_000)

    assert do(stopping, at=129_999) == []
    assert do(stopping, at=130_000) == [Kill(LEASE)]


def test_a_lease_not_listed_any_more_is_stopped_then_forgotten() -> None:
    unlisted = replace(RUNNING, listed=False)

    assert reason(do(unlisted, at=1_000)) == "the lease is not this host's any more"
    assert do(replace(unlisted, work="ended"), at=9_000) == [Forget(LEASE)]
    assert do(replace(unlisted, work="none"), at=9_000) == [Forget(LEASE)]


def test_ended_work_is_never_started_again() -> None:
    assert do(replace(NONE, work="ended"), at=1_000) == []


def test_work_that_overran_while_the_agent_was_away_gets_a_short_grace() -> None:
    late = replace(RUNNING, stopping_ms=HOUR + 60_000)

    assert do(late, at=HOUR + 64_999) == []
    assert do(late, at=HOUR + 65_000) == [Kill(LEASE)]


def test_the_next_lease_waits_until_the_gpu_is_free() -> None:
    leaving = replace(RUNNING, stopping_ms=HOUR - GRACE)
    terms = replace(TERMS, lease_id=OTHER, starts_ms=HOUR, ends_ms=2 * HOUR)
    coming = replace(NONE, terms=terms)

    assert do(leaving, coming, at=HOUR) == [Kill(LEASE)]
    assert do(replace(leaving, work="ended"), coming, at=HOUR) == [Start(OTHER)]


def test_a_lease_that_is_over_before_it_began_is_given_up() -> None:
    for over in (
        do(NONE, at=HOUR),
        do(replace(NONE, terms=replace(TERMS, phase="stop")), at=5_000),
    ):
        (action,) = over
        assert isinstance(action, GiveUp)


@given(
    phase=st.sampled_from(["run", "warn", "stop"]),
    ends_ms=st.integers(1, 10**8),
    stop_ms=st.none() | st.integers(0, 10**8),
    grace_ms=st.integers(0, 10**6),
    asked_ms=st.integers(0, 10**8),
)
def test_a_kill_never_comes_before_the_request_nor_long_after_the_end(
    phase: str, ends_ms: int, stop_ms: int | None, grace_ms: int, asked_ms: int
) -> None:
    terms = replace(
        TERMS,
        phase=phase,  # type: ignore[arg-type]  # drawn from the closed set
        ends_ms=ends_ms,
        stop_ms=stop_ms,
        grace_ms=grace_ms,
    )
    held = replace(RUNNING, terms=terms, stopping_ms=asked_ms)

    due = kill_ms(held)

    assert asked_ms <= due <= max(asked_ms + 5_000, ends_ms)
    assert due <= asked_ms + grace_ms
