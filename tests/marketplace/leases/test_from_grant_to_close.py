"""A grant becomes a lease and its money follows; no crash or repeat does anything twice."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from config.demo.pump import Pump
from ledger.domain.accounts import FundsInsufficient
from ledger.domain.money import NANOS_PER_UNIT, Money
from ledger.eventstore.port import Meta, load, record
from marketplace.commands import bids, leases
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts import close_reasons
from marketplace.domain.leases.grant_checks import fill
from marketplace.domain.leases.lease import Lease
from marketplace.policies import policies
from tests.conftest import NOON
from tests.marketplace.support.market import OWNER, named, rate, somebody
from tests.marketplace.support.site import BID, HOUR, Site, memory


@pytest.fixture
def site() -> Site:
    site = Site()
    site.offer("a", gpus=2, at=1)
    site.ask()
    return site


def test_a_bid_holds_its_limit_and_a_lease_its_price(site: Site) -> None:
    assert site.account.held == Money(24 * NANOS_PER_UNIT)

    site.go()

    assert site.lease.state == "scheduled"
    assert site.lease.terms.price == rate(1)
    assert site.account.held == Money(8 * NANOS_PER_UNIT)
    bid = load(site.store, Bid, BID)
    assert bid is not None and (bid.state, bid.lease_id) == ("filled", site.lease_of_bid())


def test_every_policy_may_run_again_from_the_start(site: Site) -> None:
    """A policy is asked at least once: after a crash it sees events again."""
    site.go()
    head, held = site.store.head(), site.account.held

    Pump(memory(site.store), policies(fee_ppm=50_000)).run()

    assert (site.store.head(), site.account.held) == (head, held)


def test_a_cancellation_that_came_first_opens_no_lease_and_frees_the_gpus(site: Site) -> None:
    """The engine read the bid, then the consumer cancelled, then the grant was written."""
    site.run()
    bids.cancel_bid(site.store, bid_id=BID, by=somebody(), now=site.now)

    site.go()

    assert load(site.store, Lease, site.lease_of_bid()) is None
    assert site.account.held == Money(0)
    site.bid("y", gpus=2, hours=1)
    site.run()
    granted = site.grant("y")
    assert granted is not None
    assert granted.window.starts_at - site.now < timedelta(minutes=1)


def test_a_lease_still_opens_when_the_policy_died_between_its_steps(site: Site) -> None:
    """Blazar LP#1704359: the grant was visible, and the lease stayed pending for ever."""
    site.run()
    store = memory(site.store)
    granted = site.grant("x")
    assert granted is not None
    bid = load(store, Bid, BID)
    assert bid is not None
    [recorded] = [r for r in site.events() if r.event == granted]
    # A store that appends to one stream after the other: the policy filled the bid and was killed.
    by = Meta.because(recorded, policy="open-lease-when-granted")
    record(store, Bid, BID, partial(fill, granted=granted, now=site.now), by=by.step("fill"))

    site.pump.run()

    assert site.lease.state == "scheduled"
    assert site.account.held == Money(8 * NANOS_PER_UNIT)
    scheduled = [r for r in site.events() if r.type == "marketplace.lease-scheduled"]
    assert len(scheduled) == 1


def test_an_extension_is_paid_for_before_it_is_asked_and_granted_in_place(site: Site) -> None:
    site.go()
    site.start()
    before = site.lease

    leases.request_extension(
        site.store,
        lease_id=site.lease_of_bid(),
        ends_at=before.ends_at + HOUR,
        by=somebody(named("extend")),
        now=site.now,
    )
    assert site.account.held == Money(10 * NANOS_PER_UNIT)
    site.go()

    assert site.lease.ends_at == before.ends_at + HOUR
    assert site.lease.terms.shares == before.terms.shares
    assert site.account.held == Money(10 * NANOS_PER_UNIT)


def test_an_extension_that_stands_in_anothers_way_is_declined_and_its_money_freed() -> None:
    site = Site()
    site.offer("a", gpus=2, at=1, windows=[(NOON, NOON + 4 * HOUR)])
    site.ask(hours=4)
    site.go()
    site.start()

    leases.request_extension(
        site.store,
        lease_id=site.lease_of_bid(),
        ends_at=site.lease.ends_at + HOUR,
        by=somebody(),
        now=site.now,
    )
    site.go()

    assert site.lease.ends_at == site.lease.terms.window.ends_at
    assert site.account.held == Money(8 * NANOS_PER_UNIT)


def test_an_extension_that_is_not_covered_is_refused_and_changes_nothing() -> None:
    """Blazar LP#1786031: an invalid update put a healthy lease into error."""
    site = Site(funds=24)
    site.offer("a", gpus=2, at=3)
    site.ask(limit="3", hours=4)
    site.go()
    site.start()
    head, lease = site.store.head(), site.lease

    with pytest.raises(FundsInsufficient):
        leases.request_extension(
            site.store,
            lease_id=site.lease_of_bid(),
            ends_at=lease.ends_at + HOUR,
            by=somebody(),
            now=site.now,
        )

    assert (site.store.head(), site.lease) == (head, lease)


def test_a_reclaim_pays_the_consumer_out_of_the_owners_earnings(site: Site) -> None:
    site.go()
    site.start()
    total = site.account.total
    leases.reclaim_lease(
        site.store, lease_id=site.lease_of_bid(), owner_id=OWNER, by=somebody(), now=site.now
    )
    site.wait(minutes=5)
    site.tick()
    for host_id in site.lease.hosts:
        leases.lease_stopped(
            site.store,
            lease_id=site.lease_of_bid(),
            host_id=host_id,
            exit_code=None,
            by=somebody(),
            now=site.now,
        )

    site.go()

    assert site.lease.ending_reason == close_reasons.RECLAIMED
    # A tenth of 3 h 55 min × 2 GPUs at 1.00; the lease began on the next full second at most.
    paid = site.account.total.nanos - total.nanos
    assert 0 <= paid - 783_333_333 <= 60_000


def test_capacity_of_a_closed_lease_is_leased_again_at_once(site: Site) -> None:
    """akash support#430: a lease that never started kept a ghost reservation."""
    site.go()
    leases.close_lease(site.store, lease_id=site.lease_of_bid(), by=somebody(), now=site.now)
    assert site.lease.over

    site.bid("y", gpus=2, hours=4)
    site.run()

    granted = site.grant("y")
    assert granted is not None
    assert granted.window.starts_at - site.now < timedelta(minutes=1)
