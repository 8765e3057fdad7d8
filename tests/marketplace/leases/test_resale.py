"""The rest of a lease is sold on: nobody's capacity and nobody's money is counted twice."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from config.demo.pump import Pump
from ledger.commands.money import open_account, place_hold
from ledger.domain.ids import AccountId, BidId, HoldId, SubscriberId, TenantId
from ledger.domain.money import NANOS_PER_UNIT, Money
from ledger.eventstore.port import load
from marketplace.commands import bids, leases
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import LeaseGranted
from marketplace.domain.leases.actions import (
    FIRST_REFUSAL,
    FirstRefusalOver,
    GangCannotBeResold,
    NothingOnSale,
    NotTheOwner,
    ResoldIsFixed,
    RestOnSale,
    RestTooShort,
)
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.resale import FloorBelowPrice, list_rest
from marketplace.policies import policies
from tests.conftest import NOON
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.leasing import ADA, BOB, HOST_A, HOST_B, active, share
from tests.marketplace.support.market import OWNER, named, rate, somebody
from tests.marketplace.support.site import TENANT, TERMS, Site, memory

HOUR = timedelta(hours=1)


@pytest.fixture
def site() -> Site:
    """Two GPUs at 1.00, leased by `x` for eight hours, and running."""
    site = Site()
    site.offer("a", gpus=2, at=1, notice=timedelta(minutes=5), grace=timedelta(minutes=2))
    site.ask(hours=8)
    site.go()
    site.start()
    return site


def on_sale(site: Site, *, floor: str = "1.50", since: timedelta | None = 2 * HOUR) -> None:
    leases.sell_rest(
        site.store,
        lease_id=site.lease_of_bid(),
        since=None if since is None else site.now + since,
        floor=rate(floor),
        by=somebody(),
        now=site.now,
    )


def opened(site: Site) -> None:
    """Let the owner's time to take it first go by."""
    site.wait(seconds=FIRST_REFUSAL.total_seconds())
    site.tick()
    site.go()


def buy(
    site: Site,
    word: str,
    *,
    gpus: int = 2,
    hours: float = 3,
    at: str = "2",
    start: datetime = NOON,
    deadline: datetime = NOON + 8 * HOUR,
) -> None:
    """Bid with money behind it, for what is left of the eight hours and not later."""
    tenant = TenantId(named(f"tenant {word}"))
    account_id = AccountId(tenant)
    open_account(
        site.store,
        account_id=account_id,
        tenant_id=tenant,
        subscriber_id=SubscriberId(tenant),
        kind="chargeback",
        title=word,
        currency="USD",
        overdraft_nanos=None,
        by=somebody(),
        now=site.now,
    )
    place_hold(
        site.store,
        account_id=account_id,
        hold_id=HoldId(named(f"bid {word}")),
        money=rate(at).charge(round(gpus * hours * 3_600_000)),
        purpose=word,
        by=somebody(),
        now=site.now,
    )
    site.bid(
        word,
        gpus=gpus,
        hours=hours,
        at=at,
        start=max(start, site.now),
        deadline=deadline,
    )


def lease_of(site: Site, word: str) -> Lease:
    lease = load(site.store, Lease, site.lease_id(word))
    assert lease is not None
    return lease


def test_what_nobody_buys_stays_with_its_holder(site: Site) -> None:
    before = site.lease
    on_sale(site)
    buy(site, "cheap", gpus=2, hours=1, at="1.40")
    opened(site)

    assert (site.lease.ends_at, site.lease.state) == (before.ends_at, "active")
    assert site.grant("cheap") is None


def test_a_buyer_gets_the_rest_and_the_first_lease_ends_where_that_begins(site: Site) -> None:
    on_sale(site)
    opened(site)
    since = NOON + 2 * HOUR
    buy(site, "y", gpus=2, hours=3, at="2")

    site.go()

    granted = site.grant("y")
    assert granted is not None
    assert timedelta(0) <= granted.window.starts_at - since <= timedelta(seconds=1)
    assert granted.price == rate("1.50")
    assert [cut.lease_id for cut in granted.cuts] == [site.lease_of_bid()]
    assert site.lease.ends_at == granted.window.starts_at
    bought = lease_of(site, "y")
    [given] = bought.terms.shares
    assert given.resold is not None
    assert (given.owner_id, given.resold.tenant_id) == (OWNER, TENANT)
    assert given.resold.price == rate(1)
    assert bought.grace == timedelta(minutes=2)
    audit(site.events())


