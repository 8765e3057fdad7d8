"""Work that failed on a host keeps off that host for a while, and waits for nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from ledger.domain.ids import HostId
from marketplace.commands import leases
from marketplace.commands.losses import end_for_silence
from marketplace.domain.bids.bounds import DURATION_MIN
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import KeptOff, Workload
from marketplace.domain.leases.grant_checks import GrantUnfit, fill
from marketplace.domain.leases.renewals import LEASED_SHORTEST, RETRY_AFTER, TRIES_AT_ONCE
from tests.marketplace.support.going import Going
from tests.marketplace.support.going import site as site
from tests.marketplace.support.market import somebody

A_MINUTE = timedelta(minutes=1)
SAVES = Workload("other", checkpoint_seconds=1)


def host_of(site: Going, number: int) -> HostId:
    (host_id,) = site.lease_at(number).hosts
    return host_id


def fail(site: Going, number: int) -> None:
    """Let the host say that it could not start the work, or lost it."""
    lease = site.lease_at(number)
    leases.lease_failed(
        site.store,
        lease_id=lease.terms.lease_id,
        host_id=host_of(site, number),
        detail="it is gone",
        by=somebody(),
        now=site.now,
    )
    site.settle(number)
    site.go()
    site.go()


def test_a_lost_work_goes_on_at_once_on_another_host(site: Going) -> None:
    site.offer("b", gpus=2, at=1.5)
    site.want(resume=True, workload=SAVES)
    site.begin()
    site.wait(minutes=30)

    fail(site, 1)

    assert site.lease_at(1).ending_reason == close_reasons.WORK_LOST
    assert site.lease_at(2).starts_at == site.now
    assert host_of(site, 2) != host_of(site, 1)


def test_the_host_on_which_it_failed_serves_it_when_the_pause_is_over(site: Going) -> None:
    """No other is there: the lease is granted at once, and begins then."""
    site.want(resume=True)
    site.clock(site.lease_at(1))

    fail(site, 1)

    assert site.lease_at(1).ending_reason == close_reasons.START_FAILED
    assert site.lease_at(2).starts_at == site.now + RETRY_AFTER
    assert host_of(site, 2) == host_of(site, 1)


def test_a_host_that_comes_free_sooner_than_the_pause_is_over_is_taken(site: Going) -> None:
    site.offer("b", gpus=2, at=1, windows=[(site.now + 2 * A_MINUTE, site.now + timedelta(days=2))])
    site.want(resume=True)
    site.clock(site.lease_at(1))

    fail(site, 1)

    assert site.lease_at(2).starts_at == site.now + 2 * A_MINUTE


def test_work_that_fails_on_one_host_after_the_other_pauses(site: Going) -> None:
    """Else work with a fault of its own would go through a market of thousands in minutes."""
    for word in "bcdefg":
        site.offer(word, gpus=2, at=1)
    site.want(resume=True)
    tried = TRIES_AT_ONCE + 1
    for number in range(1, tried + 1):
        site.clock(site.lease_at(number))
        fail(site, number)

    starts = [site.lease_at(number).starts_at for number in range(1, tried + 2)]
    assert starts[:-1] == [site.now] * tried
    assert starts[-1] == site.now + RETRY_AFTER
    assert len({host_of(site, number) for number in range(1, tried + 1)}) == tried


def test_what_it_kept_off_before_it_still_keeps_off_until_then(site: Going) -> None:
    """It failed on one host, and a minute later its place on the next one is taken back."""
    site.offer("b", gpus=2, at=1)
    site.want(resume=True)
    site.clock(site.lease_at(1))
    fail(site, 1)
    failed_at, first = site.now, host_of(site, 1)
    site.begin(2)
    site.wait(minutes=1)
    end_for_silence(
        site.store,
        lease_id=site.lease_at(2).terms.lease_id,
        host_id=host_of(site, 2),
        heard_at=site.now,
        by=somebody(),
        now=site.now,
    )
    site.stop(2)

    link = site.bid_at(3).terms.continues
    assert link is not None
    assert link.keeps_off == (KeptOff(first, failed_at + RETRY_AFTER),)


def test_of_a_gang_the_host_that_broke_is_kept_off_and_no_other(site: Going) -> None:
    for word in "bc":
        site.offer(word, gpus=2, at=1)
    site.want(resume=True, gpus=4, placement="any-hosts")
    site.begin()
    broken, other = sorted(site.lease_at(1).hosts)
    for host_id in (broken, other):
        leases.lease_failed(
            site.store,
            lease_id=site.lease_at(1).terms.lease_id,
            host_id=host_id,
            detail="",
            by=somebody(),
            now=site.now,
        )
    site.settle()
    site.go()
    site.go()

    assert site.lease_at(2).starts_at == site.now
    assert other in site.lease_at(2).hosts and broken not in site.lease_at(2).hosts


def test_work_that_is_cut_in_its_first_minute_goes_on_at_once(site: Going) -> None:
    site.offer("b", gpus=2, at=1, windows=[(site.now, site.now + timedelta(days=2))])
    site.want(resume=True)
    site.begin()
    site.now += timedelta(seconds=20)
    end_for_silence(
        site.store,
        lease_id=site.lease_at(1).terms.lease_id,
        host_id=host_of(site, 1),
        heard_at=site.now,
        by=somebody(),
        now=site.now,
    )
    site.health("a", "silent")
    site.stop()

    assert site.bid_at(2).terms.earliest_start == site.now
    assert site.lease_at(2).starts_at == site.now


@pytest.mark.parametrize("left", [1, 10, 59, 61, 600])
def test_a_rest_that_is_too_short_to_be_leased_is_asked_for_all_the_same(
    site: Going, left: int
) -> None:
    """Its time is not had: and owners who lease for a quarter of an hour at least serve it, too."""
    site.offer("b", gpus=2, at=1, lease_min=LEASED_SHORTEST)
    site.want(resume=True, workload=SAVES)
    site.begin()
    ends = site.lease_at(1).ends_at
    site.now = ends - timedelta(seconds=left)

    fail(site, 1)

    following = site.bid_at(2).terms
    least = max(DURATION_MIN, timedelta(seconds=left))
    assert timedelta(seconds=following.duration_min_seconds or 0) == least
    assert timedelta(seconds=following.duration_seconds) == LEASED_SHORTEST
    assert host_of(site, 2) != host_of(site, 1)
    assert site.lease_at(2).starts_at == site.now


def test_a_rest_shorter_than_a_quarter_of_an_hour_is_had_where_less_time_is_left(
    site: Going,
) -> None:
    site.offer("b", gpus=2, at=1)
    site.want(resume=True, workload=SAVES, deadline=site.now + timedelta(hours=4, minutes=5))
    site.begin()
    site.now = site.lease_at(1).ends_at - 2 * A_MINUTE

    fail(site, 1)

    assert site.lease_at(2).terms.window.length <= timedelta(minutes=7)
    assert site.lease_at(2).ends_at <= site.bid_at(1).deadline


def test_a_lease_given_up_before_its_start_is_not_begun_before_its_bid_wanted(site: Going) -> None:
    site.offer("b", gpus=2, at=1)
    wanted = site.now + timedelta(hours=3)
    site.want(resume=True, earliest_start=wanted)
    end_for_silence(
        site.store,
        lease_id=site.lease_at(1).terms.lease_id,
        host_id=host_of(site, 1),
        heard_at=site.now,
        by=somebody(),
        now=site.now,
    )
    site.settle()
    site.go()
    site.go()

    assert site.lease_at(1).over
    assert site.lease_at(2).starts_at == wanted


def test_a_grant_on_a_host_that_is_kept_off_is_not_taken_up(site: Going) -> None:
    """Whoever decides on it later checks it anew, and by itself."""
    site.offer("b", gpus=2, at=1)
    site.want(resume=True)
    site.clock(site.lease_at(1))
    fail(site, 1)
    bid, granted = site.bid_at(2), site.grants()[site.bid_at(2).terms.bid_id]
    kept_off = KeptOff(host_of(site, 2), site.now + A_MINUTE)
    link = bid.wanted.continues
    assert link is not None
    wanted = replace(bid.wanted, continues=replace(link, keeps_off=(kept_off,)))
    waiting = replace(bid, state="open", lease_id=None)

    assert fill(waiting, granted, now=site.now)
    with pytest.raises(GrantUnfit):
        fill(replace(waiting, wanted=wanted), granted, now=site.now)
