"""The synthetic week through the product itself: real commands, engine and policies, in memory.

Every owner lists its hosts for the nights and the weekend, or for always, bids for its own and
others' GPUs, takes some back, and ends some work early. Nothing here decides what a grant is.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, time, timedelta
from itertools import count
from uuid import UUID, uuid5

import listings.policies
import marketplace.policies
import metering.policies
from config.demo.pump import Pump
from ledger.commands import money, parties
from ledger.domain.account_ids import funds_account
from ledger.domain.ids import BidId, EntryId, HostId, LeaseId, OfferId, SubscriberId, TenantId
from ledger.domain.money import NANOS_PER_UNIT, Money, Rate
from ledger.domain.parties import PLATFORM_ID, tenant_id_of
from ledger.domain.refusal import Refusal
from ledger.domain.span import Window
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import START, Meta, Recorded, load
from listings import commands as listing
from listings.domain.events import Gpu, WeeklyRule
from listings.domain.terms import OfferTerms
from marketplace.commands import bids, leases
from marketplace.domain.bids import BidTerms
from marketplace.domain.events import GpuRequest, LeaseScheduled, Workload
from marketplace.domain.leases import Lease
from marketplace.engine import Engine
from metering import commands as meters
from metering.domain.events import GpuUse
from tests.simulation.traces import GPUS_PER_NODE, synthetic_week

NAMES = UUID(int=0x51A0)
MARKET, CURRENCY = "main", "USD"
OWNERS, HOSTS_EACH = 3, 2
KEPT_SHARE = 0.08
"""Of the synthetic week's jobs: enough to crowd six hosts, few enough for a test."""
FUNDS = 100_000
START_GRACE = timedelta(minutes=10)
REPORT = timedelta(seconds=3)
BY = Meta(actor="loop:simulation")


