"""Time that others are given to act in runs from when they could act, and in no outage of ours."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from ledger.domain.money import NANOS_PER_UNIT, Money
from ledger.domain.span import Window
from ledger.domain.uptime import ALWAYS_UP, Uptime
from ledger.eventstore.port import load
from marketplace.commands import bids
from marketplace.domain.bids.bid import Bid, BidTerms
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import LeaseClosed, LeaseEnding, LeaseEvent, LeaseStarting
from marketplace.domain.leases.lease import NONE_TOLD, Contacts, Heard, Lease
from marketplace.domain.leases.reclaim import reclaim
from marketplace.domain.leases.renewals import Before, follow
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
from tests.marketplace.support.market import OWNER, somebody
from tests.marketplace.support.site import HOUR, TERMS, Site

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
MILLI = timedelta(milliseconds=1)
START = NOON + ONE_HOUR


def ticked(
    lease: Lease, *moments: datetime, uptime: Uptime = ALWAYS_UP, heard: Contacts = NONE_TOLD
) -> list[LeaseEvent]:
    """Return what the clock brings about where it looks at these moments only."""
    found: list[LeaseEvent] = []
    for moment in moments:
        events = lease.tick(now=moment, start_grace=START_GRACE, uptime=uptime, heard=heard)
        lease = after(lease, events)
        found += events
    return found


def closed(events: list[LeaseEvent]) -> LeaseClosed:
    last = events[-1]
    assert isinstance(last, LeaseClosed)
    return last


@pytest.mark.parametrize("minutes", [5, 11, 15, 200])
def test_nobody_looked_from_before_the_start_on(minutes: int) -> None:
    site = Site()
    site.offer("a", gpus=2, at=1)
    terms = replace(TERMS, earliest_start=NOON + HOUR, deadline=NOON + 6 * HOUR)
    bids.place_bid(site.store, terms=terms, by=somebody(), now=site.now)
    site.go()
    assert site.lease.state == "scheduled"
    site.now = site.lease.starts_at + timedelta(minutes=minutes)
    site.tick()  # the first look after the outage: no agent was asked to start before it
    assert (site.lease.state, site.lease.ending_reason) == ("starting", None)


def test_the_start_grace_runs_from_when_the_host_was_asked() -> None:
    lease, asked = folded(scheduled()), START + 25 * MINUTE
    lease = after(lease, ticked(lease, asked))

    assert ticked(lease, asked + START_GRACE - SECOND) == []
    assert closed(ticked(lease, asked + START_GRACE)).reason == close_reasons.NEVER_STARTED


def test_an_outage_after_the_host_was_asked_is_not_the_hosts_time() -> None:
    lease = folded(scheduled())
    lease = after(lease, ticked(lease, START))
    away = Uptime((Window(START + MINUTE, START + 16 * MINUTE),))

    assert ticked(lease, START + 24 * MINUTE, uptime=away) == []
    assert closed(ticked(lease, START + 25 * MINUTE, uptime=away)).failed


@pytest.mark.parametrize("cut", [11 * MINUTE, 15 * MINUTE, 45 * MINUTE])
def test_while_the_hosts_own_line_is_cut_it_could_not_have_said_that_it_started(
    cut: timedelta,
) -> None:
    lease = folded(scheduled())
    lease = after(lease, ticked(lease, START))
    silent = {HOST_A: Heard(START - ONE_HOUR, START + SECOND)}
    back = {HOST_A: Heard(START + cut, START + cut + START_GRACE)}

    assert ticked(lease, START + cut, heard=silent) == []
    assert ticked(lease, START + cut + START_GRACE - SECOND, heard=back) == []
    assert closed(ticked(lease, START + cut + START_GRACE, heard=back)).failed


def test_each_host_of_a_gang_is_judged_by_its_own_line() -> None:
    lease = folded(scheduled(share(HOST_A, ADA), share(HOST_B, BOB)))
    lease = after(lease, ticked(lease, START))
    heard = {HOST_A: Heard(START - ONE_HOUR, START)}
    assert ticked(lease, START + START_GRACE, heard=heard) != []
    lease = after(lease, lease.work_started(host_id=HOST_B, now=START))
    assert ticked(lease, START + START_GRACE, heard=heard) == []


def test_what_is_known_of_our_being_up_ends_with_the_last_sign_of_it() -> None:
    """The clock looks before the market has noted that it was away."""
    lease = folded(scheduled())
    lease = after(lease, ticked(lease, START))
    assert ticked(lease, START + 3 * ONE_HOUR, uptime=Uptime((), START + 9 * MINUTE)) == []


@pytest.mark.parametrize("late", [SECOND, MINUTE, 2 * ONE_HOUR, timedelta(days=2)])
def test_a_lease_whose_whole_time_went_by_unseen_is_no_hosts_fault(late: timedelta) -> None:
    lease = folded(scheduled())
    events = ticked(lease, lease.ends_at + late)

    over = closed(events)
    assert kinds(events) == [LeaseEnding, LeaseClosed]
    assert (over.reason, over.failed) == (close_reasons.MARKET_AWAY, False)


def test_a_host_that_was_asked_just_before_the_end_is_not_blamed() -> None:
    lease = folded(scheduled())
    events = ticked(lease, lease.ends_at - 5 * MINUTE, lease.ends_at)
    assert isinstance(events[0], LeaseStarting)
    assert closed(events).reason == close_reasons.MARKET_AWAY


def test_a_short_lease_that_its_host_did_not_start_is_the_hosts_fault() -> None:
    terms = scheduled()
    lease = folded(replace(terms, window=Window(START, START + 5 * MINUTE)))
    events = ticked(lease, START, lease.ends_at)
    assert closed(events).reason == close_reasons.NEVER_STARTED


def test_a_gang_that_never_came_up_whole_did_not_end_well() -> None:
    terms = scheduled(share(HOST_A, ADA), share(HOST_B, BOB))
    lease = folded(replace(terms, window=Window(START, START + 5 * MINUTE)))
    lease = after(lease, ticked(lease, START))
    lease = after(lease, lease.work_started(host_id=HOST_A, now=START))
    [ending] = ticked(lease, lease.ends_at)
    assert isinstance(ending, LeaseEnding)
    assert ending.reason == close_reasons.NEVER_STARTED


@pytest.mark.parametrize("late", [30 * SECOND, ONE_HOUR, timedelta(days=2)])
@pytest.mark.parametrize("reclaimed", [False, True])
def test_one_look_closes_a_lease_that_is_long_over(late: timedelta, reclaimed: bool) -> None:
    lease = active()
    if reclaimed:
        lease = after(lease, reclaim(lease, owner_id=ADA, now=START))
    events = ticked(lease, lease.due_at + late)

    assert kinds(events) == [LeaseEnding, LeaseClosed]
    assert closed(events).ended_at == lease.due_at
    assert closed(events).at == lease.due_at + late


def test_after_an_outage_hosts_have_their_time_to_tell_how_work_ended() -> None:
    lease = active()
    back = lease.ends_at + 15 * MINUTE
    away = Uptime((Window(lease.ends_at - 15 * MINUTE, back),))
    ending = ticked(lease, back, uptime=away)
    assert kinds(ending) == [LeaseEnding]
    lease = after(lease, ending)
    assert ticked(lease, back + 29 * SECOND, uptime=away) == []
    assert closed(ticked(lease, back + 30 * SECOND, uptime=away)).ended_at == lease.ends_at


def test_work_that_is_reported_late_ended_with_its_lease() -> None:
    """The agent was cut off; what it reports after the deadline is not the lease's time."""
    lease = active()
    events = lease.work_stopped(
        host_id=HOST_A, exit_code=0, failed=False, detail="", now=lease.ends_at + ONE_HOUR
    )
    assert closed(events).ended_at == lease.ends_at