def test_the_hold_of_the_first_lease_keeps_only_what_it_still_needs(site: Site) -> None:
    assert site.account.held == Money(16 * NANOS_PER_UNIT)
    on_sale(site)
    opened(site)
    buy(site, "y", gpus=2, hours=3, at="2")
    site.go()

    length = site.lease.ends_at - site.lease.starts_at
    assert site.account.held == rate(1).charge(2 * (length // timedelta(milliseconds=1)))


def test_the_first_lease_closes_as_sold(site: Site) -> None:
    on_sale(site)
    opened(site)
    buy(site, "y", gpus=2, hours=3, at="2")
    site.go()

    site.now = site.lease.ends_at
    site.tick()
    site.wait(minutes=1)
    site.tick()

    assert site.lease.over
    assert site.lease.ending_reason == close_reasons.RESOLD


def test_a_lease_that_has_not_begun_is_sold_whole() -> None:
    site = Site()
    start = NOON + 3 * HOUR
    site.offer("a", gpus=2, at=1, windows=[(start, start + 4 * HOUR)])
    site.ask(hours=4)
    site.go()
    on_sale(site, since=None)
    site.wait(seconds=FIRST_REFUSAL.total_seconds())
    site.tick()
    buy(site, "y", gpus=2, hours=4, at="2", start=start)

    site.go()

    assert site.grant("y") is not None
    assert site.lease.over
    assert site.lease.ending_reason == close_reasons.RESOLD
    audit(site.events())


def test_what_a_sale_leaves_over_is_the_owners_and_goes_to_who_waits(site: Site) -> None:
    on_sale(site)
    opened(site)
    buy(site, "waits", gpus=1, hours=2, at="1.20")
    site.go()
    assert site.grant("waits") is None

    buy(site, "y", gpus=1, hours=1, at="2")
    site.go()
    site.run()

    waits = site.grant("waits")
    assert waits is not None
    assert waits.cuts == ()
    assert waits.shares[0].resold is None
    audit(site.events())


def test_a_bid_that_waits_gets_the_rest_when_it_comes(site: Site) -> None:
    buy(site, "waits", gpus=2, hours=2, at="2")
    site.go()
    assert site.grant("waits") is None

    on_sale(site)
    opened(site)

    granted = site.grant("waits")
    assert granted is not None
    # The bid was there first: it pays its limit, as with any offer that comes later.
    assert granted.price == rate(2)


def test_nobody_buys_from_themselves(site: Site) -> None:
    on_sale(site)
    opened(site)
    bids.place_bid(
        site.store,
        terms=replace(
            TERMS,
            bid_id=BidId(named("bid y")),
            duration_seconds=3 * 3_600,
            deadline=NOON + 8 * HOUR,
        ),
        by=somebody(),
        now=site.now,
    )
    site.go()
    assert site.grant("y") is None


def test_free_capacity_of_owners_is_sold_before_a_rest(site: Site) -> None:
    site.offer("b", gpus=2, at="1.90")
    on_sale(site)
    opened(site)
    buy(site, "y", gpus=2, hours=3, at="2", start=NOON + 2 * HOUR)
    site.go()
    granted = site.grant("y")
    assert granted is not None
    assert granted.cuts == ()


def test_an_owner_who_paused_the_offer_gets_no_new_consumer_by_a_resale(site: Site) -> None:
    on_sale(site)
    opened(site)
    site.change_offer("a", "pause")
    buy(site, "y", gpus=2, hours=3, at="2")
    site.go()
    assert site.grant("y") is None


def test_the_owner_may_take_the_rest_first_for_what_the_holder_would_gain(site: Site) -> None:
    on_sale(site)
    total = site.account.total
    leases.take_rest_first(
        site.store, lease_id=site.lease_of_bid(), owner_id=OWNER, by=somebody(), now=site.now
    )
    assert site.lease.stop_at == NOON + 2 * HOUR
    buy(site, "y", gpus=2, hours=3, at="2")
    site.go()
    assert site.grant("y") is None

    site.now = site.lease.due_at
    site.tick()
    site.wait(minutes=1)
    site.tick()
    site.go()

    assert site.lease.ending_reason == close_reasons.RECLAIMED
    # 0.50 an hour for two GPUs over the six hours that were left.
    gained = site.account.total.nanos - total.nanos
    assert 0 <= gained - 6 * NANOS_PER_UNIT < NANOS_PER_UNIT // 1000


def test_the_right_of_first_refusal_has_an_exact_end(site: Site) -> None:
    on_sale(site)
    lease_id, listed_at = site.lease_of_bid(), site.now
    site.now = listed_at + FIRST_REFUSAL
    with pytest.raises(FirstRefusalOver):
        leases.take_rest_first(
            site.store, lease_id=lease_id, owner_id=OWNER, by=somebody(), now=site.now
        )
    with pytest.raises(NotTheOwner):
        leases.take_rest_first(
            site.store, lease_id=lease_id, owner_id=TENANT, by=somebody(), now=listed_at
        )
    leases.take_rest_first(
        site.store,
        lease_id=lease_id,
        owner_id=OWNER,
        by=somebody(),
        now=site.now - timedelta(microseconds=1),
    )


def test_the_holder_may_keep_it_after_all(site: Site) -> None:
    on_sale(site)
    opened(site)
    leases.keep_rest_of_lease(site.store, lease_id=site.lease_of_bid(), by=somebody(), now=site.now)
    buy(site, "y", gpus=2, hours=3, at="2")
    site.go()
    assert site.grant("y") is None
    with pytest.raises(NothingOnSale):
        leases.keep_rest_of_lease(
            site.store, lease_id=site.lease_of_bid(), by=somebody(), now=site.now
        )


def test_a_holder_who_keeps_the_rest_before_its_sale_is_taken_up_keeps_it(site: Site) -> None:
    on_sale(site)
    opened(site)
    buy(site, "y", gpus=2, hours=3, at="2")
    site.run()
    before = site.lease
    leases.keep_rest_of_lease(site.store, lease_id=site.lease_of_bid(), by=somebody(), now=site.now)
    site.go()
    assert site.grant("y") is not None
    assert (site.lease.ends_at, site.lease.rights.shortened) == (before.ends_at, None)
    assert load(site.store, Lease, site.lease_id("y")) is None
    bid = load(site.store, Bid, BidId(named("bid y")))
    assert bid is not None and bid.state == "open"
    assert site.account.held == site.lease.cost_at_most(ends_at=site.lease.ends_at)


def test_a_reclaim_that_came_before_the_sale_was_taken_up_is_stronger(site: Site) -> None:
    """I8: the owner asked for the capacity; the engine had not read of it when it sold."""
    on_sale(site)
    opened(site)
    buy(site, "y", gpus=2, hours=3, at="2")
    site.run()
    assert site.grant("y") is not None
    leases.reclaim_lease(
        site.store, lease_id=site.lease_of_bid(), owner_id=OWNER, by=somebody(), now=site.now
    )
    site.go()

    assert load(site.store, Lease, site.lease_id("y")) is None
    assert site.lease.rights.shortened is None
    deadline = site.lease.stop_at
    assert deadline is not None
    # And nobody else is let onto what the owner took back.
    buy(site, "z", gpus=2, hours=1, at="9", deadline=NOON + 5 * HOUR)
    site.go()
    assert site.grant("z") is None


def test_the_policy_may_run_again_from_the_start(site: Site) -> None:
    on_sale(site)
    opened(site)
    buy(site, "y", gpus=2, hours=3, at="2")
    site.go()
    head = site.store.head()

    Pump(memory(site.store), policies(fee_ppm=50_000)).run()

    assert site.store.head() == head


def test_a_rest_on_sale_or_sold_is_not_extended(site: Site) -> None:
    on_sale(site)
    with pytest.raises(RestOnSale):
        site.lease.ask_extension(ends_at=site.lease.ends_at + HOUR, now=site.now)
    opened(site)
    buy(site, "y")
    site.go()
    assert site.grant("y") is not None
    with pytest.raises(RestOnSale):
        site.lease.ask_extension(ends_at=NOON + 9 * HOUR, now=site.now)
    bought = lease_of(site, "y")
    with pytest.raises(ResoldIsFixed):
        bought.ask_extension(ends_at=bought.ends_at + HOUR, now=site.now)


def test_an_extension_granted_before_the_sale_lapses_when_it_is_taken_up_after(site: Site) -> None:
    """Two policies follow the market; nothing says which of them is first."""
    on_sale(site)
    opened(site)
    buy(site, "y")
    site.go()
    assert site.lease.extend(ends_at=NOON + 12 * HOUR, now=site.now) == []


@pytest.mark.parametrize(
    ("floor", "since_hours", "least_seconds", "refusal"),
    [
        ("1.99", 0, 900, FloorBelowPrice),
        ("2", 9, 900, RestTooShort),
        ("2", 0, 4 * 3_600, RestTooShort),
        ("2", 0, 0, RestTooShort),
    ],
)
def test_a_sale_that_makes_no_sense_is_refused(
    floor: str, since_hours: int, least_seconds: int, refusal: type[Exception]
) -> None:
    lease = active()
    with pytest.raises(refusal):
        list_rest(
            lease,
            since=NOON + HOUR + since_hours * HOUR,
            floor=rate(floor),
            lease_min_seconds=least_seconds,
            now=NOON + HOUR,
        )


def test_a_gang_is_not_sold_on() -> None:
    lease = active(share(HOST_A, ADA), share(HOST_B, BOB))
    with pytest.raises(GangCannotBeResold):
        list_rest(lease, since=None, floor=rate(3), now=NOON + HOUR)


def test_a_second_engine_folds_the_sale_to_the_same_book(site: Site) -> None:
    on_sale(site)
    opened(site)
    buy(site, "y", gpus=2, hours=3, at="2")
    site.go()
    granted = site.grant("y")
    assert isinstance(granted, LeaseGranted)
    buy(site, "z", gpus=2, hours=1, at="9", deadline=granted.window.ends_at)
    other = site.new_engine()
    other.run_once(now=site.now)
    assert site.grant("z") is None
