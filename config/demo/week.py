"""A believable week, replayed through the real commands and engine on a store in memory.

In memory, because a week's decisions rest on each other and on nothing else: they are made in a
few seconds and then written to the real store in one go, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from uuid import UUID, uuid5
from zoneinfo import ZoneInfo

from config.demo.cast import DEMO, EVERY_MACHINE, Machine, Organisation
from config.demo.founding import gpus_of
from config.demo.playing import Played
from config.demo.pump import Pump
from config.demo.wants import BATCH, TASTES, Dice, Taste
from ledger.domain.ids import BidId, OfferId
from ledger.domain.money import Rate, nanos_of
from ledger.domain.refusal import Refusal
from ledger.domain.span import Window
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Meta
from listings import commands as listings
from listings.domain.events import WeeklyRule
from listings.domain.markets import Market
from listings.domain.terms import OfferTerms
from marketplace.commands import bids
from marketplace.domain.facts.events import LeaseScheduled
from marketplace.domain.leases.lease import Lease
from marketplace.engine import Engine
from marketplace.queries.routing import routed
from metering.domain.events import GpuUse

DAYS = 7
SEED = 20_261_128
BIDS_A_DAY = 130
EVERY_RECLAIM = 23
"""One lease in so many is reclaimed by its owner half-way."""


class Week(Played):
    """Seven days up to `ends_at`. `store` already holds the cast, its hosts and accounts.

    markets: those of the installation; none: `market` alone.
    """

    def __init__(
        self,
        store: MemoryStore,
        pump: Pump,
        *,
        market: str,
        currency: str,
        ends_at: datetime,
        markets: Sequence[Market] = (),
    ) -> None:
        self._markets = markets or (Market(market),)
        engines = [Engine(store, each.name, round_seconds=4 * 3_600) for each in self._markets]
        super().__init__(store, pump, *engines, actor="loop:demo")
        self._currency = currency
        self._ends_at = ends_at
        self._dice = Dice(SEED, market=market, currency=currency)

    def run(self) -> None:
        """Live through the week."""
        starts_at = self._ends_at - timedelta(days=DAYS)
        for organisation, machine in EVERY_MACHINE:
            self._list(organisation, machine, starts_at)
        self._plan_bids(starts_at)
        self.play(starts_at, self._ends_at)

    def _list(self, organisation: Organisation, machine: Machine, now: datetime) -> None:
        rule = WeeklyRule(
            zone=organisation.zone,
            days=tuple(range(7)),
            since=time(machine.idle_from % 24),
            until=time(machine.idle_to % 24),
            first=date(now.year, now.month, now.day),
        )
        gpus = [gpu.uuid for gpu in gpus_of(machine)]
        each = len(gpus) // len(machine.floors)
        for number, floor in enumerate(machine.floors):
            offer_id = OfferId(uuid5(DEMO, f"offer:{machine.slug}:{number}"))
            listings.publish_offer(
                self.store,
                offer_id=offer_id,
                host_id=machine.host_id,
                terms=OfferTerms(
                    gpu_uuids=tuple(gpus[number * each : (number + 1) * each]),
                    weekly=rule,
                    division=machine.shares,
                    floor=Rate(nanos_of(floor), self._currency),
                    lease_min_seconds=60,
                    notice_seconds=machine.notice_seconds,
                    grace_seconds=machine.grace_seconds,
                    reclaim_fee_ppm=machine.reclaim_fee_ppm,
                ),
                by=Meta(
                    actor="loop:demo",
                    tenant_id=organisation.tenant_id,
                    command_id=UUID(int=offer_id.int),
                ),
                now=now,
            )

    def _plan_bids(self, starts_at: datetime) -> None:
        """Let people bid by day, and leave what may run by night in the evening; less at weekends.

        Hours are Berlin's: the demand of New York comes later, and fills the evening.
        """
        dice, berlin = self._dice.random, ZoneInfo("Europe/Berlin")
        for _ in range(DAYS * BIDS_A_DAY):
            moment = starts_at + timedelta(days=dice.uniform(0, DAYS))
            local = moment.astimezone(berlin)
            if dice.random() < (0.4 if local.weekday() >= 5 else 0.05):
                continue
            by_night = dice.random() < 0.45
            tastes = BATCH if by_night else TASTES
            hour = dice.uniform(17, 24) if by_night else dice.triangular(7, 21, 14)
            at = local.replace(hour=0, minute=0) + timedelta(hours=hour)
            if starts_at < at < self._ends_at:
                self.at(at.astimezone(UTC), partial(self._bid, tastes))

    def _bid(self, tastes: Sequence[Taste], now: datetime) -> None:
        terms, by = self._dice.bid(now=now, tastes=tastes)
        try:
            terms, route = routed(self.store, terms, markets=self._markets, now=now)
            bids.place_bid(self.store, terms=terms, by=by, now=now, route=route)
        except Refusal:
            return  # what somebody cannot afford today
        if self._dice.random.random() < 0.04:
            self.at(now + timedelta(minutes=20), lambda later: self._cancel(terms.bid_id, later))

    def _cancel(self, bid_id: UUID, now: datetime) -> None:
        try:
            bids.cancel_bid(self.store, bid_id=BidId(bid_id), by=Meta(actor="loop:demo"), now=now)
        except Refusal:
            return  # too late: it was filled

    def met(self, scheduled: LeaseScheduled, number: int) -> None:
        """Let the owner of one lease in so many take it back half-way."""
        if (number + 1) % EVERY_RECLAIM == 0:
            half = scheduled.window.starts_at + scheduled.window.length / 2
            self.at(half, partial(self.reclaim, scheduled.lease_id))

    def uses(self, lease: Lease, window: Window) -> Iterator[GpuUse]:
        """Yield a believable load."""
        load_share = self._dice.random.uniform(0.55, 0.97)
        for share in lease.terms.shares:
            for uuid in share.gpu_uuids:
                occupied = int(window.millis * 0.99)
                busy = int(occupied * load_share * self._dice.random.uniform(0.9, 1.0))
                yield GpuUse(
                    uuid, share.host_id, share.owner_id, window.millis, occupied, busy, gap_ms=0
                )
