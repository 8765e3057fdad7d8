"""Desired and actual in, actions out; no clock, no I/O."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

import pytest
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
    TurnAway,
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
    stopped = replace(RUNNING, terms=replace(TERMS, phase="stop"))
    assert reason(do(stopped, at=100_000)) == "the server asked for it"

    stopping = replace(stopped, stopping_ms=100_000)

    assert do(stopping, at=129_999) == []
    assert do(stopping, at=130_000) == [Kill(LEASE)]


def test_stop_gives_no_longer_than_to_the_deadline_that_is_to_come() -> None:
    terms = replace(TERMS, phase="stop", stop_ms=110_000)
    stopping = replace(RUNNING, terms=terms, stopping_ms=100_000)

    assert do(stopping, at=109_999) == []
    assert do(stopping, at=110_000) == [Kill(LEASE)]


def test_work_that_outran_its_reclaim_is_not_given_its_grace_anew() -> None:
    terms = replace(TERMS, phase="stop", stop_ms=90_000)
    late = replace(RUNNING, terms=terms, stopping_ms=100_000)

    assert do(late, at=104_999) == []
    assert do(late, at=105_000) == [Kill(LEASE)]


def test_a_reclaim_of_a_short_lease_gives_the_whole_grace() -> None:
    terms = replace(TERMS, ends_ms=120_000, phase="warn", stop_ms=90_000)
    told = replace(RUNNING, terms=terms, noticed_ms=90_000)

    assert do(told, at=59_999) == []
    assert reason(do(told, at=60_000)) == "the lease's time is over"
    assert do(replace(told, stopping_ms=60_000), at=89_999) == []


def test_without_grace_work_is_asked_and_killed_at_the_deadline() -> None:
    reclaimed = replace(WARNED, terms=replace(WARNED.terms, grace_ms=0), noticed_ms=600_000)
    for running, deadline_ms in (
        (reclaimed, 600_000),
        (replace(RUNNING, terms=replace(TERMS, grace_ms=0)), HOUR),
    ):
        assert do(running, at=deadline_ms - 1) == []
        assert reason(do(running, at=deadline_ms)) == "the lease's time is over"
        assert do(replace(running, stopping_ms=deadline_ms), at=deadline_ms) == [Kill(LEASE)]


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

    assert asked_ms <= due <= max(asked_ms + 5_000, terms.deadline_ms)
    assert due <= asked_ms + grace_ms


@given(
    grace_ms=st.integers(0, 900_000),
    notice_ms=st.integers(0, 2_000_000),
    told_ms=st.integers(0, HOUR),
    sooner_ms=st.none() | st.integers(0, 2_000_000),
)
def test_a_reclaim_leaves_work_its_grace_wherever_the_notice_does(
    grace_ms: int, notice_ms: int, told_ms: int, sooner_ms: int | None
) -> None:
    """A reclaim is told while the work runs; a second one may bring it forward."""
    held = replace(RUNNING, terms=replace(TERMS, ends_ms=4 * HOUR, grace_ms=grace_ms))
    stop_ms = told_ms + notice_ms
    clock, asked_ms, killed_ms = told_ms, None, None
    held = replace(held, terms=replace(held.terms, phase="warn", stop_ms=stop_ms))
    for _ in range(8):
        for action in reconcile([held], now_ms=clock):
            match action:
                case Notice():
                    held = replace(held, noticed_ms=action.stop_at_ms)
                case Terminate():
                    asked_ms = clock
                    held = replace(held, stopping_ms=clock)
                    if sooner_ms is not None and clock + sooner_ms < stop_ms:
                        stop_ms = clock + sooner_ms
                        held = replace(held, terms=replace(held.terms, stop_ms=stop_ms))
                case Kill():
                    killed_ms = clock
        if killed_ms is not None:
            break
        clock = clock if due_now(held, clock) else (next_due_ms([held], now_ms=clock) or clock)

    assert asked_ms is not None and killed_ms is not None
    assert killed_ms <= (stop_ms if asked_ms < stop_ms else asked_ms + 5_000)
    if stop_ms - told_ms >= grace_ms and sooner_ms is None:
        assert killed_ms - asked_ms == grace_ms


def due_now(held: Held, now_ms: int) -> bool:
    """Tell if what was done left something else to do at the same moment."""
    return any(not isinstance(each, Notice) for each in reconcile([held], now_ms=now_ms))


# --- tenants beside each other -------------------------------------------------------------------


def beside(tenant: str, work: str = "none", *, apart: bool = False, **more: object) -> Held:
    """Return a lease of a tenant on a GPU of its own, on a host that may keep them apart."""
    ends_ms = int(str(more.pop("ends_ms", HOUR)))
    terms = Terms(
        lease_id=uuid4(),
        gpu_uuids=(f"GPU-{uuid4()}",),
        starts_ms=0,
        ends_ms=ends_ms,
        phase="run",
        stop_ms=None,
        grace_ms=10_000,
        tenant=tenant,
    )
    return Held(terms=terms, listed=True, work=work, apart=apart, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "second", "kinds"),
    [
        (beside("ada", "running"), beside("ada"), [Start]),
        (beside("ada", "running"), beside("grace"), [TurnAway]),
        (beside("ada", "running"), beside(""), [TurnAway]),
        (beside("", "running"), beside(""), [TurnAway]),
        (beside("ada", "running", apart=True), beside("grace", apart=True), [Start]),
        (beside("ada", "running", apart=True), beside("grace"), [TurnAway]),
        (beside("ada", "running"), beside("grace", apart=True), [TurnAway]),
        (beside("ada", "running", ends_ms=41_000), beside("grace"), []),
        (beside("ada", "running", stopping_ms=0), beside("grace"), []),
        (beside("ada"), beside("grace"), [Start, TurnAway]),
        (beside("ada", "ended"), beside("grace"), [Start]),
    ],
)
def test_works_of_two_tenants_run_side_by_side_only_where_both_stand_apart(
    first: Held, second: Held, kinds: list[type]
) -> None:
    actions = reconcile([first, second], now_ms=1_000)

    assert [type(each) for each in actions] == kinds
