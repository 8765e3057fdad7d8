"""A lease from grant to end: the clock, the hosts, the consumer and the owner in any order."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from ledger.domain.ids import LeaseId
from ledger.domain.money import Money
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import (
    LeaseActivated,
    LeaseClosed,
    LeaseEnding,
    WorkStarted,
    WorkStopped,
)
from marketplace.domain.facts.values import Share
from marketplace.domain.leases.actions import (
    LeaseEndsSooner,
    LeaseOver,
    LeaseTooLong,
    NotTheOwner,
    ReclaimUnderWay,
)
from marketplace.domain.leases.lease import FILES_WITHIN, ExtensionNotLater, Lease
from marketplace.domain.leases.reclaim import interrupt, owner_was_first, reclaim
from tests.conftest import NOON
from tests.marketplace.support.leasing import (
    ADA,
    BOB,
    HOST_A,
    HOST_B,
    ONE_HOUR,
    START_GRACE,
    active,
    after,
    folded,
    kinds,
    scheduled,
    share,
)


def test_nothing_happens_before_the_start() -> None:
    assert folded(scheduled()).tick(now=NOON, start_grace=START_GRACE) == []


def test_a_gang_is_active_only_when_every_host_has_started() -> None:
    lease = folded(scheduled(share(HOST_A, ADA), share(HOST_B, BOB)))
    lease = after(lease, lease.tick(now=NOON + ONE_HOUR, start_grace=START_GRACE))

    first = lease.work_started(host_id=HOST_A, now=NOON + ONE_HOUR)
    lease = after(lease, first)
    second = lease.work_started(host_id=HOST_B, now=NOON + ONE_HOUR)

    assert kinds(first) == [WorkStarted]
    assert kinds(second) == [WorkStarted, LeaseActivated]


def test_a_report_that_comes_twice_changes_nothing() -> None:
    lease = active()
    assert lease.work_started(host_id=HOST_A, now=NOON + ONE_HOUR) == []


def test_a_host_that_never_starts_the_work_makes_the_lease_fail() -> None:
    lease = folded(scheduled())
    late = NOON + ONE_HOUR + START_GRACE

    lease = after(lease, lease.tick(now=NOON + ONE_HOUR, start_grace=START_GRACE))
    events = lease.tick(now=late, start_grace=START_GRACE)

    assert kinds(events) == [LeaseEnding, LeaseClosed]
    assert after(lease, events).state == "failed"


def waiting(*shares: Share) -> Lease:
    """Return a lease whose first host brings what the work needs."""
    lease = folded(scheduled(*shares))
    lease = after(lease, lease.tick(now=NOON + ONE_HOUR, start_grace=START_GRACE))
    return after(lease, lease.files_awaited(host_id=HOST_A, now=NOON + ONE_HOUR))


def test_a_host_that_brings_files_is_not_late_for_an_hour() -> None:
    lease, long = waiting(), NOON + ONE_HOUR + FILES_WITHIN
    assert lease.files_awaited(host_id=HOST_A, now=NOON + ONE_HOUR) == []
    assert lease.tick(now=long - timedelta(seconds=1), start_grace=START_GRACE) == []

    events = lease.tick(now=long, start_grace=START_GRACE)

    closed = events[-1]
    assert isinstance(closed, LeaseClosed)
    assert (closed.reason, closed.failed) == (close_reasons.FILES_LATE, False)


def test_files_that_come_to_one_host_excuse_no_other() -> None:
    lease = waiting(share(HOST_A, ADA), share(HOST_B, BOB))
    events = lease.tick(now=NOON + ONE_HOUR + START_GRACE, start_grace=START_GRACE)

    closed = events[-1]
    assert isinstance(closed, LeaseClosed)
    assert closed.reason == close_reasons.NEVER_STARTED


def test_files_that_came_are_forgotten_once_the_work_runs() -> None:
    lease = waiting()
    lease = after(lease, lease.work_started(host_id=HOST_A, now=NOON + ONE_HOUR))

    assert lease.state == "active"
    assert lease.files_awaited(host_id=HOST_A, now=NOON + ONE_HOUR) == []
    assert lease.tick(now=NOON + ONE_HOUR + FILES_WITHIN, start_grace=START_GRACE) == []


def test_a_lease_nobody_looked_at_for_days_closes_in_one_tick() -> None:
    """coldfront#378: expiry handled one state only."""
    for lease in (folded(scheduled()), active()):
        events = lease.tick(now=NOON + timedelta(days=3), start_grace=START_GRACE)
        lease = after(lease, events)
        if lease.state == "ending":
            lease = after(lease, lease.tick(now=NOON + timedelta(days=4), start_grace=START_GRACE))
        assert lease.over


def test_work_that_ends_by_itself_ends_the_lease_early() -> None:
    lease = active()
    events = lease.work_stopped(
        host_id=HOST_A, exit_code=0, failed=False, detail="", now=NOON + ONE_HOUR * 2
    )
    assert kinds(events) == [WorkStopped, LeaseEnding, LeaseClosed]
    closed = events[-1]
    assert isinstance(closed, LeaseClosed)
    assert (closed.reason, closed.failed) == (close_reasons.WORK_DONE, False)


def test_work_lost_while_it_ran_is_told_from_work_that_never_came_up() -> None:
    """What was proved of the use of lost work is charged; what never came up costs nothing."""
    lease = folded(scheduled())
    lease = after(lease, lease.tick(now=NOON + ONE_HOUR, start_grace=START_GRACE))
    for begun, reason in (
        (lease, close_reasons.START_FAILED),
        (active(), close_reasons.WORK_LOST),
    ):
        events = begun.work_stopped(
            host_id=HOST_A, exit_code=None, failed=True, detail="gone", now=NOON + ONE_HOUR
        )
        closed = events[-1]
        assert isinstance(closed, LeaseClosed)
        assert (closed.reason, closed.failed) == (reason, True)


