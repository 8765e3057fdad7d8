"""A market with money behind its bids and the policies at work: what follows a grant."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from config.demo.pump import Pump
from ledger.commands.money import add_funds, open_account, open_tenant_accounts
from ledger.domain.account_ids import funds_account
from ledger.domain.accounts import Account
from ledger.domain.ids import BidId, EntryId, LeaseId, SubscriberId, TenantId
from ledger.domain.money import NANOS_PER_UNIT, Money
from ledger.domain.parties import PLATFORM_ID
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import EventStore, load
from marketplace.commands import bids, leases
from marketplace.domain.bids.bid import BidTerms
from marketplace.domain.facts.events import GpuRequest, Workload
from marketplace.domain.leases.lease import Lease
from marketplace.policies import policies
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, OWNER, Market, named, rate, somebody

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

    def __init__(self, *, funds: int = 100, store: EventStore | None = None) -> None:
        super().__init__(store)
        self.pump = Pump(self.store, policies(fee_ppm=50_000))
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
