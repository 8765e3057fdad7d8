"""What hosts did of a lease's work, by its events."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from ledger.domain.ids import HostId, LeaseId
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import LeaseClosed, LeaseEnding, WorkStarted, WorkStopped
from marketplace.domain.leases.attempts import Attempt, attempts_of
from tests.conftest import NOON

LEASE, ONE, TWO = LeaseId(UUID(int=1)), HostId(UUID(int=2)), HostId(UUID(int=3))
LATER = NOON + timedelta(minutes=20)


def started(host_id: HostId) -> WorkStarted:
    return WorkStarted(lease_id=LEASE, host_id=host_id, at=NOON)


def stopped(host_id: HostId, code: int | None, detail: str = "") -> WorkStopped:
    return WorkStopped(lease_id=LEASE, host_id=host_id, exit_code=code, detail=detail, at=LATER)


def closed(reason: int) -> LeaseClosed:
    return LeaseClosed(
        lease_id=LEASE,
        market="main",
        reason=reason,
        failed=reason in close_reasons.FAULTS,
        compensation=None,
        compensation_from=None,
        at=LATER,
    )


def test_an_attempt_runs_until_it_is_told_to_have_ended() -> None:
    assert attempts_of([started(ONE)]) == [Attempt(1, ONE, NOON)]


def test_it_ends_with_its_exit_code_and_the_reason_of_the_lease() -> None:
    events = [started(ONE), stopped(ONE, 7), closed(close_reasons.WORK_FAILED)]

    (attempt,) = attempts_of(events)

    assert (attempt.ended_at, attempt.exit_code) == (LATER, 7)
    assert attempt.reason == "The work ended with an error of its own."


def test_a_host_that_could_not_start_it_says_why() -> None:
    (attempt,) = attempts_of([stopped(ONE, None, "python: No such file"), closed(502)])

    assert (attempt.started_at, attempt.reason) == (None, "python: No such file")


def test_each_host_of_a_gang_is_told_of() -> None:
    ending = LeaseEnding(lease_id=LEASE, reason=close_reasons.WORK_DONE, at=LATER)

    one, two = attempts_of([started(ONE), started(TWO), stopped(ONE, 0), ending])

    assert (one.exit_code, one.reason) == (0, "The work finished by itself.")
    assert (two.ended_at, two.reason) == (None, "")


def test_a_host_that_fell_silent_ends_with_the_lease() -> None:
    (attempt,) = attempts_of([started(ONE), closed(close_reasons.HOST_SILENT)])

    assert (attempt.ended_at, attempt.exit_code) == (LATER, None)
    assert attempt.reason == "The host was not heard for too long."
