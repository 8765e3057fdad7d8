"""A market of one bid and one fake cloud on the memory store, with everybody played by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID, uuid5

from bursting.clouds.fake import FakeCloud
from bursting.clouds.port import CloudProvider, CloudTrouble, Instance
from bursting.commands.instances import advance_instance
from bursting.commands.returning import pass_warning_on, warned_by
from bursting.commands.spilling import Overflow, spill_bid
from bursting.domain.budget import Budget, month_of
from bursting.domain.capacity import InstancePrice, InstanceSpec
from bursting.domain.events import BurstIntended, InstanceId, StrayFound
from bursting.domain.instances import BurstInstance, host_of, offer_of
from bursting.domain.strays import Stray
from bursting.policies import POLICIES
from bursting.reaper import Reconciled, reconcile
from ledger.commands import open_tenant_accounts, register_tenant
from ledger.domain.account_ids import burst_account
from ledger.domain.accounts import Account
from ledger.domain.event import Event
from ledger.domain.ids import AccountId, BidId, HoldId, LeaseId, SubscriberId, TenantId
from ledger.domain.money import Money, Rate
from ledger.domain.span import Window
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import START, Appended, EventStore, Expect, Meta, NewEvent, load, record
from ledger.eventstore.together import record_together
from listings.commands import report_inventory
from listings.domain.events import Gpu
from listings.domain.hosts import Host
from listings.domain.offers import Offer
from marketplace.commands.grants import leasing
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts.events import (
    BidCancelled,
    BidFilled,
    BidPlaced,
    GpuRequest,
    LeaseClosed,
    LeaseEnding,
    LeaseGranted,
    Share,
    Workload,
)
from marketplace.domain.leases.lease import Lease
from tests.bursting.bids_and_offers import NOON, PLATFORM, RULES, cloud_offer

TESTER = Meta(actor="user:test")
LOOP = Meta(actor="loop:burst")
TENANT = TenantId(UUID(int=2))
LOCAL_OWNER = TenantId(UUID(int=9))
CATALOGUE = (
    cloud_offer("one-l4", zone="zone-a"),
    cloud_offer("one-l4", zone="zone-b", nanos=900_000_000),
)
BID = BidPlaced(
    bid_id=BidId(UUID(int=1)),
    tenant_id=TENANT,
    subscriber_id=SubscriberId(UUID(int=4)),
    user_id=None,
    account_id=AccountId(UUID(int=5)),
    hold_id=HoldId(UUID(int=1)),
    market="site-a",
    request=GpuRequest(models=("L4",)),
    gpus=1,
    placement="same-host",
    duration_seconds=3_600,
    earliest_start=NOON,
    deadline=NOON + timedelta(days=1),
    limit=Rate(2_000_000_000),
    service_class="on-demand",
    patience="immediate",
    workload=Workload(kind="finetune-7b"),
    cost_centre="cc-1",
    burst_allowed=True,
    at=NOON,
)


EventT = TypeVar("EventT", bound=Event)


THOUSAND = Money(1_000_000_000_000)


class Killed(BaseException):
    """The process died here: nothing catches it but the test."""


@dataclass
class Fuse:
    """Counts writes and calls, and kills the process at the one given; once."""

    kill_at: int | None = None
    burnt: int = 0

    def burn(self) -> None:
        self.burnt += 1
        if self.burnt == self.kill_at:
            raise Killed


class MortalStore(MemoryStore):
    """A store whose user may die just before and just after each append."""

    def __init__(self, fuse: Fuse) -> None:
        super().__init__()
        self.fuse = fuse

    def append(
        self, stream: str, events: Sequence[NewEvent], *, expected: int | Expect, by: Meta
    ) -> Appended:
        if by is TESTER:
            return super().append(stream, events, expected=expected, by=by)
        self.fuse.burn()
        appended = super().append(stream, events, expected=expected, by=by)
        self.fuse.burn()
        return appended


class MortalCloud(FakeCloud):
    """A cloud whose user may die just before and just after each call that changes something."""

    fuse: Fuse

    def launch(
        self,
        spec: InstanceSpec,
        *,
        token: str,
        tags: Mapping[str, str],
        ttl: timedelta,
        max_price: InstancePrice,
        environment: Mapping[str, str],
    ) -> Instance:
        self.fuse.burn()
        instance = super().launch(
            spec,
            token=token,
            tags=tags,
            ttl=ttl,
            max_price=max_price,
            environment=environment,
        )
        self.fuse.burn()
        return instance

    def terminate(self, instance_id: str, /) -> None:
        self.fuse.burn()
        super().terminate(instance_id)
        self.fuse.burn()


@dataclass
class Market:
    """Time moves only when told to; an agent reports only when told to."""

    fuse: Fuse = field(default_factory=Fuse)
    now: datetime = NOON + timedelta(seconds=RULES.wait_seconds)
    bid: BidPlaced = BID
    budget: Money = THOUSAND
    store: EventStore = field(init=False)
    cloud: MortalCloud = field(init=False)
    overflow: Overflow = field(init=False)

    def __post_init__(self) -> None:
        self.store = MortalStore(self.fuse)
        self.cloud = MortalCloud(catalogue=CATALOGUE, clock=lambda: self.now)
        self.cloud.fuse = self.fuse
        self.use(self.cloud)
        register_tenant(
            self.store, slug="platform", title="Platform", currency="USD", by=TESTER, now=NOON
        )
        open_tenant_accounts(
            self.store,
            tenant_id=PLATFORM,
            title="Platform",
            currency="USD",
            is_platform=True,
            by=TESTER,
            now=NOON,
        )
        self.place(self.bid)

    def use(self, cloud: CloudProvider) -> None:
        self.overflow = Overflow(
            clouds={cloud.name: cloud},
            rules=RULES,
            owner_id=PLATFORM,
            budget=self.budget,
            environment_of=lambda instance_id: {"OFFPEAK_HOST_ID": str(instance_id)},
        )

    def place(self, bid: BidPlaced) -> None:
        record(self.store, Bid, bid.bid_id, lambda state: [] if state else [bid], by=TESTER)

    def cancel_bid(self) -> None:
        cancelled = BidCancelled(bid_id=self.bid.bid_id, at=self.now)
        record(self.store, Bid, self.bid.bid_id, lambda _: [cancelled], by=TESTER)

    def spill(self) -> InstanceId:
        return spill_bid(
            self.store, bid_id=self.bid.bid_id, overflow=self.overflow, by=LOOP, now=self.now
        )

    def advance(self, instance_id: InstanceId) -> BurstInstance:
        return advance_instance(
            self.store, instance_id=instance_id, overflow=self.overflow, by=LOOP, now=self.now
        )

    def settle(self) -> None:
        """Do what the policies do, twice, since they may be told twice."""
        page = self.store.read_all(after=START, limit=10_000)
        for recorded in page.events:
            for policy in POLICIES:
                if recorded.type in policy.on:
                    policy.react(recorded, self.store)
                    policy.react(recorded, self.store)

    def reap(self) -> Reconciled:
        return reconcile(
            self.store,
            self.overflow.clouds[next(iter(self.overflow.clouds))],
            owner_id=PLATFORM,
            instance_ids=self.intended(),
            stray_ids=[found.stray_id for found in self.events(StrayFound)],
            by=LOOP,
            now=self.now,
        )

    def stray(self) -> Stray:
        """Return the one machine that ran outside the record."""
        (found,) = self.events(StrayFound)
        stray = load(self.store, Stray, found.stray_id)
        assert stray is not None
        return stray

    def billed(self) -> int:
        """Return what the cloud charges for all that ever ran, by its own account of it."""
        return sum(money.nanos for money in self.cloud.bill().values())

    def tick(self) -> None:
        """Make one pass of every loop, as the supervisor does; what a cloud refuses waits."""
        for instance_id in self.intended():
            try:
                self.advance(instance_id)
            except CloudTrouble:
                continue
        self.settle()

    def report_gpus(
        self,
        instance_id: InstanceId,
        gpus: int = 1,
        *,
        model: str = "NVIDIA L4",
        memory_mib: int = 23_034,
    ) -> None:
        """Play the agent on the instance."""
        found = [
            Gpu(
                uuid=f"GPU-{uuid5(instance_id, str(index))}",
                model=model,
                memory_mib=memory_mib,
                compute_capability="8.9",
                driver="580.65",
            )
            for index in range(gpus)
        ]
        report_inventory(
            self.store, host_id=host_of(instance_id), gpus=found, by=TESTER, now=self.now
        )

    def listed(self) -> InstanceId:
        """Bring a first instance up to where it is listed."""
        instance_id = self.spill()
        self.advance(instance_id)
        self.report_gpus(instance_id)
        assert self.advance(instance_id).state == "running"
        return instance_id

    def grant(self, instance_id: InstanceId | None) -> LeaseId:
        """Play the engine: a lease on the instance, or on a local host for None."""
        lease_id = LeaseId(uuid5(self.bid.bid_id, "lease"))
        offer = load(self.store, Offer, offer_of(instance_id)) if instance_id else None
        share = Share(
            offer_id=offer_of(instance_id or InstanceId(UUID(int=77))),
            host_id=host_of(instance_id or InstanceId(UUID(int=77))),
            owner_id=PLATFORM if offer else LOCAL_OWNER,
            gpu_uuids=(offer.published.gpus[0].uuid if offer else "GPU-local",),
            notice_seconds=offer.published.notice_seconds if offer else 300,
            reclaim_fee_ppm=0,
            source="burst" if offer else "local",
        )
        granted = LeaseGranted(
            lease_id=lease_id,
            bid_id=self.bid.bid_id,
            market=self.bid.market,
            round_id=UUID(int=6),
            shares=(share,),
            gpu_model="L4",
            window=Window(self.now, self.now + timedelta(seconds=self.bid.duration_seconds)),
            price=offer.published.floor if offer else Rate(1),
            at=self.now,
        )
        bid = load(self.store, Bid, self.bid.bid_id)
        assert bid is not None
        record_together(self.store, [leasing(granted, bid, 0, TESTER)])
        filled = BidFilled(bid_id=self.bid.bid_id, lease_id=lease_id, at=self.now)
        record(self.store, Bid, self.bid.bid_id, lambda _: [filled], by=TESTER)
        return lease_id

    def close(self, lease_id: LeaseId) -> None:
        """End a lease as its agent and its clock would."""
        events: list[Event] = [
            LeaseEnding(lease_id=lease_id, reason=301, at=self.now),
            LeaseClosed(
                lease_id=lease_id,
                market=self.bid.market,
                reason=301,
                failed=False,
                compensation=None,
                compensation_from=None,
                at=self.now,
            ),
        ]
        record(self.store, Lease, lease_id, lambda _: events, by=TESTER)

    def warn(self, instance_id: InstanceId, *, at: datetime) -> None:
        """Let the cloud give notice, and the loop hear of it."""
        ref = self.instance(instance_id).cloud_ref
        assert ref is not None
        self.cloud.faults.interrupt(ref, at=at, reason="marked-for-termination")
        warned = warned_by(self.store, self.cloud, instance_ids=self.intended(), now=self.now)
        for each, gone_at in warned:
            pass_warning_on(self.store, each, gone_at=gone_at, by=LOOP, now=self.now)

    def intended(self) -> list[InstanceId]:
        return [event.instance_id for event in self.events(BurstIntended)]

    def lease(self, lease_id: LeaseId) -> Lease:
        lease = load(self.store, Lease, lease_id)
        assert lease is not None
        return lease

    def later(self, **span: float) -> None:
        self.now += timedelta(**span)

    def events(self, kind: type[EventT]) -> list[EventT]:
        page = self.store.read_all(after=START, limit=10_000)
        return [r.event for r in page.events if isinstance(r.event, kind)]

    def instance(self, instance_id: InstanceId) -> BurstInstance:
        instance = load(self.store, BurstInstance, instance_id)
        assert instance is not None
        return instance

    def offer(self, instance_id: InstanceId) -> Offer | None:
        return load(self.store, Offer, offer_of(instance_id))

    def host(self, instance_id: InstanceId) -> Host | None:
        return load(self.store, Host, host_of(instance_id))

    def month(self) -> Budget:
        return load(self.store, Budget, month_of(NOON)) or Budget(month=month_of(NOON))

    def cost(self) -> int:
        account = load(self.store, Account, burst_account(PLATFORM, "USD"))
        assert account is not None
        return -account.total.nanos

    def alive(self) -> set[str]:
        """Return what the cloud really runs, whatever it shows."""
        return {ref for ref, rented in self.cloud._rented.items() if not rented.is_ended}

    def on_record(self) -> set[str]:
        """Return the cloud's ids of the instances on record that are not over."""
        known = [self.instance(instance_id) for instance_id in self.intended()]
        return {i.cloud_ref for i in known if i.cloud_ref and not i.is_final}


def bid_like(**changes: object) -> BidPlaced:
    return replace(BID, **changes)  # type: ignore[arg-type]  # fields by name
