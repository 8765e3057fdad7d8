"""A believable week, replayed through the real commands and engine on a store in memory.

In memory, because a week's decisions rest on each other and on nothing else: they are made in a
few seconds and then written to the real store in one go, or not at all.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from itertools import count
from uuid import UUID, uuid5
from zoneinfo import ZoneInfo

from config.demo.cast import DEMO, EVERY_MACHINE, Machine, Organisation
from config.demo.founding import gpus_of
from config.demo.pump import Pump
from config.demo.wants import Dice
from ledger.domain.ids import BidId, LeaseId, OfferId
from ledger.domain.money import Rate, nanos_of
from ledger.domain.refusal import Refusal
from ledger.domain.span import Window
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import START, Meta, load
from listings import commands as listings
from listings.domain.events import WeeklyRule
from listings.domain.terms import OfferTerms
from marketplace.commands import bids, leases
from marketplace.domain.events import LeaseInterrupted, LeaseScheduled
from marketplace.domain.leases import Lease
from marketplace.engine import Engine
from metering import commands as metering
from metering.domain.events import GpuUse

DAYS = 7
SEED = 20_261_128
BIDS_A_DAY = 48
PASS_EVERY = timedelta(minutes=30)
REPORT = timedelta(seconds=3)
"""How long after a decision the host's agent says that it is done."""
START_GRACE = timedelta(minutes=10)
EVERY_RECLAIM = 23
"""One lease in so many is reclaimed by its owner half-way."""


