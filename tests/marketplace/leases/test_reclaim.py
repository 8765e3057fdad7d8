"""What a reclaim costs: told before, the same in the end, less with more notice."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from ledger.domain.money import Money
from listings.domain.events import ReclaimStep
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import LeaseClosed, LeaseEvent, ReclaimRequested, Share
from marketplace.domain.leases.actions import ReclaimUnderWay
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.reclaim import NoticeTooShort, quote, reclaim
from marketplace.domain.leases.reclaim_schedule import fee_ppm
from tests.conftest import NOON
from tests.marketplace.support.leasing import (
    ADA,
    BOB,
    HOST_A,
    HOST_B,
    ONE_HOUR,
    START_GRACE,
    STOP_GRACE,
    active,
    after,
    folded,
    scheduled,
    share,
)

STEPS = (ReclaimStep(3_600, 50_000), ReclaimStep(2 * 3_600, 0))
"""On top of 15 minutes at a tenth: an hour at a twentieth, two hours for nothing."""


def stepped() -> Share:
    return share(HOST_A, ADA, steps=STEPS)


def closed_by(lease: Lease, now: datetime) -> LeaseClosed:
    """Let the clock end a lease whose hosts say nothing."""
    events: list[LeaseEvent] = []
    for moment in (now, now + STOP_GRACE):
        more = lease.tick(now=moment, start_grace=START_GRACE)
        lease = after(lease, more)
        events += more
    closed = events[-1]
    assert isinstance(closed, LeaseClosed)
    return closed


@pytest.mark.parametrize(
    ("notice_seconds", "ppm"),
    [
        (900, 100_000),
        (3_599, 100_000),
        (3_600, 50_000),
        (7_199, 50_000),
        (7_200, 0),
        (86_400, 0),
    ],
)
def test_each_step_begins_at_exactly_its_notice(notice_seconds: int, ppm: int) -> None:
    assert fee_ppm(stepped(), timedelta(seconds=notice_seconds)) == ppm


def test_an_offer_without_steps_has_one_fee_for_any_notice() -> None:
    for notice in (timedelta(minutes=15), timedelta(days=2)):
        assert fee_ppm(share(HOST_A, ADA), notice) == 100_000


def test_a_quote_prices_every_notice_that_is_cheaper() -> None:
    lease = active(stepped())
    found = quote(lease, owner_id=ADA, now=NOON + ONE_HOUR)

    # Two GPUs at 2.00 for four hours; lost are 3 h 45 min, 3 h and 2 h of them.
    assert [(each.notice_seconds, each.compensation) for each in found] == [
        (900, Money(1_500_000_000)),
        (3_600, Money(600_000_000)),
        (7_200, Money(0)),
    ]
    assert [each.stop_at - NOON - ONE_HOUR for each in found] == [
        timedelta(minutes=15),
        ONE_HOUR,
        2 * ONE_HOUR,
    ]


def test_a_quote_leaves_out_notices_that_outlast_the_lease() -> None:
    lease = active(stepped())
    late = lease.ends_at - timedelta(minutes=30)
    assert [each.notice_seconds for each in quote(lease, owner_id=ADA, now=late)] == [900]
    assert quote(lease, owner_id=ADA, now=lease.ends_at - timedelta(minutes=15)) == ()


def test_time_before_the_start_counts_as_notice() -> None:
    """A lease of next week that is reclaimed today was told a week ahead."""
    lease = folded(scheduled(stepped()))
    [only] = quote(lease, owner_id=ADA, now=NOON - ONE_HOUR)
    assert (only.notice_seconds, only.compensation) == (900, Money(0))
    first, *_ = quote(lease, owner_id=ADA, now=NOON)
    # An hour to the start: a twentieth of all of it.
    assert first.compensation == Money(800_000_000)


def test_what_was_quoted_is_what_is_paid_however_late_the_clock_looked() -> None:
    for late in (timedelta(0), timedelta(seconds=29), timedelta(days=2)):
        lease = active(stepped())
        asked = NOON + ONE_HOUR + timedelta(milliseconds=1)
        told = quote(lease, owner_id=ADA, now=asked)[1]
        events = reclaim(lease, owner_id=ADA, now=asked, notice=ONE_HOUR)
        [requested] = events
        assert isinstance(requested, ReclaimRequested)
        assert (requested.stop_at, requested.compensation) == (told.stop_at, told.compensation)

        closed = closed_by(after(lease, events), told.stop_at + late)

        assert closed.reason == close_reasons.RECLAIMED
        assert (closed.compensation, closed.compensation_from) == (told.compensation, ADA)


def test_money_is_rounded_down_once_for_the_value_and_once_for_the_fee() -> None:
    lease = active(share(HOST_A, ADA, gpus=1, steps=(ReclaimStep(3_600, 33_333),)))
    asked = NOON + ONE_HOUR
    stop_at = lease.ends_at - timedelta(milliseconds=7)
    paid = lease.compensation(ADA, asked_at=asked, stop_at=stop_at)
    # 7 ms at 2.00 an hour: 3888.89 nano-units, down to 3888; of that 129.59, down to 129.
    assert paid == Money(129)


def test_a_reclaim_gives_no_less_notice_than_was_agreed() -> None:
    with pytest.raises(NoticeTooShort):
        reclaim(active(), owner_id=ADA, now=NOON + ONE_HOUR, notice=timedelta(seconds=899))


def test_a_consumer_who_leaves_because_of_a_reclaim_is_still_paid() -> None:
    lease = active(stepped())
    asked = NOON + ONE_HOUR
    lease = after(lease, reclaim(lease, owner_id=ADA, now=asked))
    lease = after(lease, lease.close(now=asked))

    closed = closed_by(lease, asked)

    assert closed.reason == close_reasons.CLOSED_BY_CONSUMER
    assert (closed.compensation, closed.compensation_from) == (Money(1_500_000_000), ADA)


def test_work_that_is_done_before_the_deadline_has_lost_nothing() -> None:
    lease = active(stepped())
    lease = after(lease, reclaim(lease, owner_id=ADA, now=NOON + ONE_HOUR))
    *_, closed = lease.work_stopped(
        host_id=HOST_A, exit_code=0, failed=False, detail="", now=NOON + ONE_HOUR
    )
    assert isinstance(closed, LeaseClosed)
    assert (closed.reason, closed.compensation) == (close_reasons.WORK_DONE, None)


def test_a_host_that_drops_the_work_after_its_reclaim_does_not_save_the_fee() -> None:
    lease = active(stepped())
    lease = after(lease, reclaim(lease, owner_id=ADA, now=NOON + ONE_HOUR))
    *_, closed = lease.work_stopped(
        host_id=HOST_A, exit_code=None, failed=True, detail="gone", now=NOON + ONE_HOUR
    )
    assert isinstance(closed, LeaseClosed)
    assert (closed.reason, closed.compensation) == (
        close_reasons.WORK_LOST,
        Money(1_500_000_000),
    )


def test_a_reclaim_can_be_brought_forward_and_never_put_off() -> None:
    lease = active(stepped())
    asked = NOON + ONE_HOUR
    lease = after(lease, reclaim(lease, owner_id=ADA, now=asked, notice=2 * ONE_HOUR))
    with pytest.raises(ReclaimUnderWay):
        reclaim(lease, owner_id=ADA, now=asked, notice=2 * ONE_HOUR)

    lease = after(lease, reclaim(lease, owner_id=ADA, now=asked))

    assert lease.stop_at == asked + timedelta(minutes=15)
    closed = closed_by(lease, lease.due_at)
    assert (closed.compensation, closed.compensations) == (Money(1_500_000_000), ())


def test_nobody_waits_for_another_owners_longer_notice_and_both_pay_what_they_said() -> None:
    lease = active(stepped(), share(HOST_B, BOB, gpus=1))
    asked = NOON + ONE_HOUR
    lease = after(lease, reclaim(lease, owner_id=ADA, now=asked, notice=ONE_HOUR))
    lease = after(lease, reclaim(lease, owner_id=BOB, now=asked))
    assert lease.stop_at == asked + timedelta(minutes=15)

    closed = closed_by(lease, lease.due_at)

    # Bob: a tenth of 3 h 45 min of one GPU; Ada: a twentieth of 3 h of two.
    assert (closed.compensation_from, closed.compensation) == (BOB, Money(750_000_000))
    assert [(each.owner_id, each.money) for each in closed.compensations] == [
        (ADA, Money(600_000_000))
    ]


def test_an_extension_granted_after_a_reclaim_lapses() -> None:
    """The engine had granted it before it read of the reclaim."""
    lease = active(stepped())
    lease = after(lease, reclaim(lease, owner_id=ADA, now=NOON + ONE_HOUR))
    assert lease.extend(ends_at=lease.ends_at + ONE_HOUR, now=NOON + ONE_HOUR) == []


def test_an_old_reclaim_without_a_figure_is_paid_by_the_same_terms() -> None:
    lease = active()
    asked = NOON + 2 * ONE_HOUR
    old = ReclaimRequested(
        lease_id=lease.terms.lease_id,
        owner_id=ADA,
        stop_at=asked + timedelta(minutes=15),
        at=asked,
    )
    closed = closed_by(after(lease, [old]), old.stop_at)
    assert closed.compensation == Money(1_100_000_000)
