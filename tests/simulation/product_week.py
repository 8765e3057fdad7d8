"""The synthetic week through the product itself: real commands, engine and policies, in memory.

Every owner lists its hosts for the nights and the weekend, or for always, bids for its own and
others' GPUs, takes some back, and ends some work early. Nothing here decides what a grant is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, time, timedelta
from functools import partial
from uuid import UUID, uuid5

import listings.policies
import marketplace.policies
import metering.policies
from config.demo.playing import Played
from config.demo.pump import Pump
from ledger.commands import money, parties
from ledger.domain.account_ids import funds_account
from ledger.domain.ids import BidId, EntryId, HostId, OfferId, SubscriberId, TenantId
from ledger.domain.money import NANOS_PER_UNIT, Money, Rate
from ledger.domain.parties import PLATFORM_ID, tenant_id_of
from ledger.domain.refusal import Refusal
from ledger.domain.span import Window
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Meta, Recorded
from listings import commands as listing
from listings.domain.events import Gpu, WeeklyRule
from listings.domain.terms import OfferTerms
from marketplace.commands import bids
from marketplace.domain.bids.bid import BidTerms
from marketplace.domain.facts.events import GpuRequest, LeaseScheduled, Workload
from marketplace.domain.leases.lease import Lease
from marketplace.engine import Engine
from metering.domain.events import GpuUse
from tests.simulation.traces import GPUS_PER_NODE, synthetic_week

NAMES = UUID(int=0x51A0)
MARKET, CURRENCY = "main", "USD"
OWNERS, HOSTS_EACH = 3, 2
KEPT_SHARE = 0.16
"""Of the synthetic week's jobs: enough to crowd six hosts, few enough for a test."""
FUNDS = 100_000
ACTOR = "loop:simulation"
BY = Meta(actor=ACTOR)


class ProductWeek(Played):
    """A market of three owners with two hosts each, from `starts_at` on."""

    def __init__(self, seed: int, starts_at: datetime) -> None:
        store = MemoryStore()
        policies = (
            *listings.policies.POLICIES,
            *marketplace.policies.policies(fee_ppm=50_000),
            *metering.policies.POLICIES,
        )
        engine = Engine(store, MARKET, round_seconds=900)
        super().__init__(store, Pump(store, policies), engine, actor=ACTOR)
        self.starts_at = starts_at
        self._dice = random.Random(seed)
        self._seed = seed

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
            if self._is_kept():
                when = self.starts_at + timedelta(seconds=at)
                self.at(when, self._bidding(int(owner), int(gpus), length))
        self.play(self.starts_at, self.starts_at + timedelta(seconds=trace.horizon))
        return list(self.store.read_all(limit=1_000_000).events)

    def _is_kept(self) -> bool:
        """Tell if the next job of the trace takes part."""
        return self._dice.random() < KEPT_SHARE

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
                self.at(now + timedelta(minutes=20), lambda at: self._cancel(asked.bid_id, at))

        return bid

    def _cancel(self, bid_id: BidId, now: datetime) -> None:
        try:
            bids.cancel_bid(self.store, bid_id=bid_id, by=BY, now=now)
        except Refusal:
            return  # too late: it was filled

    # --- leases -----------------------------------------------------------------------------

    def met(self, scheduled: LeaseScheduled, number: int) -> None:
        """Let some owners take their GPUs back, and some consumers leave early."""
        lease_id, window, dice = scheduled.lease_id, scheduled.window, self._dice
        within = window.starts_at + window.length * dice.uniform(0.1, 0.9)
        chance = dice.random()
        if chance < 0.15:
            self.at(within, partial(self.reclaim, lease_id))
        elif chance < 0.25:
            self.at(within, partial(self.leave, lease_id))

    def uses(self, lease: Lease, window: Window) -> Iterator[GpuUse]:
        """Yield a load of a half."""
        for share in lease.terms.shares:
            for uuid in share.gpu_uuids:
                busy = window.millis // 2
                yield GpuUse(
                    uuid, share.host_id, share.owner_id, window.millis, busy, busy, gap_ms=0
                )


def tenant_of(owner: int) -> TenantId:
    """Return an owner's tenant, as registering its slug names it."""
    return tenant_id_of(f"owner-{owner}")


def unit_of(owner: int) -> SubscriberId:
    """Return the one unit of an owner that bids."""
    return SubscriberId(uuid5(NAMES, f"unit {owner}"))