class Week:
    """Seven days up to `ends_at`. `store` already holds the cast, its hosts and accounts."""

    def __init__(
        self, store: MemoryStore, pump: Pump, *, market: str, currency: str, ends_at: datetime
    ) -> None:
        self._store = store
        self._pump = pump
        self._currency = currency
        self._ends_at = ends_at
        self._dice = Dice(SEED, market=market, currency=currency)
        self._engine = Engine(store, market, round_seconds=3_600)
        self._agenda: list[tuple[datetime, int, Callable[[datetime], None]]] = []
        self._number = count()
        self._seen = START
        self._leases = 0
        self._running: list[LeaseId] = []

    def run(self) -> None:
        """Live through the week."""
        starts_at = self._ends_at - timedelta(days=DAYS)
        for organisation, machine in EVERY_MACHINE:
            self._list(organisation, machine, starts_at)
        for moment in self._bid_moments(starts_at):
            self._at(moment, self._bid)
        moment = starts_at
        while moment < self._ends_at:
            self._at(moment, lambda now: None)
            moment += PASS_EVERY
        while self._agenda:
            now, _, act = heapq.heappop(self._agenda)
            if now >= self._ends_at:
                break
            act(now)
            self._engine.run_once(now=now)
            self._pump.run()
            self._meet_new_leases()
        for lease_id in self._running:
            self._leave(lease_id, self._ends_at)
        self._pump.run()

    def _at(self, moment: datetime, act: Callable[[datetime], None]) -> None:
        heapq.heappush(self._agenda, (moment, next(self._number), act))

    def _list(self, organisation: Organisation, machine: Machine, now: datetime) -> None:
        rule = WeeklyRule(
            zone=organisation.zone,
            days=tuple(range(7)),
            since=time(machine.idle_from % 24),
            until=time(machine.idle_to % 24),
            first=date(now.year, now.month, now.day),
        )
        offer_id = OfferId(uuid5(DEMO, f"offer:{machine.slug}"))
        listings.publish_offer(
            self._store,
            offer_id=offer_id,
            host_id=machine.host_id,
            terms=OfferTerms(
                gpu_uuids=tuple(gpu.uuid for gpu in gpus_of(machine)),
                weekly=rule,
                floor=Rate(nanos_of(machine.floor), self._currency),
                lease_min_seconds=60,
                notice_seconds=machine.notice_seconds,
                reclaim_fee_ppm=machine.reclaim_fee_ppm,
            ),
            by=Meta(
                actor="loop:demo",
                tenant_id=organisation.tenant_id,
                command_id=UUID(int=offer_id.int),
            ),
            now=now,
        )

    def _bid_moments(self, starts_at: datetime) -> Iterator[datetime]:
        """Draw when people bid: most of them by day, few at night and at weekends."""
        dice = self._dice.random
        berlin = ZoneInfo("Europe/Berlin")
        for _ in range(DAYS * BIDS_A_DAY * 2):
            moment = starts_at + timedelta(days=dice.uniform(0, DAYS))
            local = moment.astimezone(berlin)
            busy = 0.9 if 8 <= local.hour < 20 else 0.35
            if dice.random() < busy * (0.6 if local.weekday() >= 5 else 1.0):
                yield moment

    def _bid(self, now: datetime) -> None:
        terms, by = self._dice.bid(now=now)
        try:
            bids.place_bid(self._store, terms=terms, by=by, now=now)
        except Refusal:
            return  # what somebody cannot afford today
        if self._dice.random.random() < 0.04:
            self._at(now + timedelta(minutes=20), lambda later: self._cancel(terms.bid_id, later))

    def _cancel(self, bid_id: UUID, now: datetime) -> None:
        try:
            bids.cancel_bid(self._store, bid_id=BidId(bid_id), by=Meta(actor="loop:demo"), now=now)
        except Refusal:
            return  # too late: it was filled

    def _meet_new_leases(self) -> None:
        page = self._store.read_all(
            after=self._seen,
            limit=10_000,
            only=frozenset({LeaseScheduled.name, LeaseInterrupted.name}),
        )
        self._seen = page.next_position
        for recorded in page.events:
            scheduled = recorded.event
            if isinstance(scheduled, LeaseInterrupted):
                key = scheduled.lease_id
                self._at(scheduled.stop_at, lambda now, key=key: self._end(key, now))  # type: ignore[misc]
                continue
            assert isinstance(scheduled, LeaseScheduled)
            self._leases += 1
            lease_id = scheduled.lease_id
            self._running.append(lease_id)
            self._at(scheduled.window.starts_at, lambda now, key=lease_id: self._start(key, now))  # type: ignore[misc]  # a default binds the loop's value
            self._at(scheduled.window.ends_at, lambda now, key=lease_id: self._end(key, now))  # type: ignore[misc]
            if self._leases % EVERY_RECLAIM == 0:
                half = scheduled.window.starts_at + scheduled.window.length / 2
                self._at(half, lambda now, key=lease_id: self._reclaim(key, now))  # type: ignore[misc]

    def _start(self, lease_id: LeaseId, now: datetime) -> None:
        lease = self._tick(lease_id, now)
        for host_id in sorted(lease.hosts):
            leases.lease_started(
                self._store,
                lease_id=lease_id,
                host_id=host_id,
                by=Meta(actor=f"agent:{host_id}"),
                now=now + REPORT,
            )

    def _end(self, lease_id: LeaseId, now: datetime) -> None:
        lease = self._tick(lease_id, now)
        if lease.state == "ending":
            for host_id in sorted(lease.hosts):
                leases.lease_stopped(
                    self._store,
                    lease_id=lease_id,
                    host_id=host_id,
                    exit_code=None,
                    by=Meta(actor=f"agent:{host_id}"),
                    now=now + REPORT,
                )
            self._meter(lease, now)

    def _leave(self, lease_id: LeaseId, now: datetime) -> None:
        """Let the consumer go: who is still there when the replay ends has no work anywhere."""
        lease = load(self._store, Lease, lease_id)
        assert lease is not None
        if not lease.over:
            who = Meta(actor="loop:demo", tenant_id=lease.terms.tenant_id)
            leases.close_lease(self._store, lease_id=lease_id, by=who, now=now)
            self._pump.run()
            if lease.started:
                self._end(lease_id, now)
            else:
                metering.close_meter(self._store, lease_id=lease_id, by=who, now=now)

    def _reclaim(self, lease_id: LeaseId, now: datetime) -> None:
        lease = load(self._store, Lease, lease_id)
        assert lease is not None
        owner_id = lease.terms.shares[0].owner_id
        try:
            leases.reclaim_lease(
                self._store,
                lease_id=lease_id,
                owner_id=owner_id,
                by=Meta(actor="loop:demo", tenant_id=owner_id),
                now=now,
            )
        except Refusal:
            return
        lease = load(self._store, Lease, lease_id)
        assert lease is not None and lease.stop_at is not None
        self._at(lease.stop_at, lambda later: self._end(lease_id, later))

    def _tick(self, lease_id: LeaseId, now: datetime) -> Lease:
        by = Meta(actor="loop:lease-clock")
        leases.advance_lease(
            self._store, lease_id=lease_id, start_grace=START_GRACE, by=by, now=now
        )
        lease = load(self._store, Lease, lease_id)
        assert lease is not None
        return lease

    def _meter(self, lease: Lease, ended_at: datetime) -> None:
        """Close the usage windows of a lease that is over, hour by hour, as samples would have."""
        self._pump.run()
        by = Meta(actor="loop:usage")
        lease_id = lease.terms.lease_id
        for window in _hours(Window(lease.terms.window.starts_at, ended_at)):
            metering.close_usage_window(
                self._store,
                lease_id=lease_id,
                window=window,
                gpus=tuple(self._uses(lease, window)),
                gaps=(),
                by=by,
                now=window.ends_at + timedelta(seconds=30),
            )
        metering.close_meter(
            self._store, lease_id=lease_id, by=by, now=ended_at + timedelta(minutes=1)
        )

    def _uses(self, lease: Lease, window: Window) -> Iterator[GpuUse]:
        load_share = self._dice.random.uniform(0.55, 0.97)
        for share in lease.terms.shares:
            for uuid in share.gpu_uuids:
                occupied = int(window.millis * 0.99)
                busy = int(occupied * load_share * self._dice.random.uniform(0.9, 1.0))
                yield GpuUse(
                    uuid, share.host_id, share.owner_id, window.millis, occupied, busy, gap_ms=0
                )


def _hours(span: Window) -> Iterator[Window]:
    """Cut a span at the full hours."""
    starts_at = span.starts_at
    while starts_at < span.ends_at:
        full = starts_at.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        ends_at = min(full, span.ends_at)
        yield Window(starts_at, ends_at)
        starts_at = ends_at