def test_a_start_that_a_filled_gpu_prevents_is_the_hosts_fault_with_its_own_reason() -> None:
    lease = folded(scheduled())
    lease = after(lease, lease.tick(now=NOON + ONE_HOUR, start_grace=START_GRACE))
    events = lease.work_stopped(
        host_id=HOST_A,
        exit_code=None,
        failed=True,
        detail="61440 MiB are held by others",
        now=NOON + ONE_HOUR,
        occupied=True,
    )
    closed = events[-1]
    assert isinstance(closed, LeaseClosed)
    assert (closed.reason, closed.failed) == (close_reasons.GPU_OCCUPIED, True)


def test_work_that_was_stopped_for_its_memory_ends_the_lease_with_that_reason() -> None:
    events = active().work_stopped(
        host_id=HOST_A,
        exit_code=None,
        failed=False,
        detail="30000 MiB, where 20480 MiB are its own",
        now=NOON + ONE_HOUR,
        over_share=True,
    )
    closed = events[-1]
    assert isinstance(closed, LeaseClosed)
    assert (closed.reason, closed.failed) == (close_reasons.OVER_SHARE, False)


def test_a_gang_that_loses_one_host_waits_for_the_other_to_stop() -> None:
    lease = active(share(HOST_A, ADA), share(HOST_B, BOB))
    events = lease.work_stopped(
        host_id=HOST_A, exit_code=1, failed=False, detail="oom", now=NOON + ONE_HOUR * 2
    )
    assert kinds(events) == [WorkStopped, LeaseEnding]
    lease = after(lease, events)
    events = lease.work_stopped(
        host_id=HOST_B, exit_code=None, failed=False, detail="", now=NOON + ONE_HOUR * 2
    )
    assert kinds(events) == [WorkStopped, LeaseClosed]


def test_the_consumer_may_close_a_scheduled_lease_at_once() -> None:
    events = folded(scheduled()).close(now=NOON)
    assert kinds(events) == [LeaseEnding, LeaseClosed]


def test_a_lease_that_is_over_cannot_be_closed_again() -> None:
    lease = folded(scheduled())
    lease = after(lease, lease.close(now=NOON))
    with pytest.raises(LeaseOver):
        lease.close(now=NOON)


def test_only_an_owner_of_its_gpus_reclaims_a_lease() -> None:
    with pytest.raises(NotTheOwner):
        reclaim(active(), owner_id=BOB, now=NOON + ONE_HOUR)


def test_a_reclaim_stops_the_work_after_the_notice_and_pays_the_agreed_share() -> None:
    lease = active()
    asked = NOON + ONE_HOUR * 2
    lease = after(lease, reclaim(lease, owner_id=ADA, now=asked))
    assert lease.stop_at == asked + timedelta(seconds=900)
    assert lease.tick(now=lease.stop_at - timedelta(seconds=1), start_grace=START_GRACE) == []

    lease = after(lease, lease.tick(now=lease.stop_at, start_grace=START_GRACE))
    events = lease.work_stopped(
        host_id=HOST_A, exit_code=None, failed=False, detail="", now=lease.due_at
    )

    closed = events[-1]
    assert isinstance(closed, LeaseClosed)
    assert closed.reason == close_reasons.RECLAIMED
    # 2 h 45 min of 2 GPUs at 2.00 an hour are lost: 11.00; a tenth of that is paid back.
    assert closed.compensation == Money(1_100_000_000)
    assert closed.compensation_from == ADA


def test_a_reclaim_cannot_be_asked_twice_or_for_less_than_the_notice() -> None:
    lease = active()
    with pytest.raises(LeaseEndsSooner):
        reclaim(lease, owner_id=ADA, now=lease.ends_at - timedelta(minutes=15))
    lease = after(lease, reclaim(lease, owner_id=ADA, now=NOON + ONE_HOUR))
    with pytest.raises(ReclaimUnderWay):
        reclaim(lease, owner_id=ADA, now=NOON + ONE_HOUR)
    with pytest.raises(ReclaimUnderWay):
        lease.ask_extension(ends_at=lease.ends_at + ONE_HOUR, now=NOON + ONE_HOUR)


def test_an_extension_keeps_the_gpus_and_moves_the_end() -> None:
    """Blazar LP#1692805: extending an active lease moved it to another host."""
    lease = active()
    later = lease.ends_at + ONE_HOUR
    extended = after(lease, lease.extend(ends_at=later, now=NOON + ONE_HOUR))
    assert (extended.ends_at, extended.terms) == (later, lease.terms)


def test_an_extension_is_refused_where_it_makes_no_sense() -> None:
    lease = active()
    with pytest.raises(ExtensionNotLater):
        lease.ask_extension(ends_at=lease.ends_at, now=NOON + ONE_HOUR)
    with pytest.raises(LeaseTooLong):
        lease.ask_extension(ends_at=lease.ends_at + timedelta(days=31), now=NOON + ONE_HOUR)


def test_a_second_interruption_that_is_due_sooner_is_no_reclaim_of_its_owner() -> None:
    lease = active()
    for hours, sold_to in ((3, 71), (2, 72)):
        stop_at = NOON + ONE_HOUR * hours
        favoured = LeaseId(UUID(int=sold_to))
        cut = interrupt(lease, in_favour_of=favoured, stop_at=stop_at, now=NOON + ONE_HOUR)
        lease = after(lease, cut)

    assert lease.stop_at == NOON + 2 * ONE_HOUR
    assert not owner_was_first(lease)
