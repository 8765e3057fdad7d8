"""A cloud takes a machine back, with a warning or without: its work goes on elsewhere."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bursting.commands.returning import SENDS_BEFORE, pass_warning_on
from ledger.eventstore.port import load
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts import close_reasons
from marketplace.domain.leases.renewals import next_id
from marketplace.domain.orderbook.host_reliability import BROKEN_OFF, WENT_WELL
from tests.bursting.coming_home import Homely
from tests.marketplace.support.market import somebody
from tests.marketplace.support.site import BID


@pytest.fixture
def site() -> Homely:
    """A market in which work has run in the cloud for an hour, and a place at home is free."""
    site = Homely()
    site.burst()
    site.wait(hours=1)
    site.save(site.in_cloud)
    site.offer("free", at="0.5")
    return site


def warn(site: Homely, *, seconds: int = 120) -> None:
    pass_warning_on(
        site.store,
        site.machine,
        gone_at=site.now + timedelta(seconds=seconds),
        by=somebody(),
        now=site.now,
    )


def test_a_warning_gives_the_work_time_to_save_itself_and_is_a_reason_of_its_own(
    site: Homely,
) -> None:
    warn(site)
    assert site.in_cloud.stop_at == site.now + timedelta(seconds=120) - SENDS_BEFORE

    site.wait(seconds=90)
    site.stop(site.in_cloud)

    assert site.in_cloud.ending_reason == close_reasons.TAKEN_BACK
    assert site.in_cloud.state == "closed", "no fault of anybody's"


def test_after_a_warning_the_work_goes_on_at_once_from_what_it_saved(site: Homely) -> None:
    warn(site)
    site.wait(seconds=80)
    site.save(site.in_cloud)
    saved = site.now
    site.wait(seconds=10)
    site.stop(site.in_cloud)

    following = load(site.store, Bid, next_id(BID))
    assert following is not None and following.state == "filled"
    assert following.terms.earliest_start == site.now
    assert dict(following.terms.workload.environment)["OFFPEAK_RESUMES_FROM"] == saved.isoformat()
    assert following.terms.burst_allowed


def test_a_late_warning_leaves_the_grace_in_any_case_and_again_changes_nothing(
    site: Homely,
) -> None:
    warn(site, seconds=1)
    stop_at = site.in_cloud.stop_at
    assert stop_at == site.now + site.in_cloud.grace

    site.wait(seconds=5)
    warn(site, seconds=1)
    assert site.in_cloud.stop_at == stop_at


def test_a_machine_that_is_gone_ends_its_lease_at_once_and_nothing_after_is_charged(
    site: Homely,
) -> None:
    for rented in site.cloud._rented.values():
        rented.is_ended = True
    site.wait(minutes=1)
    gone_at = site.now
    site.advance()
    site.go()

    assert site.in_cloud.ending_reason == close_reasons.MACHINE_GONE
    assert site.in_cloud.right_ends_at <= gone_at
    site.wait(minutes=1)
    site.clock_of(site.in_cloud)
    site.go()
    site.go()
    following = load(site.store, Bid, next_id(BID))
    assert following is not None and following.state == "filled"
    assert following.terms.earliest_start == site.now


def test_a_machine_that_goes_after_its_warning_ends_its_lease_for_that(site: Homely) -> None:
    warn(site)
    for rented in site.cloud._rented.values():
        rented.is_ended = True
    site.wait(seconds=20)
    site.advance()
    site.go()

    assert site.in_cloud.ending_reason == close_reasons.TAKEN_BACK


def test_what_a_cloud_takes_back_says_nothing_of_anybodys_host() -> None:
    assert close_reasons.TAKEN_BACK not in BROKEN_OFF | WENT_WELL
    assert close_reasons.MOVED not in BROKEN_OFF | WENT_WELL
