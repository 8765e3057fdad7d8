"""The first that a lease's page says once it is over: how it ended, and what can be done next."""

from __future__ import annotations

from uuid import UUID

import pytest

from config.site.pages.leases.outcome import Outcome, outcome_of
from ledger.domain.event import Event
from ledger.domain.ids import HostId, LeaseId
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.close_reasons import FAULTS, REASONS
from marketplace.domain.facts.events import LeaseClosed, WorkStarted, WorkStopped
from marketplace.domain.leases.attempts import attempts_of
from tests.conftest import NOON

LEASE, HOST = LeaseId(UUID(int=1)), HostId(UUID(int=2))


def ended(
    reason: int,
    *,
    code: int | None = None,
    detail: str = "",
    mine: bool = True,
    goes_on: bool = False,
) -> Outcome | None:
    events: list[Event] = [
        WorkStarted(lease_id=LEASE, host_id=HOST, at=NOON),
        WorkStopped(lease_id=LEASE, host_id=HOST, exit_code=code, detail=detail, at=NOON),
        LeaseClosed(
            lease_id=LEASE,
            market="main",
            reason=reason,
            failed=reason in FAULTS,
            compensation=None,
            compensation_from=None,
            at=NOON,
        ),
    ]
    return outcome_of(events, attempts_of(events), mine=mine, goes_on=goes_on)


def test_a_lease_that_goes_on_has_no_outcome() -> None:
    assert outcome_of([WorkStarted(lease_id=LEASE, host_id=HOST, at=NOON)], [], mine=True) is None


def test_work_that_failed_says_its_exit_code_and_where_to_look() -> None:
    told = ended(close_reasons.WORK_FAILED, code=3)

    assert told is not None
    assert (told.tone, told.title) == ("bad", "The work ended with exit code 3")
    assert "stderr" in told.following


def test_work_that_did_well_says_so() -> None:
    told = ended(close_reasons.WORK_DONE, code=0)

    assert told == Outcome("good", "The work finished by itself", "Exit code 0.")


def test_a_start_that_failed_says_why_what_it_costs_and_what_to_look_at() -> None:
    told = ended(close_reasons.START_FAILED, detail="the image has another digest")

    assert told is not None
    assert told.title == "The host could not start the work"
    assert told.text.startswith("The image has another digest. You pay for what was proved")
    assert "digest" in told.following


def test_its_owner_is_told_how_it_ended_and_not_what_to_do() -> None:
    told = ended(close_reasons.START_FAILED, detail="no such image", mine=False)

    assert told is not None
    assert (told.text, told.following) == ("No such image.", "")


@pytest.mark.parametrize("reason", REASONS)
def test_every_end_is_told_and_every_fault_says_what_to_do(reason: int) -> None:
    told = ended(reason)

    assert told is not None and told.title
    assert (told.tone == "bad") >= (reason in FAULTS)
    assert told.following or reason not in FAULTS


def test_a_fault_after_which_the_work_goes_on_asks_nothing_of_anybody() -> None:
    closed = ended(close_reasons.START_FAILED, goes_on=True)
    paused, alone = ended(close_reasons.PAUSED, goes_on=True), ended(close_reasons.PAUSED)

    assert closed is not None
    assert closed.following == "You need to do nothing: the work goes on by itself."
    assert paused == alone, "its own sentence says more"
