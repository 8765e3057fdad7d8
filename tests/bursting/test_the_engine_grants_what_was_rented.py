"""The real engine, bidding and listing around a burst: it never learns that clouds exist."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from uuid import UUID

from bursting.domain.instances import host_of
from bursting.domain.spill import BidNotWaiting
from ledger.commands import open_account
from ledger.domain.ids import BidId, HostId, OfferId, TenantId
from ledger.domain.money import Rate
from ledger.domain.span import Window
from ledger.eventstore.port import START, load
from listings.commands import publish_offer, register_host, report_inventory
from listings.domain.events import Gpu
from listings.domain.terms import OfferTerms
from marketplace.commands.bids import place_bid
from marketplace.domain.bids.bid import Bid, BidTerms
from marketplace.domain.facts.events import LeaseGranted
from marketplace.domain.leases.lease import Lease
from marketplace.engine import Engine
from marketplace.policies import open_lease_when_granted
from tests.bursting.bids_and_offers import NOON, RULES
from tests.bursting.market import BID, TESTER, Market, bid_like

LOCAL_HOST = HostId(UUID(int=50))


class EngineMarket(Market):
    """The market of one bid, placed by the real command and cleared by the real engine."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.engine = Engine(self.store, "site-a")
        self._opened: set[object] = set()

    def place(self, bid: object) -> None:
        terms = {
            field.name: getattr(bid, field.name)
            for field in fields(BidTerms)
            if hasattr(bid, field.name)
        }
        open_account(
            self.store,
            account_id=self.bid.account_id,
            tenant_id=self.bid.tenant_id,
            subscriber_id=self.bid.subscriber_id,
            kind="chargeback",
            title="Research",
            currency="USD",
            overdraft_nanos=None,
            by=TESTER,
            now=NOON,
        )
        place_bid(self.store, terms=BidTerms(**terms), by=TESTER, now=NOON)

    def clear(self) -> None:
        """Let the engine decide, and its grants become leases."""
        self.engine.run_once(now=self.now)
        for recorded in self.store.read_all(after=START, limit=10_000).events:
            if isinstance(recorded.event, LeaseGranted):
                open_lease_when_granted(recorded, self.store, fee_ppm=0)

    def lease_of_bid(self, bid_id: BidId = BID.bid_id) -> Lease | None:
        bid = load(self.store, Bid, bid_id)
        assert bid is not None
        return load(self.store, Lease, bid.lease_id) if bid.lease_id else None

    def list_local(self, *, floor: Rate) -> None:
        register_host(
            self.store,
            host_id=LOCAL_HOST,
            tenant_id=TenantId(UUID(int=9)),
            title="Lab 1",
            market="site-a",
            region="eu-west",
            by=TESTER,
            now=self.now,
        )
        found = Gpu(
            uuid="GPU-local",
            model="NVIDIA L4",
            memory_mib=23_034,
            compute_capability="8.9",
            driver="580.65",
        )
        report_inventory(self.store, host_id=LOCAL_HOST, gpus=[found], by=TESTER, now=self.now)
        publish_offer(
            self.store,
            offer_id=OfferId(UUID(int=51)),
            host_id=LOCAL_HOST,
            terms=OfferTerms(
                gpu_uuids=("GPU-local",),
                windows=(Window(self.now, self.now + timedelta(hours=12)),),
                floor=floor,
            ),
            by=TESTER,
            now=self.now,
        )


def test_a_rented_machine_goes_to_its_bid_at_the_clouds_price_and_is_given_back() -> None:
    market = EngineMarket()
    market.clear()
    assert market.lease_of_bid() is None

    instance_id = market.listed()
    market.clear()

    lease = market.lease_of_bid()
    assert lease is not None
    assert lease.hosts == {host_of(instance_id)}
    assert lease.terms.price == Rate(804_800_000)
    assert [share.source for share in lease.terms.shares] == ["burst"]
    market.later(hours=1)
    market.close(lease.terms.lease_id)
    market.later(seconds=RULES.drain_seconds)
    market.tick()
    assert market.instance(instance_id).reason == "lease-closed"
    assert market.alive() == set()


def test_nobody_else_gets_a_machine_that_was_rented_for_a_bid() -> None:
    market = EngineMarket()
    rival = bid_like(bid_id=BidId(UUID(int=8)), hold_id=BidId(UUID(int=8)), limit=Rate(10**10))
    market.place(rival)
    market.clear()

    instance_id = market.listed()
    market.clear()

    lease = market.lease_of_bid()
    assert lease is not None
    assert lease.hosts == {host_of(instance_id)}
    assert market.lease_of_bid(rival.bid_id) is None


def test_local_supply_within_the_limit_means_no_burst() -> None:
    market = EngineMarket()
    market.list_local(floor=Rate(1_000_000_000))
    market.clear()

    try:
        market.spill()
    except BidNotWaiting:
        pass
    else:
        raise AssertionError("it spilled although it is served")
    lease = market.lease_of_bid()
    assert lease is not None
    assert lease.hosts == {LOCAL_HOST}


def test_local_supply_above_the_limit_does_not_keep_a_bid_from_bursting() -> None:
    market = EngineMarket()
    market.list_local(floor=Rate(3_000_000_000))
    market.clear()

    instance_id = market.listed()
    market.clear()

    lease = market.lease_of_bid()
    assert lease is not None
    assert lease.hosts == {host_of(instance_id)}


def test_local_supply_that_appears_while_the_machine_boots_takes_the_work_home() -> None:
    market = EngineMarket()
    market.clear()
    instance_id = market.spill()
    market.advance(instance_id)
    market.list_local(floor=Rate(1_000_000_000))
    market.clear()

    market.tick()

    lease = market.lease_of_bid()
    assert lease is not None
    assert lease.hosts == {LOCAL_HOST}
    assert market.instance(instance_id).reason == "came-home"
    assert market.alive() == set()
