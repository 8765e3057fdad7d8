"""Work that is paused goes on later: one piece of work, several leases, and money for each."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from ledger.domain.ids import BidId
from ledger.domain.money import NANOS_PER_UNIT, Money
from ledger.eventstore.port import load
from marketplace.commands import bids, leases
from marketplace.domain.bids.bid import place
from marketplace.domain.bids.pausing import PausableSavesNothing
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import LeaseInterrupted, ReturnDue, Workload
from marketplace.domain.facts.values import VolumeMount
from marketplace.domain.leases.lease import Lease
from tests.conftest import NOON
from tests.marketplace.support.going import Going
from tests.marketplace.support.going import site as site
from tests.marketplace.support.market import named, somebody
from tests.marketplace.support.site import HOUR, TERMS

MINUTE = timedelta(minutes=1)
SAVES = Workload("training", command=("x",), checkpoint_seconds=600)


def long_work(site: Going, **how: object) -> None:
    """Let work begin that may be paused: eight hours, within two days."""
    said: dict[str, object] = {
        "pausable": True,
        "workload": SAVES,
        "duration_seconds": 8 * 3_600,
        "deadline": NOON + 48 * HOUR,
    }
    site.want(**said | how)
    site.begin()


def fresh_work(site: Going, hours: int = 2, number: int = 1) -> Lease | None:
    """Let a bid come that has to begin soon, and the market do what it does."""
    length, word = hours * HOUR, f"fresh {number}"
    terms = replace(
        TERMS,
        bid_id=BidId(named(f"bid {word}")),
        duration_seconds=length // timedelta(seconds=1),
        deadline=site.now + length + 10 * MINUTE,
    )
    bids.place_bid(site.store, terms=terms, by=somebody(), now=site.now)
    site.go()
    lease_id = site.lease_id(word) if site.grant(word) else None
    return None if lease_id is None else load(site.store, Lease, lease_id)


def saved(site: Going, number: int = 1) -> None:
    """Let the work say that it is safe up to now."""
    lease = site.lease_at(number)
    leases.save_work(
        site.store,
        lease_id=lease.terms.lease_id,
        host_id=next(iter(lease.hosts)),
        safe_at=site.now,
        by=somebody(),
        now=site.now,
    )


def leave(site: Going, number: int = 1) -> None:
    """Let the bid that came end its lease."""
    lease_id = site.lease_id(f"fresh {number}")
    leases.advance_lease(
        site.store, lease_id=lease_id, start_grace=HOUR, by=somebody(), now=site.now
    )
    leases.close_lease(site.store, lease_id=lease_id, by=somebody(), now=site.now)
    lease = load(site.store, Lease, lease_id)
    assert lease is not None
    for host_id in lease.hosts:
        leases.lease_stopped(
            site.store, lease_id=lease_id, host_id=host_id, exit_code=None,
            by=somebody(), now=site.now,
        )  # fmt: skip
    site.go()


def test_work_is_paused_and_goes_on_for_the_rest_of_its_time(site: Going) -> None:
    long_work(site)
    site.wait(hours=2)

    fresh = fresh_work(site)

    assert fresh is not None
    told = site.lease_at(1)
    assert told.state == "reclaiming"
    assert told.due_at == fresh.starts_at == site.now + 5 * MINUTE
    site.wait(minutes=4)
    saved(site)
    site.wait(minutes=1)
    site.stop()
    first, rest = site.lease_at(1), site.bid_at(2)
    assert first.ending_reason == close_reasons.PAUSED
    assert first.state == "closed"
    assert rest.state == "open"
    assert rest.terms.pausable
    assert rest.terms.resume
    link = rest.terms.continues
    assert link is not None
    assert (link.done_seconds, link.pauses, link.paused) == (124 * 60, 1, True)
    assert rest.terms.duration_seconds == (8 * 60 - 124) * 60

    site.wait(hours=1)
    leave(site)

    again = site.lease_at(2)
    assert again.starts_at == site.now
    assert again.ends_at - again.starts_at == 8 * HOUR - 124 * MINUTE


def test_what_is_paused_holds_only_what_is_still_to_run_and_nobody_compensates(
    site: Going,
) -> None:
    long_work(site)
    assert site.held() == Money(8 * 2 * NANOS_PER_UNIT), "the price is one an hour"
    site.wait(hours=2)
    fresh_work(site)
    site.wait(minutes=5)
    saved(site)
    site.stop()

    told = [e for r in site.events() if isinstance(e := r.event, LeaseInterrupted)]
    assert [(each.pausing, each.compensations) for each in told] == [(True, ())]
    assert site.lease_at(1).terms.price.nanos_per_gpu_hour == NANOS_PER_UNIT
    rest = site.bid_at(2)
    assert rest.hold == rest.limit.charge(2 * (8 * 60 - 125) * 60_000)
    assert site.held() == rest.hold + Money(2 * 2 * NANOS_PER_UNIT)


def test_it_counts_how_often_it_was_paused_and_what_is_done(site: Going) -> None:
    long_work(site)
    for number in (1, 2):
        site.wait(minutes=90)
        fresh_work(site, hours=1, number=number)
        site.wait(minutes=5)
        saved(site, number)
        site.stop(number)
        site.wait(minutes=30)
        leave(site, number)
        site.begin(number + 1)

    link = site.bid_at(3).terms.continues
    assert link is not None
    assert (link.pauses, link.done_seconds) == (2, 190 * 60)


def test_a_due_rest_is_said_once_by_the_engine(site: Going) -> None:
    long_work(site, deadline=NOON + 14 * HOUR)
    site.wait(hours=2)
    fresh_work(site, hours=3)
    site.wait(minutes=5)
    saved(site)
    site.stop()
    due_at = NOON + 14 * HOUR - (8 * HOUR - 125 * MINUTE) - 30 * MINUTE
    site.now = due_at
    for _ in range(3):
        site.go()

    said = [e for r in site.events() if isinstance(e := r.event, ReturnDue)]
    assert [(each.bid_id, each.at) for each in said] == [(site.bid_at(2).terms.bid_id, due_at)]
    again = site.lease_at(2)
    assert again.starts_at >= site.now, "once it is due it takes what begins later, too"
    assert again.ends_at <= site.bid_at(1).deadline


def test_work_that_says_nothing_of_saving_itself_may_not_be_paused(site: Going) -> None:
    with pytest.raises(PausableSavesNothing):
        site.want(pausable=True, workload=Workload("training", command=("x",)))

    writes = Workload("training", command=("x",), volumes=(VolumeMount("w", "w", True),))
    placed = place(replace(TERMS, pausable=True, workload=writes), now=site.now)
    assert placed.resume, "what is paused goes on"


def test_an_owner_who_takes_it_back_meanwhile_is_first(site: Going) -> None:
    site.offer("b", gpus=2, at=1)
    long_work(site)
    site.wait(hours=2)
    site.reclaim_at()
    site.wait(minutes=5)
    saved(site)
    site.stop()

    assert site.lease_at(1).ending_reason == close_reasons.RECLAIMED
    link = site.bid_at(2).terms.continues
    assert link is not None
    assert (link.paused, link.pauses) == (False, 0)
    assert site.lease_at(2).starts_at == site.now


def test_its_consumer_who_ends_it_is_not_asked_to_go_on(site: Going) -> None:
    long_work(site)
    site.wait(hours=2)
    fresh_work(site)
    leases.close_lease(
        site.store, lease_id=site.lease_at(1).terms.lease_id, by=somebody(), now=site.now
    )
    site.stop()

    assert site.at(2) is None
    assert site.bid_at(1).chain_ended == "consumer"