class ProductWeek:
    """A market of three owners with two hosts each, from `starts_at` on."""

    def __init__(self, seed: int, starts_at: datetime) -> None:
        self.store = MemoryStore()
        self.starts_at = starts_at
        self._dice = random.Random(seed)
        self._seed = seed
        self._engine = Engine(self.store, MARKET, round_seconds=900)
        self._pump = Pump(
            self.store,
            (
                *listings.policies.POLICIES,
                *marketplace.policies.policies(fee_ppm=50_000),
                *metering.policies.POLICIES,
            ),
        )
        self._agenda: list[tuple[datetime, int, Callable[[datetime], None]]] = []
        self._number = count()
        self._seen = START
        self._running: list[LeaseId] = []

    def live(self) -> list[Recorded]:
        """Live through the week; return everything that was recorded."""
        self._found()
        trace = synthetic_week(self._seed, owners=OWNERS)
        jobs = trace.jobs
        for at, length, gpus, owner in zip(
            jobs.arrival.tolist(),
            jobs.duration.tolist(),
            jobs.gpus.tolist(),
            jobs.owner.tolist(),
            strict=True,
        ):
            if self._dice.random() < KEPT_SHARE:
                when = self.starts_at + timedelta(seconds=at)
                self._at(when, self._bidding(int(owner), int(gpus), length))
        ends_at = self.starts_at + timedelta(seconds=trace.horizon)
        moment = self.starts_at
        while moment < ends_at:
            self._at(moment, lambda now: None)
            moment += timedelta(minutes=30)
        while self._agenda:
            now, _, act = heapq.heappop(self._agenda)
            if now >= ends_at:
                break
            act(now)
            self._engine.run_once(now=now)
            self._pump.run()
            self._meet_new_leases()
        for lease_id in self._running:
            self._leave(lease_id, ends_at)
        self._pump.run()
        return list(self.store.read_all(limit=1_000_000).events)

    # --- founding ---------------------------------------------------------------------------

    def _found(self) -> None:
        now = self.starts_at - timedelta(hours=1)
        money.open_tenant_accounts(
            self.store,
            tenant_id=PLATFORM_ID,
            title="Platform",
            currency=CURRENCY,
            is_platform=True,
            by=BY,
            now=now,
        )
        for owner in range(OWNERS):
            by = Meta(actor="loop:simulation", tenant_id=tenant_of(owner))
            parties.register_tenant(
                self.store, slug=f"owner-{owner}", title=f"Owner {owner}", currency=CURRENCY,
                by=by, now=now,
            )  # fmt: skip
            money.open_tenant_accounts(
                self.store, tenant_id=tenant_of(owner), title=f"Owner {owner}",
                currency=CURRENCY, is_platform=False, by=by, now=now,
            )  # fmt: skip
            self._fund(owner, by, now)
            for host in range(HOSTS_EACH):
                self._list(owner, host, by, now)

    def _fund(self, owner: int, by: Meta, now: datetime) -> None:
        account_id = funds_account(unit_of(owner), CURRENCY)
        money.open_account(
            self.store,
            account_id=account_id,
            tenant_id=tenant_of(owner),
            subscriber_id=unit_of(owner),
            kind="prepaid",
            title="Wallet",
            currency=CURRENCY,
            overdraft_nanos=0,
            by=by,
            now=now,
        )
        money.add_funds(
            self.store,
            account_id=account_id,
            entry_id=EntryId(uuid5(NAMES, f"funds {owner}")),
            money=Money(FUNDS * NANOS_PER_UNIT, CURRENCY),
            reference="simulation",
            platform_id=PLATFORM_ID,
            by=by.step("funds"),
            now=now,
        )

    def _list(self, owner: int, host: int, by: Meta, now: datetime) -> None:
        name = f"host {owner} {host}"
        host_id = HostId(uuid5(NAMES, name))
        listing.register_host(
            self.store,
            host_id=host_id,
            tenant_id=tenant_of(owner),
            title=name.replace(" ", "-"),
            market=MARKET,
            region="eu",
            by=by,
            now=now,
        )
        gpus = tuple(
            Gpu(
                uuid=f"GPU-{uuid5(NAMES, f'{name} {index}')}",
                model="A100-80GB",
                memory_mib=81_920,
                compute_capability="8.0",
                driver="570.86",
                nvlink_group=None,
            )
            for index in range(GPUS_PER_NODE)
        )
        listing.report_inventory(self.store, host_id=host_id, gpus=gpus, by=by, now=now)
        always = host == 0
        rule = WeeklyRule(
            zone="Europe/Berlin",
            days=tuple(range(7)),
            since=time(0) if always else time(19),
            until=time(0) if always else time(7),
            first=now.date(),
        )
        listing.publish_offer(
            self.store,
            offer_id=OfferId(uuid5(NAMES, f"offer {name}")),
            host_id=host_id,
            terms=OfferTerms(
                gpu_uuids=tuple(gpu.uuid for gpu in gpus),
                weekly=rule,
                floor=Rate((10 + 3 * owner) * NANOS_PER_UNIT // 10, CURRENCY),
                lease_min_seconds=60,
                notice_seconds=120,
                reclaim_fee_ppm=100_000,
            ),
            by=by,
            now=now,
        )

    # --- bids -------------------------------------------------------------------------------

    def _at(self, moment: datetime, act: Callable[[datetime], None]) -> None:
        heapq.heappush(self._agenda, (moment, next(self._number), act))

    def _bidding(self, owner: int, gpus: int, length: float) -> Callable[[datetime], None]:
        dice = self._dice
        seconds = max(60, int(length) // 60 * 60)
        terms = BidTerms(
            bid_id=BidId(UUID(int=dice.getrandbits(128), version=4)),
            tenant_id=tenant_of(owner),
            subscriber_id=unit_of(owner),
            user_id=None,
            account_id=funds_account(unit_of(owner), CURRENCY),
            market=MARKET,
            request=GpuRequest(),
            gpus=gpus,
            placement="same-host" if gpus <= GPUS_PER_NODE else "any-hosts",
            duration_seconds=seconds,
            limit=Rate(dice.randint(12, 40) * NANOS_PER_UNIT // 10, CURRENCY),
            service_class=dice.choice(("on-demand", "interruptible")),
            patience=dice.choice(("immediate", "patient")),
            workload=Workload(kind="training"),
        )
        waits = timedelta(hours=dice.choice((0.1, 0.5, 6)))
        cancelled = dice.random() < 0.1

        def bid(now: datetime) -> None:
            deadline = now + timedelta(seconds=seconds) + waits
            asked = replace(terms, earliest_start=now, deadline=deadline)
            try:
                bids.place_bid(self.store, terms=asked, by=BY, now=now)
            except Refusal:
                return  # what it cannot afford any more
            if cancelled:
                self._at(now + timedelta(minutes=20), lambda at: self._cancel(asked.bid_id, at))

        return bid

    def _cancel(self, bid_id: BidId, now: datetime) -> None:
        try:
            bids.cancel_bid(self.store, bid_id=bid_id, by=BY, now=now)
        except Refusal:
            return  # too late: it was filled

    # --- leases -----------------------------------------------------------------------------

    def _meet_new_leases(self) -> None:
        page = self.store.read_all(
            after=self._seen, limit=10_000, only=frozenset({LeaseScheduled.name})
        )
        self._seen = page.next_position
        for recorded in page.events:
            scheduled = recorded.event
            assert isinstance(scheduled, LeaseScheduled)
            self._running.append(scheduled.lease_id)
            self._plan(scheduled)

    def _plan(self, lease: LeaseScheduled) -> None:
        lease_id, window, dice = lease.lease_id, lease.window, self._dice
        self._at(window.starts_at, lambda now: self._start(lease_id, now))
        self._at(window.ends_at, lambda now: self._end(lease_id, now))
        within = window.starts_at + window.length * dice.uniform(0.1, 0.9)
        chance = dice.random()
        if chance < 0.15:
            self._at(within, lambda now: self._reclaim(lease_id, now))
        elif chance < 0.25:
            self._at(within, lambda now: self._leave(lease_id, now))

    def _start(self, lease_id: LeaseId, now: datetime) -> None:
        for host_id in sorted(self._tick(lease_id, now).hosts):
            try:
                leases.lease_started(
                    self.store, lease_id=lease_id, host_id=host_id, by=BY, now=now + REPORT
                )
            except Refusal:
                return  # it is over already

    def _end(self, lease_id: LeaseId, now: datetime) -> None:
        lease = self._tick(lease_id, now)
        if lease.state != "ending":
            return
        for host_id in sorted(lease.hosts):
            leases.lease_stopped(
                self.store, lease_id=lease_id, host_id=host_id, exit_code=None, by=BY,
                now=now + REPORT,
            )  # fmt: skip
        self._pump.run()
        for window in _hours(lease.terms.window.starts_at, now):
            meters.close_usage_window(
                self.store, lease_id=lease_id, window=window, gpus=tuple(_uses(lease, window)),
                gaps=(), by=BY, now=window.ends_at + timedelta(seconds=30),
            )  # fmt: skip
        meters.close_meter(self.store, lease_id=lease_id, by=BY, now=now + timedelta(minutes=1))

    def _reclaim(self, lease_id: LeaseId, now: datetime) -> None:
        owner_id = self._lease(lease_id).terms.shares[0].owner_id
        try:
            leases.reclaim_lease(self.store, lease_id=lease_id, owner_id=owner_id, by=BY, now=now)
        except Refusal:
            return  # over, or nearly so
        stop_at = self._lease(lease_id).stop_at
        assert stop_at is not None
        self._at(stop_at, lambda at: self._end(lease_id, at))

    def _leave(self, lease_id: LeaseId, now: datetime) -> None:
        lease = self._lease(lease_id)
        if lease.over:
            return
        leases.close_lease(self.store, lease_id=lease_id, by=BY, now=now)
        self._pump.run()
        if lease.started:
            self._end(lease_id, now)
        else:
            meters.close_meter(self.store, lease_id=lease_id, by=BY, now=now)

    def _tick(self, lease_id: LeaseId, now: datetime) -> Lease:
        leases.advance_lease(self.store, lease_id=lease_id, start_grace=START_GRACE, by=BY, now=now)
        return self._lease(lease_id)

    def _lease(self, lease_id: LeaseId) -> Lease:
        lease = load(self.store, Lease, lease_id)
        assert lease is not None
        return lease


def tenant_of(owner: int) -> TenantId:
    """Return an owner's tenant, as registering its slug names it."""
    return tenant_id_of(f"owner-{owner}")


def unit_of(owner: int) -> SubscriberId:
    """Return the one unit of an owner that bids."""
    return SubscriberId(uuid5(NAMES, f"unit {owner}"))


def _uses(lease: Lease, window: Window) -> Iterator[GpuUse]:
    for share in lease.terms.shares:
        for uuid in share.gpu_uuids:
            busy = window.millis // 2
            yield GpuUse(uuid, share.host_id, share.owner_id, window.millis, busy, busy, gap_ms=0)


def _hours(starts_at: datetime, until: datetime) -> Iterator[Window]:
    while starts_at < until:
        full = starts_at.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        ends_at = min(full, until)
        yield Window(starts_at, ends_at)
        starts_at = ends_at
