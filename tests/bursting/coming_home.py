"""A market with an engine, money and a fake cloud: work runs on a rented machine, and may move."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from bursting.clouds.fake import FakeCloud
from bursting.commands.homing import ask_home, follow_home
from bursting.commands.instances import advance_instance
from bursting.commands.spilling import Overflow, spill_bid
from bursting.domain.events import BurstIntended, HomeMoveAsked, InstanceId
from bursting.domain.home_moves import HomeMoves, HomeRules
from bursting.domain.instances import BurstInstance, host_of
from bursting.homecoming import ask_market
from bursting.policies import POLICIES
from config.demo.pump import Pump
from ledger.commands import open_tenant_accounts
from ledger.domain.ids import BidId, LeaseId
from ledger.domain.money import NANOS_PER_UNIT, Money
from ledger.eventstore.port import EventStore, load
from listings.commands import report_inventory
from listings.domain.events import Gpu
from marketplace.commands import bids, leases
from marketplace.domain.bids.bid import Bid
from marketplace.domain.leases.lease import Lease
from marketplace.policies import policies
from tests.bursting.bids_and_offers import PLATFORM, RULES, cloud_offer
from tests.conftest import NOON
from tests.marketplace.support.market import rate, somebody
from tests.marketplace.support.site import BID, START_GRACE, TERMS, Site

WANTED = replace(
    TERMS,
    gpus=1,
    duration_seconds=10 * 3_600,
    deadline=NOON + timedelta(days=2),
    limit=rate(2),
    burst_allowed=True,
    resume=True,
)
HOME = HomeRules()


@dataclass
class Clock:
    """What the cloud's clock shows."""

    now: datetime


class Homely(Site):
    """A market whose one bid got no local supply, and runs in a cloud at about 0.80 per GPU-h."""

    def __init__(
        self,
        *,
        store: EventStore | None = None,
        home: HomeRules = HOME,
        funds: int = 100,
        **wanted: Any,
    ) -> None:
        super().__init__(store=store, funds=funds)
        self.pump = Pump(self.store, (*policies(fee_ppm=50_000), *POLICIES))
        open_tenant_accounts(
            self.store,
            tenant_id=PLATFORM,
            title="Platform",
            currency="USD",
            is_platform=True,
            by=somebody(),
            now=NOON,
        )
        self.clock = Clock(self.now)
        self.cloud = FakeCloud(catalogue=(cloud_offer(),), clock=lambda: self.clock.now)
        self.overflow = Overflow(
            clouds={"fake": self.cloud},
            rules=RULES,
            owner_id=PLATFORM,
            budget=Money(1_000 * NANOS_PER_UNIT),
            environment_of=lambda instance_id: {},
            home=home,
        )
        asked = replace(WANTED, **wanted)
        bids.place_bid(self.store, terms=asked, by=somebody(), now=self.now)
        self.go()

    def wait(self, **length: float) -> None:
        super().wait(**length)
        self.clock.now = self.now

    def burst(self) -> None:
        """Rent a machine for the bid, and let its work begin there."""
        self.wait(seconds=RULES.wait_seconds)
        instance_id = spill_bid(
            self.store, bid_id=BID, overflow=self.overflow, by=somebody(), now=self.now
        )
        self.advance()
        gpu = Gpu(
            uuid=f"GPU-{uuid5(instance_id, '0')}",
            model="NVIDIA L4",
            memory_mib=23_034,
            compute_capability="8.9",
            driver="580.65",
        )
        report_inventory(
            self.store, host_id=host_of(instance_id), gpus=[gpu], by=somebody(), now=self.now
        )
        self.advance()
        self.go()
        assert self.in_cloud.hosts == {host_of(instance_id)}
        self.begin(self.in_cloud)

    def advance(self) -> None:
        """Take the machines as far as they go."""
        for recorded in list(self.events()):
            if isinstance(recorded.event, BurstIntended):
                advance_instance(
                    self.store,
                    instance_id=recorded.event.instance_id,
                    overflow=self.overflow,
                    by=somebody(),
                    now=self.now,
                )

    def look(self) -> bool:
        """Let the loop look at the machine once, and at what is on its way; then the market."""
        tries = load(self.store, HomeMoves, self.in_cloud.terms.lease_id)
        asked = False
        if tries is not None and tries.ended is None:
            follow_home(self.store, self.in_cloud.terms.lease_id, by=somebody(), now=self.now)
        if tries is None or tries.ended is not None:
            asked = ask_home(
                self.store,
                self.machine,
                overflow=self.overflow,
                ask_price=ask_market,
                by=somebody(),
                now=self.now,
            )
        self.go()
        self.go()
        return asked

    def begin(self, lease: Lease) -> None:
        """Let the clock start a lease, and its hosts the work."""
        self.clock_of(lease)
        for host_id in lease.hosts:
            leases.lease_started(
                self.store,
                lease_id=lease.terms.lease_id,
                host_id=host_id,
                by=somebody(),
                now=self.now,
            )

    def save(self, lease: Lease) -> None:
        """Let the work's host say that it is safe up to now."""
        for host_id in lease.hosts:
            leases.save_work(
                self.store,
                lease_id=lease.terms.lease_id,
                host_id=host_id,
                safe_at=self.now,
                by=somebody(),
                now=self.now,
            )

    def stop(self, lease: Lease, *, exit_code: int | None = None) -> None:
        """Let the clock look at a lease, and its hosts say that the work is gone."""
        self.clock_of(lease)
        for host_id in lease.hosts:
            leases.lease_stopped(
                self.store,
                lease_id=lease.terms.lease_id,
                host_id=host_id,
                exit_code=exit_code,
                by=somebody(),
                now=self.now,
            )
        self.go()
        self.go()

    def clock_of(self, lease: Lease) -> None:
        leases.advance_lease(
            self.store,
            lease_id=lease.terms.lease_id,
            start_grace=START_GRACE,
            by=somebody(),
            now=self.now,
        )

    @property
    def machine(self) -> BurstInstance:
        """Return the first machine that was rented."""
        (first, *_) = (
            recorded.event
            for recorded in self.events()
            if isinstance(recorded.event, BurstIntended)
        )
        found = load(self.store, BurstInstance, InstanceId(UUID(str(first.instance_id))))
        assert found is not None
        return found

    @property
    def in_cloud(self) -> Lease:
        """Return the lease that the bid got in the cloud."""
        return self.lease_of(BID)

    @property
    def at_home(self) -> Lease:
        """Return the lease that it moves to."""
        return self.lease_of(self.home_bid.terms.bid_id)

    @property
    def home_bid(self) -> Bid:
        """Return the last bid for a place at home."""
        asked = self.asked()
        assert asked, "it was never asked"
        bid = load(self.store, Bid, asked[-1].bid_id)
        assert bid is not None
        return bid

    def asked(self) -> list[HomeMoveAsked]:
        return [each.event for each in self.events() if isinstance(each.event, HomeMoveAsked)]

    def tries(self) -> HomeMoves:
        found = load(self.store, HomeMoves, self.in_cloud.terms.lease_id)
        assert found is not None
        return found

    def lease_of(self, bid_id: BidId) -> Lease:
        bid = load(self.store, Bid, bid_id)
        assert bid is not None and bid.lease_id is not None, "it has no lease"
        return self.lease_at(bid.lease_id)

    def lease_at(self, lease_id: LeaseId) -> Lease:
        lease = load(self.store, Lease, lease_id)
        assert lease is not None
        return lease