def test_a_close_ends_the_right_when_the_consumer_asked_for_it() -> None:
    lease, asked = active(), START + 7 * MINUTE
    lease = after(lease, lease.close(now=asked))
    over = closed(ticked(lease, asked + 3 * ONE_HOUR))
    assert (over.ended_at, over.at) == (asked, asked + 3 * ONE_HOUR)


def test_what_was_worked_after_a_reclaims_deadline_is_not_lost_work() -> None:
    """It was not the lease's any more: only what lies before the deadline was done in vain."""
    lease = active()
    lease = after(lease, reclaim(lease, owner_id=ADA, now=START))
    over = closed(ticked(lease, lease.due_at + 2 * ONE_HOUR))
    assert over.lost_seconds == 15 * 60


@pytest.mark.parametrize("looked", [HOUR, 3 * HOUR])
def test_a_chain_counts_no_cost_after_the_right_ended(looked: timedelta) -> None:
    """Work of which an owner cut the rest: its budget pays for what ran, not for what was late."""
    site = Site()
    site.offer("a", gpus=2, at=1)
    budget = Money(20 * NANOS_PER_UNIT)
    terms = replace(TERMS, repeat_until=NOON + 20 * HOUR, budget=budget)
    bids.place_bid(site.store, terms=terms, by=somebody(), now=site.now)
    site.go()
    site.start()
    bid = load(site.store, Bid, TERMS.bid_id)
    assert bid is not None
    lease = after(site.lease, reclaim(site.lease, owner_id=OWNER, now=NOON))
    lease = after(lease, ticked(lease, lease.due_at + looked))
    assert lease.over

    asked = follow(Before(bid, bid.wanted, lease), now=lease.due_at + looked)

    assert isinstance(asked, BidTerms)
    ran = lease.due_at - lease.starts_at
    assert asked.budget == budget - lease.terms.price.charge(2 * (ran // MILLI))


def test_a_lease_that_the_market_missed_is_resumed() -> None:
    site = Site()
    site.offer("a", gpus=2, at=1)
    terms = replace(TERMS, earliest_start=NOON + HOUR, deadline=NOON + 20 * HOUR, resume=True)
    bids.place_bid(site.store, terms=terms, by=somebody(), now=site.now)
    site.go()
    site.now = site.lease.ends_at + MINUTE
    site.tick()
    assert site.lease.ending_reason == close_reasons.MARKET_AWAY

    site.go()

    assert len([each for each in site.events() if each.event.name.endswith("bid-placed")]) == 2


def test_time_up_is_what_lies_outside_outages() -> None:
    away = Uptime((Window(NOON, NOON + HOUR), Window(NOON + 2 * HOUR, NOON + 3 * HOUR)))
    assert away.between(NOON - HOUR, NOON + 4 * HOUR) == 3 * HOUR
    assert away.between(NOON, NOON + HOUR) == timedelta()
    assert away.between(NOON + HOUR, NOON) == timedelta()
    assert away.outages_between(NOON + HOUR, NOON + 2.5 * HOUR) == (
        Window(NOON + 2 * HOUR, NOON + 2.5 * HOUR),
    )
