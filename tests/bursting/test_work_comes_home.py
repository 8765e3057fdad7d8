"""Work that runs in a cloud moves home at a checkpoint where local supply is cheaper."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from ledger.eventstore.port import load
from marketplace.commands import chains, leases
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts import close_reasons
from marketplace.domain.leases.renewals import next_id
from tests.bursting.bids_and_offers import RULES
from tests.bursting.coming_home import HOME, Homely
from tests.marketplace.support.market import OWNER, rate, somebody
from tests.marketplace.support.site import BID

HOUR = timedelta(hours=1)


@pytest.fixture
def site() -> Homely:
    """A market in which work has run in the cloud for an hour, and GPUs come free at home."""
    site = Homely()
    site.burst()
    site.wait(hours=1)
    site.offer("free", at="0.2")
    site.save(site.in_cloud)
    return site


def test_the_place_at_home_is_taken_before_anything_ends_in_the_cloud(site: Homely) -> None:
    assert site.look()

    home, cloud = site.at_home, site.in_cloud
    assert (home.state, cloud.state) == ("scheduled", "reclaiming")
    assert home.starts_at == cloud.stop_at == site.now + timedelta(seconds=HOME.lead_seconds)
    assert {share.source for share in home.terms.shares} == {"local"}
    assert site.machine.state == "running"


def test_the_rest_is_asked_for_from_the_checkpoint_with_what_the_move_takes(site: Homely) -> None:
    site.wait(minutes=2)
    ends_at, safe_at = site.in_cloud.ends_at, site.now - timedelta(minutes=2)

    site.look()

    rest = ends_at - safe_at + timedelta(seconds=HOME.move_seconds)
    assert site.home_bid.terms.duration_seconds * timedelta(seconds=1) == rest
    work = dict(site.home_bid.terms.workload.environment)
    assert work["OFFPEAK_RESUMES_FROM"] == safe_at.isoformat()


def test_each_second_is_of_one_lease_and_the_machine_is_given_back(site: Homely) -> None:
    site.look()
    moved_at = site.at_home.starts_at
    site.wait(seconds=HOME.lead_seconds)
    site.stop(site.in_cloud)
    site.begin(site.at_home)

    assert site.in_cloud.ending_reason == close_reasons.MOVED
    assert site.in_cloud.right_ends_at == site.at_home.starts_at == moved_at
    assert site.at_home.state == "active"
    site.look()
    ended = site.tries().ended
    assert ended is not None and ended.moved and ended.reason == "moved"
    assert ended.saved is not None and ended.saved.nanos > 0
    site.wait(seconds=RULES.drain_seconds)
    site.advance()
    assert (site.machine.state, site.machine.reason) == ("terminated", "moved-home")
    assert load(site.store, Bid, next_id(BID)) is None, "what follows is the bid at home"


def test_it_stays_where_home_is_not_cheaper_by_more_than_the_margin() -> None:
    site = Homely()
    site.burst()
    site.wait(hours=1)
    site.offer("dear", at="0.75")
    site.save(site.in_cloud)

    assert not site.look()
    assert site.asked() == []


def test_it_stays_where_the_place_at_home_is_free_too_late(site: Homely) -> None:
    site = Homely()
    site.burst()
    site.wait(hours=1)
    later = site.now + 2 * HOUR
    site.offer("late", at="0.2", windows=[(later, later + 40 * HOUR)])
    site.save(site.in_cloud)

    assert not site.look()


def test_own_supply_is_the_best_place_there_is() -> None:
    site = Homely()
    site.burst()
    site.wait(hours=1)
    site.offer("own", at="5", owner=site.in_cloud.terms.tenant_id)
    site.save(site.in_cloud)

    assert site.look()
    assert site.at_home.terms.own


def test_it_is_not_moved_without_a_new_checkpoint_nor_soon_after_a_try(site: Homely) -> None:
    site.look()
    leases.close_lease(
        site.store, lease_id=site.at_home.terms.lease_id, by=somebody(), now=site.now
    )
    site.go()
    site.look()
    assert site.tries().ended is not None
    assert not site.look()
    site.wait(minutes=1)
    site.save(site.in_cloud)
    assert not site.look()
    site.wait(seconds=HOME.again_seconds)
    site.save(site.in_cloud)
    assert site.look()
    assert site.tries().last.number == 2


def test_where_the_place_falls_away_the_lease_in_the_cloud_goes_on_as_before(
    site: Homely,
) -> None:
    before = site.in_cloud.due_at
    site.look()
    assert site.in_cloud.due_at < before

    leases.reclaim_lease(
        site.store, lease_id=site.at_home.terms.lease_id, owner_id=OWNER, by=somebody(),
        now=site.now,
    )  # fmt: skip
    site.wait(seconds=HOME.lead_seconds - 60)
    leases.take_lease_at_once(
        site.store,
        lease_id=site.at_home.terms.lease_id,
        host_id=next(iter(site.at_home.hosts)),
        by=somebody(),
        now=site.now,
    )
    site.clock_of(site.at_home)
    site.go()
    site.look()

    assert site.at_home.over
    assert (site.in_cloud.state, site.in_cloud.due_at) == ("active", before)
    ended = site.tries().ended
    assert ended is not None and (ended.moved, ended.reason) == (False, "place-gone")
    assert load(site.store, Bid, next_id(site.home_bid.terms.bid_id)) is None


def test_after_a_try_that_came_to_nothing_the_rest_is_resumed_as_ever(site: Homely) -> None:
    site.look()
    leases.close_lease(
        site.store, lease_id=site.at_home.terms.lease_id, by=somebody(), now=site.now
    )
    site.go()
    assert site.in_cloud.state == "active"

    leases.reclaim_lease(
        site.store,
        lease_id=site.in_cloud.terms.lease_id,
        owner_id=site.machine.intent.owner_id,
        by=somebody(),
        now=site.now,
    )
    site.wait(minutes=3)
    site.stop(site.in_cloud)

    following = load(site.store, Bid, next_id(BID))
    assert following is not None and following.state == "filled"
    assert following.terms.continues is not None and not following.terms.continues.moves


def test_work_that_is_done_before_it_moves_leaves_the_place_to_others(site: Homely) -> None:
    site.look()
    held = site.account.held

    site.stop(site.in_cloud, exit_code=0)
    site.look()

    assert site.in_cloud.ending_reason == close_reasons.WORK_DONE
    assert site.at_home.over and site.at_home.ending_reason == close_reasons.NOT_NEEDED
    ended = site.tries().ended
    assert ended is not None and ended.reason == "work-ended"
    assert held.nanos > 0
    assert site.home_bid.chain_ended == "stayed"


def test_an_interruption_before_the_move_leaves_the_place_at_home_to_go_on_in(
    site: Homely,
) -> None:
    site.look()
    leases.reclaim_lease(
        site.store,
        lease_id=site.in_cloud.terms.lease_id,
        owner_id=site.machine.intent.owner_id,
        by=somebody(),
        now=site.now,
    )
    site.wait(seconds=130)
    site.stop(site.in_cloud)

    assert site.in_cloud.over
    assert load(site.store, Bid, next_id(BID)) is None
    assert site.at_home.state == "scheduled"


def test_what_is_cut_short_at_home_goes_on_by_the_deadline_of_the_first_bid(site: Homely) -> None:
    site.look()
    site.wait(seconds=HOME.lead_seconds)
    site.stop(site.in_cloud)
    site.begin(site.at_home)
    site.wait(minutes=20)
    site.save(site.at_home)
    leases.reclaim_lease(
        site.store, lease_id=site.at_home.terms.lease_id, owner_id=OWNER, by=somebody(),
        now=site.now,
    )  # fmt: skip
    site.wait(minutes=5)
    site.stop(site.at_home)

    following = load(site.store, Bid, next_id(site.home_bid.terms.bid_id))
    first = load(site.store, Bid, BID)
    assert following is not None and first is not None
    assert (following.deadline, following.limit) == (first.deadline, first.limit)
    assert following.terms.burst_allowed


def test_who_ends_the_chain_also_ends_what_it_moves_to(site: Homely) -> None:
    site.look()

    chains.end_chain(site.store, bid_id=BID, by=somebody(), now=site.now)

    assert site.home_bid.chain_ended == "consumer"


def test_a_bid_that_does_not_resume_stays() -> None:
    site = Homely(resume=False)
    site.burst()
    site.wait(hours=1)
    site.offer("free", at="0.2")
    site.save(site.in_cloud)

    assert not site.look()


def test_an_account_that_covers_no_second_hold_lets_the_work_stay() -> None:
    site = Homely(funds=10, limit=rate("0.9"))
    site.burst()
    site.wait(hours=1)
    site.offer("free", at="0.2")
    site.save(site.in_cloud)

    site.look()

    ended = site.tries().ended
    assert ended is not None and ended.reason == "funds-insufficient"
    assert site.in_cloud.state == "active"


def test_the_switch_keeps_all_work_where_it_is(site: Homely) -> None:
    site.overflow = replace(site.overflow, home=replace(HOME, is_on=False))

    assert not site.look()
