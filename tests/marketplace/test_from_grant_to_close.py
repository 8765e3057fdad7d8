"""A grant becomes a lease and its money follows; no crash or repeat does anything twice."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from config.demo.pump import Pump
from ledger.commands.money import add_funds, open_account, open_tenant_accounts
from ledger.domain.account_ids import funds_account
from ledger.domain.accounts import Account, FundsInsufficient
from ledger.domain.ids import BidId, EntryId, LeaseId, SubscriberId, TenantId
from ledger.domain.money import NANOS_PER_UNIT, Money
from ledger.domain.parties import PLATFORM_ID
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import EventStore, Meta, load
from marketplace.commands import bids, leases
from marketplace.domain import close_reasons
from marketplace.domain.bids import Bid, BidTerms
from marketplace.domain.events import GpuRequest, Workload
from marketplace.domain.leases import Lease
from marketplace.policies import policies
from tests.conftest import NOON
from tests.marketplace.trading import MARKET, OWNER, Market, named, rate, somebody

UNIT = SubscriberId(named("unit"))
TENANT = TenantId(named("tenant"))
ACCOUNT = funds_account(UNIT, "USD")
BID = BidId(named("bid x"))
HOUR = timedelta(hours=1)
START_GRACE = timedelta(minutes=10)
TERMS = BidTerms(
    bid_id=BID,
    tenant_id=TENANT,
    subscriber_id=UNIT,
    user_id=None,
    account_id=ACCOUNT,
    market=MARKET,
    request=GpuRequest(),
    gpus=2,
    placement="same-host",
    duration_seconds=4 * 3_600,
    limit=rate(3),
    service_class="on-demand",
    patience="immediate",
    workload=Workload(kind="other"),
)


class Site(Market):
    """A market with money behind its bids and the policies at work."""

    def __init__(self, *, funds: int = 100) -> None:
        super().__init__()
        self.pump = Pump(memory(self.store), policies(fee_ppm=50_000))
        open_account(
            self.store,
            account_id=ACCOUNT,
            tenant_id=TENANT,
            subscriber_id=UNIT,
            kind="prepaid",
            title="Wallet",
            currency="USD",
            overdraft_nanos=0,
            by=somebody(),
            now=NOON,
        )
        open_tenant_accounts(
            self.store,
            tenant_id=OWNER,
            title="Owner",
            currency="USD",
            is_platform=False,
            by=somebody(),
            now=NOON,
        )
        add_funds(
            self.store,
            account_id=ACCOUNT,
            entry_id=EntryId(named("funds")),
            money=Money(funds * NANOS_PER_UNIT),
            reference="test",
            platform_id=PLATFORM_ID,
            by=somebody(),
            now=NOON,
        )

    def ask(self, *, limit: str = "3", hours: int = 4) -> None:
        """Place the bid that the tests are about."""
        terms = replace(TERMS, duration_seconds=hours * 3_600, limit=rate(limit))
        bids.place_bid(self.store, terms=terms, by=somebody(), now=self.now)

    def go(self) -> None:
        """Let the engine and then the policies do their work."""
        self.run()
        self.pump.run()

    @property
    def lease(self) -> Lease:
        """Return the bid's lease."""
        lease = load(self.store, Lease, self.lease_of_bid())
        assert lease is not None
        return lease

    def lease_of_bid(self) -> LeaseId:
        """Return the id of the bid's lease."""
        return self.lease_id("x")

    @property
    def account(self) -> Account:
        """Return the consumer's account."""
        account = load(self.store, Account, ACCOUNT)
        assert account is not None
        return account

    def tick(self) -> None:
        """Let the clock look at the lease."""
        leases.advance_lease(
            self.store,
            lease_id=self.lease_of_bid(),
            start_grace=START_GRACE,
            by=somebody(),
            now=self.now,
        )

    def start(self) -> None:
        """Let the lease begin and its host report."""
        self.tick()
        for host_id in self.lease.hosts:
            leases.lease_started(
                self.store,
                lease_id=self.lease_of_bid(),
                host_id=host_id,
                by=somebody(),
                now=self.now,
            )


def memory(store: EventStore) -> MemoryStore:
    assert isinstance(store, MemoryStore)
    return store


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


def test_a_cancellation_that_came_first_ends_the_lease_and_frees_the_gpus(site: Site) -> None:
    """The engine read the bid, then the consumer cancelled, then the grant was written."""
    site.run()
    bids.cancel_bid(site.store, bid_id=BID, by=somebody(), now=site.now)

    site.go()

    assert site.lease.over
    assert site.lease.ending_reason == close_reasons.BID_WITHDRAWN
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
    # What the policy does first, and then it is killed.
    by = Meta.because(recorded, policy="open-lease-when-granted")
    leases.schedule_lease(store, granted=granted, bid=bid.terms, fee_ppm=50_000, by=by)

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
