"""A host that is not heard for too long ends its leases: as its fault, paid for, and resumed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from ledger.domain.ids import HostId
from ledger.domain.money import NANOS_PER_UNIT, Money
from marketplace.commands.losses import end_for_silence
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import (
    GpuRequest,
    LeaseClosed,
    LeaseEnding,
    LeaseHostLost,
    Workload,
)
from marketplace.domain.leases.losses import lose_host
from marketplace.domain.leases.reclaim import reclaim
from marketplace.domain.orderbook.host_reliability import PPM
from marketplace.queries.books import book_of
from tests.conftest import NOON
from tests.marketplace.support.going import Going
from tests.marketplace.support.going import site as site
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
from tests.marketplace.support.market import MARKET, Market, named, somebody

HEARD_AT, GONE_AT = NOON + 1.5 * ONE_HOUR, NOON + 2 * ONE_HOUR


def units(amount: float) -> Money:
    return Money(round(amount * NANOS_PER_UNIT))


def test_the_lease_ends_with_a_reason_of_its_own_and_closes_without_the_host() -> None:
    lease = active()

    events = lose_host(lease, host_id=HOST_A, heard_at=HEARD_AT, now=GONE_AT)

    assert kinds(events) == [LeaseHostLost, LeaseEnding]
    lease = after(lease, events)
    (closed,) = lease.tick(now=GONE_AT + timedelta(minutes=1), start_grace=START_GRACE)
    assert isinstance(closed, LeaseClosed)
    assert (closed.reason, closed.failed) == (close_reasons.HOST_SILENT, True)
    assert closed.ended_at == GONE_AT


def test_its_owner_pays_as_for_a_reclaim_without_notice() -> None:
    """Three of four hours are lost, of two GPUs at 2.00, and a tenth is agreed."""
    lease = active()
    lease = after(lease, lose_host(lease, host_id=HOST_A, heard_at=HEARD_AT, now=GONE_AT))

    (closed,) = lease.tick(now=GONE_AT + timedelta(minutes=1), start_grace=START_GRACE)

    assert isinstance(closed, LeaseClosed)
    assert (closed.compensation, closed.compensation_from) == (units(1.2), ADA)
    assert closed.compensations == ()


def test_of_a_gang_only_the_owner_of_the_lost_host_pays_and_for_what_was_there() -> None:
    lease = active(share(HOST_A, ADA), share(HOST_B, BOB, gpus=4))
    lease = after(lease, lose_host(lease, host_id=HOST_B, heard_at=HEARD_AT, now=GONE_AT))
    events = lease.work_stopped(
        host_id=HOST_A, exit_code=None, failed=False, detail="", now=GONE_AT
    )
    lease = after(lease, events)

    (closed,) = lease.tick(now=GONE_AT + timedelta(minutes=1), start_grace=START_GRACE)

    assert isinstance(closed, LeaseClosed)
    assert (closed.compensation, closed.compensation_from) == (units(2.4), BOB)
    assert closed.reason == close_reasons.HOST_SILENT


def test_a_reclaim_that_was_due_is_paid_too_and_its_rest_not_twice() -> None:
    """Taken back for the last two hours, and silent for one before them."""
    lease = active()
    lease = after(lease, reclaim(lease, owner_id=ADA, now=GONE_AT, notice=timedelta(hours=1)))
    lease = after(lease, lose_host(lease, host_id=HOST_A, heard_at=HEARD_AT, now=GONE_AT))

    (closed,) = lease.tick(now=GONE_AT + timedelta(minutes=1), start_grace=START_GRACE)

    assert isinstance(closed, LeaseClosed)
    assert closed.compensation == units(0.8 + 0.4)
    assert closed.compensations == ()


def test_it_is_told_once_and_only_while_the_host_has_something_to_run() -> None:
    waiting, running = folded(scheduled()), active()
    ended = after(running, lose_host(running, host_id=HOST_A, heard_at=HEARD_AT, now=GONE_AT))
    for lease, host_id in ((waiting, HOST_B), (ended, HOST_A), (running, HOST_B)):
        assert lose_host(lease, host_id=host_id, heard_at=HEARD_AT, now=GONE_AT) == []
    over = NOON + 6 * ONE_HOUR
    assert lose_host(running, host_id=HOST_A, heard_at=HEARD_AT, now=over) == []


def test_a_lease_that_has_not_begun_is_over_at_once_and_paid_by_the_notice_that_is_left() -> None:
    """As if its owner had reclaimed it when the silence had lasted: it is to begin in an hour."""
    waiting, heard_at, now = folded(scheduled()), NOON - ONE_HOUR, NOON
    told = waiting.compensation(ADA, asked_at=now, stop_at=waiting.starts_at)

    events = lose_host(waiting, host_id=HOST_A, heard_at=heard_at, now=now)

    assert kinds(events) == [LeaseHostLost, LeaseEnding, LeaseClosed]
    closed = events[-1]
    assert isinstance(closed, LeaseClosed)
    assert (closed.reason, closed.of_host) == (close_reasons.HOST_SILENT, HOST_A)
    assert (closed.compensation, closed.compensation_from) == (told, ADA)
    assert (closed.kept_seconds, closed.lost_seconds) == (0, 0)
    lease = after(waiting, events)
    assert lease.over and lose_host(lease, host_id=HOST_A, heard_at=heard_at, now=now) == []


def test_what_the_host_did_after_it_was_heard_last_counts_as_lost() -> None:
    """It saved itself every second, by its own word; nobody can fetch what it saved since."""
    terms = replace(scheduled(), workload=Workload("training", checkpoint_seconds=1))
    running = replace(active(), terms=terms)
    lease = after(running, lose_host(running, host_id=HOST_A, heard_at=HEARD_AT, now=GONE_AT))
    assert lease.left(GONE_AT).kept == HEARD_AT - (NOON + ONE_HOUR)


def test_what_comes_from_the_host_after_the_end_changes_nothing() -> None:
    lease = active()
    lease = after(lease, lose_host(lease, host_id=HOST_A, heard_at=HEARD_AT, now=GONE_AT))
    later = GONE_AT + timedelta(minutes=1)
    lease = after(lease, lease.tick(now=later, start_grace=START_GRACE))
    assert lease.over
    assert lease.work_stopped(host_id=HOST_A, exit_code=0, failed=False, detail="", now=later) == []


def test_nobody_waits_for_a_word_of_a_host_that_was_silent_for_too_long() -> None:
    """What follows is placed when the lease is over."""
    lease = active()
    lease = after(lease, lose_host(lease, host_id=HOST_A, heard_at=HEARD_AT, now=GONE_AT))
    assert after(lease, lease.tick(now=GONE_AT, start_grace=START_GRACE)).over


def test_the_other_hosts_of_a_gang_are_waited_for() -> None:
    gang = active(share(HOST_A, ADA), share(HOST_B, BOB))
    gang = after(gang, lose_host(gang, host_id=HOST_A, heard_at=HEARD_AT, now=GONE_AT))
    assert not after(gang, gang.tick(now=GONE_AT, start_grace=START_GRACE)).over
    told = gang.work_stopped(host_id=HOST_B, exit_code=0, failed=False, detail="", now=GONE_AT)
    gang = after(gang, told)
    assert after(gang, gang.tick(now=GONE_AT, start_grace=START_GRACE)).over


def test_resumed_work_goes_on_elsewhere(site: Going) -> None:
    site.offer("b", gpus=2, at=1)
    site.want(resume=True, workload=Workload("other", checkpoint_seconds=1))
    site.begin()
    first = site.lease_at(1)
    (host_id,) = first.hosts
    heard_at = site.now = site.now + timedelta(hours=1)
    site.wait(minutes=30)
    word = "a" if host_id == HostId(named("host a")) else "b"
    site.health(word, "silent")
    end_for_silence(
        site.store,
        lease_id=first.terms.lease_id,
        host_id=host_id,
        heard_at=heard_at,
        by=somebody(),
        now=site.now,
    )
    site.wait(minutes=1)
    site.clock(site.lease_at(1))
    site.settle()
    site.go()
    site.go()

    assert site.lease_at(1).ending_reason == close_reasons.HOST_SILENT
    second = site.bid_at(2)
    assert second.terms.duration_seconds == 3 * 3_600
    assert site.lease_at(2).hosts.isdisjoint({host_id})


@pytest.mark.parametrize(
    ("reason", "silent", "ppm"),
    [
        (close_reasons.HOST_SILENT, True, 800_000),
        (close_reasons.WINDOW_OVER, True, 800_000),
        (close_reasons.WINDOW_OVER, False, PPM),
        (close_reasons.WORK_DONE, True, PPM),
        (close_reasons.HOST_SILENT, False, 800_000),
    ],
)
def test_an_end_without_the_host_counts_against_it(reason: int, silent: bool, ppm: int) -> None:
    market = Market()
    market.offer("a")
    request = GpuRequest(hosts=(HostId(named("host a")),))
    for number in range(5):
        market.bid(f"b{number}", at=3, hours=0.5, request=request)
        market.run()
        if number == 4 and silent:
            market.health("a", "silent")
        market.close(f"b{number}", reason=reason if number == 4 else close_reasons.WORK_DONE)
        market.run()

    with book_of(market.store, MARKET) as book:
        assert book.leases.records[HostId(named("host a"))].ppm == ppm


def test_of_a_gang_silence_counts_against_the_silent_host_alone() -> None:
    market = Market()
    market.offer("a")
    market.offer("c")
    market.bid("b", gpus=2, gang=True, at=3)
    market.run()
    market.health("c", "silent")
    market.close("b", reason=close_reasons.HOST_SILENT)
    market.run()

    with book_of(market.store, MARKET) as book:
        counted = {word: book.leases.records[HostId(named(f"host {word}"))].leases for word in "ac"}
    assert counted == {"a": 0, "c": 1}
