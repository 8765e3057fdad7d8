"""Checkpoints: who may report them, what counts, and what is asked for after an interruption."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.ids import HostId
from ledger.domain.money import Money
from ledger.domain.span import Window
from ledger.eventstore.port import load
from marketplace.commands import leases
from marketplace.domain.bids.bounds import RESUMES_FROM, CheckpointsOutOfBounds
from marketplace.domain.facts.close_reasons import RECLAIMED, WORK_LOST
from marketplace.domain.facts.events import LeaseClosed, Workload, WorkSaved
from marketplace.domain.leases.actions import CheckpointOutOfLease, LeaseOver
from marketplace.domain.leases.checkpoints import Progress
from marketplace.domain.leases.lease import Lease, save
from tests.conftest import NOON
from tests.marketplace.support.going import Going
from tests.marketplace.support.leasing import (
    ADA,
    BOB,
    HOST_A,
    HOST_B,
    LEASE,
    active,
    after,
    kinds,
    share,
)
from tests.marketplace.support.market import somebody
from tests.marketplace.support.site import HOUR

MINUTE = timedelta(minutes=1)
ONE = NOON + HOUR


@pytest.fixture
def site() -> Going:
    site = Going()
    for word in "abc":
        site.offer(word, gpus=2, at=1)
    return site


def cut(site: Going, number: int = 1, *, minutes: int = 60) -> None:
    """Let the lease of a bid run, and its owner take it back: it stops after so many minutes."""
    site.begin(number)
    site.wait(minutes=minutes - 5)
    site.reclaim_at(number)
    site.wait(minutes=5)


def note(site: Going, at: datetime, number: int = 1) -> None:
    leases.save_work(
        site.store,
        lease_id=site.lease_at(number).terms.lease_id,
        host_id=None,
        safe_at=at,
        by=somebody(),
        now=site.now,
    )


def closed(site: Going, number: int = 1) -> LeaseClosed:
    found = [
        each.event
        for each in site.store.read_stream(f"lease-{site.lease_at(number).terms.lease_id}")
        if isinstance(each.event, LeaseClosed)
    ]
    return found[0]


def test_the_rest_is_what_lies_after_the_last_checkpoint(site: Going) -> None:
    site.want(resume=True)
    cut(site)
    note(site, NOON + 50 * MINUTE)
    site.stop()

    second = site.bid_at(2)
    assert second.terms.duration_seconds == (4 * HOUR - 50 * MINUTE) // timedelta(seconds=1)
    assert dict(second.terms.workload.environment)[RESUMES_FROM] == "2026-01-05T12:50:00+00:00"
    assert (closed(site).kept_seconds, closed(site).lost_seconds) == (3_000, 600)


def test_without_a_checkpoint_all_of_it_is_asked_for_again(site: Going) -> None:
    site.want(resume=True)
    cut(site)
    site.stop()

    assert site.bid_at(2).terms.duration_seconds == 4 * 3_600
    assert RESUMES_FROM not in dict(site.bid_at(2).terms.workload.environment)
    assert (closed(site).kept_seconds, closed(site).lost_seconds) == (0, 3_600)


@pytest.mark.parametrize(("every", "kept"), [(600, 60), (2_700, 45), (7_200, 0), (1, 60)])
def test_work_that_saves_itself_loses_what_came_after_the_last_time(
    site: Going, every: int, kept: int
) -> None:
    site.want(resume=True, workload=Workload("other", checkpoint_seconds=every))
    cut(site)
    site.stop()

    rest = 4 * HOUR - kept * MINUTE
    assert site.bid_at(2).terms.duration_seconds == rest // timedelta(seconds=1)
    assert closed(site).lost_seconds == 3_600 - kept * 60
    assert site.bid_at(2).terms.workload.checkpoint_seconds == every


def test_each_lease_of_a_chain_keeps_what_it_did_itself(site: Going) -> None:
    site.want(resume=True)
    cut(site)
    note(site, NOON + 30 * MINUTE)
    site.stop()
    cut(site, 2)
    site.stop(2)

    lengths = [site.bid_at(number).terms.duration_seconds for number in (1, 2, 3)]
    assert lengths == [4 * 3_600, 4 * 3_600 - 1_800, 4 * 3_600 - 1_800]
    # The third is told of no checkpoint of the second, which saved nothing.
    assert RESUMES_FROM not in dict(site.bid_at(3).terms.workload.environment)


def test_what_no_longer_fits_its_deadline_is_not_asked_for(site: Going) -> None:
    site.want(resume=True, deadline=NOON + 4 * HOUR + 30 * MINUTE)
    cut(site)
    site.stop()

    assert site.at(2) is None
    assert site.bid_at(1).chain_ended == "deadline-too-soon"
    assert site.held() == Money(0)


def test_a_lease_that_ends_by_itself_lost_nothing(site: Going) -> None:
    site.want(resume=True)
    site.begin()
    site.now = site.lease_at(1).ends_at
    site.stop()

    assert (closed(site).kept_seconds, closed(site).lost_seconds) == (None, None)


def test_a_checkpoint_that_is_not_later_changes_nothing() -> None:
    lease = active()
    safe = ONE + 10 * MINUTE
    lease = after(lease, save(lease, host_id=HOST_A, safe_at=safe, now=ONE + 11 * MINUTE))

    assert lease.progress.safe_at == safe
    for earlier in (safe, safe - MINUTE):
        assert save(lease, host_id=HOST_A, safe_at=earlier, now=ONE + 12 * MINUTE) == []


def test_of_a_gang_the_host_furthest_behind_counts_but_its_consumer_knows_all() -> None:
    lease = active(share(HOST_A, ADA), share(HOST_B, BOB))
    now = ONE + HOUR
    lease = after(lease, save(lease, host_id=HOST_A, safe_at=ONE + 30 * MINUTE, now=now))
    alone = lease.progress.safe_at
    lease = after(lease, save(lease, host_id=HOST_B, safe_at=ONE + 20 * MINUTE, now=now))
    both = lease.progress.safe_at
    lease = after(lease, save(lease, host_id=None, safe_at=ONE + 40 * MINUTE, now=now))

    assert (alone, both) == (ONE + 30 * MINUTE, ONE + 20 * MINUTE)
    assert lease.progress.safe_at == ONE + 40 * MINUTE


def test_a_host_whose_clock_is_fast_saves_up_to_now_at_most() -> None:
    lease = active()
    now = ONE + 10 * MINUTE

    (event,) = save(lease, host_id=HOST_A, safe_at=now + HOUR, now=now)

    assert event == WorkSaved(lease_id=LEASE, host_id=HOST_A, safe_at=now, at=now)


def test_what_is_no_checkpoint_of_this_work_is_refused_or_left_out() -> None:
    lease = active()
    now = ONE + 10 * MINUTE

    for wrong in (now + MINUTE, ONE - MINUTE):
        with pytest.raises(CheckpointOutOfLease):
            save(lease, host_id=None, safe_at=wrong, now=now)
    assert save(lease, host_id=HostId(LEASE), safe_at=now, now=now) == []
    assert save(lease, host_id=HOST_A, safe_at=ONE - MINUTE, now=now) == []


def test_after_the_end_a_consumer_is_told_so_and_a_host_is_not_heard() -> None:
    lease = active()
    lease = after(lease, lease.close(now=ONE + HOUR))
    lease = after(
        lease,
        lease.work_stopped(host_id=HOST_A, exit_code=None, failed=False, detail="", now=ONE + HOUR),
    )

    with pytest.raises(LeaseOver):
        save(lease, host_id=None, safe_at=ONE + MINUTE, now=ONE + HOUR)
    assert save(lease, host_id=HOST_A, safe_at=ONE + MINUTE, now=ONE + HOUR) == []


def test_a_checkpoint_written_while_the_work_stops_counts() -> None:
    lease = after(active(), [])
    due = ONE + HOUR
    lease = after(lease, lease.abandon(now=due, reason=RECLAIMED))
    lease = after(lease, save(lease, host_id=HOST_A, safe_at=due + timedelta(seconds=9), now=due))
    lease = after(
        lease, save(lease, host_id=HOST_A, safe_at=due + timedelta(seconds=9), now=due + MINUTE)
    )

    stopped = lease.work_stopped(
        host_id=HOST_A, exit_code=None, failed=False, detail="", now=due + MINUTE
    )

    (_, over) = stopped
    assert isinstance(over, LeaseClosed)
    assert (over.kept_seconds, over.lost_seconds) == (3_609, 0)


def test_work_that_never_ran_on_all_its_hosts_lost_nothing() -> None:
    lease = active(share(HOST_A, ADA))
    unbegun = replace(lease, progress=Progress(), state="starting")

    events = unbegun.work_stopped(
        host_id=HOST_A, exit_code=None, failed=True, detail="", now=ONE + HOUR
    )

    over = events[-1]
    assert kinds(events)[-1] is LeaseClosed
    assert isinstance(over, LeaseClosed)
    assert over.reason == WORK_LOST
    assert (over.kept_seconds, over.lost_seconds) == (0, 0)


@given(
    began=st.integers(0, 900),
    ran=st.integers(0, 14_000),
    saved=st.lists(st.integers(0, 14_400), max_size=4),
    every=st.none() | st.integers(1, 20_000),
)
def test_what_was_done_is_kept_or_lost_and_never_both(
    began: int, ran: int, saved: list[int], every: int | None
) -> None:
    window = Window(ONE, ONE + 4 * HOUR)
    second = timedelta(seconds=1)
    stopped = min(ONE + (began + ran) * second, window.ends_at)
    progress = Progress().begun(ONE + began * second)
    for at in saved:
        safe = ONE + at * second
        if safe <= stopped and progress.is_news(None, safe):
            progress = progress.after(
                WorkSaved(lease_id=LEASE, host_id=None, safe_at=safe, at=safe)
            )

    left = progress.left(window, stopped_at=stopped, every_seconds=every)

    assert timedelta() <= left.kept <= window.length
    assert timedelta() <= left.lost
    assert left.kept + left.lost <= stopped - window.starts_at
    if left.kept:
        assert left.kept + left.lost == stopped - window.starts_at or not left.lost


@pytest.mark.parametrize("every", [0, 86_401])
def test_how_often_work_saves_itself_has_bounds(site: Going, every: int) -> None:
    with pytest.raises(CheckpointsOutOfBounds):
        site.want(resume=True, workload=Workload("other", checkpoint_seconds=every))

    assert load(site.store, Lease, LEASE) is None
    assert site.held() == Money(0)
