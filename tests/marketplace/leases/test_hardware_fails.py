"""Work under which a GPU or a host fails ends as the host's fault, is paid for and goes on."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.ids import HostId
from ledger.domain.money import NANOS_PER_UNIT, Money
from marketplace.commands.losses import end_for_hardware
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import (
    KeptOff,
    LeaseClosed,
    LeaseEnding,
    LeaseHardwareFailed,
    Workload,
)
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.losses import lose_hardware, lose_host
from marketplace.domain.leases.reclaim import reclaim
from marketplace.domain.leases.renewals import RETRY_AFTER
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

FAILED_AT, TOLD_AT = NOON + 1.9 * ONE_HOUR, NOON + 2 * ONE_HOUR
SOON = timedelta(minutes=1)


def failed(lease: Lease, reason: int = close_reasons.GPU_FAILING, host: HostId = HOST_A) -> Lease:
    events = lose_hardware(
        lease,
        host_id=host,
        reason=reason,
        gpu_uuid="GPU-21-0",
        detail="XID 79",
        failed_at=FAILED_AT,
        now=TOLD_AT,
    )
    assert kinds(events) == [LeaseHardwareFailed, LeaseEnding]
    return after(lease, events)


def closed(lease: Lease) -> LeaseClosed:
    (event,) = lease.tick(now=TOLD_AT + SOON, start_grace=START_GRACE)
    assert isinstance(event, LeaseClosed)
    return event


@pytest.mark.parametrize("reason", sorted(close_reasons.HARDWARE))
def test_the_right_ends_when_the_hardware_failed_and_not_when_that_was_told(reason: int) -> None:
    over = closed(failed(active(), reason))

    assert (over.reason, over.failed, over.of_host) == (reason, True, HOST_A)
    assert (over.at, over.ended_at) == (TOLD_AT + SOON, FAILED_AT)


def test_the_work_still_has_its_grace_however_long_ago_that_was() -> None:
    """A host that was cut off tells of a fault an hour later: its work may still save itself."""
    lease = failed(active())
    assert lease.tick(now=TOLD_AT + timedelta(seconds=20), start_grace=START_GRACE) == []


def test_nothing_is_charged_from_before_the_lease_nor_from_the_future() -> None:
    for said, counts in ((NOON, NOON + ONE_HOUR), (NOON + 9 * ONE_HOUR, TOLD_AT)):
        events = lose_hardware(
            active(),
            host_id=HOST_A,
            reason=close_reasons.GPU_LOST,
            detail="",
            failed_at=said,
            now=TOLD_AT,
        )
        assert after(active(), events).right_ends_at == counts


def test_its_owner_pays_as_for_a_reclaim_without_notice() -> None:
    """Three of four hours are lost, of two GPUs at 2.00, and a tenth is agreed."""
    over = closed(failed(active()))
    paid = Money(round(1.2 * NANOS_PER_UNIT))
    assert (over.compensation, over.compensation_from, over.compensations) == (paid, ADA, ())


def test_of_a_gang_the_owner_of_the_failed_host_pays_alone() -> None:
    lease = active(share(HOST_A, ADA), share(HOST_B, BOB, gpus=4))
    over = closed(failed(lease, host=HOST_B))
    assert (over.compensation_from, over.of_host) == (BOB, HOST_B)
    assert over.compensation == Money(round(2.4 * NANOS_PER_UNIT))


def test_it_is_told_once_and_only_while_the_host_has_something_to_run() -> None:
    waiting, running = folded(scheduled()), active()
    for lease, host_id in ((waiting, HOST_A), (failed(running), HOST_A), (running, HOST_B)):
        assert not lose_hardware(
            lease,
            host_id=host_id,
            reason=close_reasons.GPU_LOST,
            detail="",
            failed_at=FAILED_AT,
            now=TOLD_AT,
        )


def test_what_was_saved_before_is_kept_and_the_rest_is_lost() -> None:
    terms = replace(scheduled(), workload=Workload("training", checkpoint_seconds=600))
    over = closed(failed(replace(active(), terms=terms)))
    assert (over.kept_seconds, over.lost_seconds) == (50 * 60, 4 * 60)


@given(
    kind=st.sampled_from(["silence", "hardware", "reclaim", "consumer", "none"]),
    happened=st.integers(0, 5 * 3_600),
    noticed=st.integers(0, 7_200),
    looked=st.lists(st.integers(1, 3_600), max_size=6),
)
def test_every_departure_ends_the_right_once_and_within_the_lease(
    kind: str, happened: int, noticed: int, looked: list[int]
) -> None:
    """So no second is billed by two leases: the next one begins when this one is over."""
    lease = active()
    at = NOON + ONE_HOUR + timedelta(seconds=happened)
    now = at + timedelta(seconds=noticed)
    if now < lease.due_at:
        match kind:
            case "silence":
                lease = after(lease, lose_host(lease, host_id=HOST_A, heard_at=at, now=now))
            case "hardware":
                why = close_reasons.GPU_LOST
                lost = lose_hardware(
                    lease, host_id=HOST_A, reason=why, detail="", failed_at=at, now=now
                )
                lease = after(lease, lost)
            case "reclaim" if now + timedelta(minutes=15) < lease.ends_at:
                lease = after(lease, reclaim(lease, owner_id=ADA, now=now))
            case "consumer":
                lease = after(lease, lease.close(now=now))
    ends = [lease.right_ends_at]
    for step in [*looked, 5 * 3_600, 60]:
        now += timedelta(seconds=step)
        lease = after(lease, lease.tick(now=now, start_grace=START_GRACE))
        ends.append(lease.right_ends_at)
    assert lease.over
    assert ends == sorted(ends, reverse=True) and ends[-1] == ends[0]
    assert lease.starts_at <= lease.right_ends_at <= lease.ends_at
    if kind == "hardware" and lease.ending_reason == close_reasons.GPU_LOST:
        assert lease.right_ends_at == at


@pytest.mark.parametrize("reason", [close_reasons.GPU_FAILING, close_reasons.HOST_RESTARTED])
def test_resumed_work_keeps_off_only_what_is_still_on_the_market(site: Going, reason: int) -> None:
    site.offer("b", gpus=2, at=1)
    site.want(resume=True, workload=Workload("other", checkpoint_seconds=1))
    site.begin()
    lease = site.lease_at(1)
    (host_id,) = lease.hosts
    site.wait(minutes=30)
    end_for_hardware(
        site.store,
        lease_id=lease.terms.lease_id,
        host_id=host_id,
        reason=reason,
        detail="",
        failed_at=site.now,
        by=somebody(),
        now=site.now,
    )
    site.stop()

    follower = site.bid_at(2).terms
    assert follower.earliest_start == site.now and follower.continues is not None
    kept_off = [KeptOff(host_id, site.now + RETRY_AFTER)]
    restarted = reason == close_reasons.HOST_RESTARTED
    assert [*follower.continues.keeps_off] == (kept_off if restarted else [])
    assert site.bid_at(2).deadline == site.bid_at(1).deadline


def test_of_a_gang_a_failure_counts_against_its_own_host_alone() -> None:
    market = Market()
    market.offer("a")
    market.offer("c")
    market.bid("b", gpus=2, gang=True, at=3)
    market.run()
    host_id = HostId(named("host c"))
    market.close("b", reason=close_reasons.GPU_LOST, of_host=host_id)
    market.run()

    with book_of(market.store, MARKET) as book:
        counted = {word: book.leases.records[HostId(named(f"host {word}"))].leases for word in "ac"}
    assert counted == {"a": 0, "c": 1}
