"""What happens while you watch: bids every few seconds, now and then a reclaim or a burst.

Work takes hours here as anywhere: so at first the market fills within minutes, then most bids wait
for who ends, and short sessions, reclaims and new listings keep it moving.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count

import structlog
from django.db import DatabaseError, connection

from config.demo.cast import CIRRUS
from config.demo.fleet import Fleet
from config.demo.wants import BATCH, SESSIONS, Dice, frugal
from ledger.domain.ids import LeaseId, TenantId
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta, StoreError
from ledger.rest.problems import outage_problem
from listings.domain.markets import Market
from marketplace.commands import bids, leases
from marketplace.domain.bids.bid import BidTerms
from marketplace.models.bids import BidRow
from marketplace.models.leases import LeaseRow
from marketplace.queries.routing import routed

BID_EVERY = timedelta(seconds=4)
WAITING_MAX = 12
"""As many bids wait for a free GPU, so that whoever lists one finds a taker; then only sessions."""
SESSION_EVERY = timedelta(seconds=20)
BATCH_HOURS, SESSION_HOURS = 0.4, 0.1
"""How long an hour of work takes: batches run for two hours or so, sessions for minutes."""
RECLAIM_EVERY = timedelta(minutes=8)
"""What an owner takes back is off the market until the lease would have ended."""
RECLAIM_LEFT = timedelta(minutes=4)
BURST_EVERY = timedelta(seconds=240)
STEP_SECONDS = 0.5
AWAY_SECONDS = 2.0

PATIENT = tuple(replace(frugal(taste), waits=6.0) for taste in BATCH)
"""Nobody watches through a night: what finds no GPU now stays in the book."""
BRIEF = tuple(frugal(taste) for taste in SESSIONS)

log = structlog.get_logger()


class Live:
    """The demo's activity, one small thing at a time."""

    def __init__(
        self,
        store: EventStore,
        fleet: Fleet,
        *,
        market: str,
        currency: str,
        now: datetime,
        markets: Sequence[Market] = (),
    ) -> None:
        self._store = store
        self._markets = markets or (Market(market),)
        self._fleet = fleet
        self._dice = Dice(int(now.timestamp()), market=market, currency=currency)
        self._due: list[tuple[Callable[[datetime], None], timedelta, datetime]] = [
            (self._bid, BID_EVERY, now),
            (self._session, SESSION_EVERY, now),
            (self._burst, BURST_EVERY, now + timedelta(seconds=10)),
            (self._reclaim, RECLAIM_EVERY, now + timedelta(seconds=60)),
        ]
        self._bursts = count()

    def run(self, stop: threading.Event) -> None:
        """Go on until `stop` is set."""
        while not stop.is_set():
            try:
                self._step(datetime.now(UTC))
            except (StoreError, DatabaseError) as lost:
                if outage_problem(lost) is None:
                    raise
                log.warning("demo.waiting", error=str(lost).strip())
                connection.close()
                stop.wait(AWAY_SECONDS)
            stop.wait(STEP_SECONDS)

    def _step(self, now: datetime) -> None:
        self._fleet.follow_rented()
        for index, (act, every, due) in enumerate(self._due):
            if now >= due:
                self._due[index] = (act, every, now + every)
                try:
                    act(now)
                except Refusal as refusal:
                    log.info("demo.refused", what=act.__name__, code=refusal.code)

    def _bid(self, now: datetime) -> None:
        """Ask for hours, as long as not too many wait for them."""
        if BidRow.objects.filter(state="open").count() < WAITING_MAX:
            self._place(*self._dice.bid(now=now, tastes=PATIENT, hours=BATCH_HOURS), now)

    def _session(self, now: datetime) -> None:
        """Ask for minutes, soon."""
        self._place(*self._dice.bid(now=now, tastes=BRIEF, hours=SESSION_HOURS), now)

    def _burst(self, now: datetime) -> None:
        """Ask for what nobody here owns, with leave to rent it."""
        terms, by = self._dice.terms(
            CIRRUS,
            CIRRUS.units[0],
            query="gpu=L4",
            gpus=1,
            seconds=180,
            limit="1.60",
            kind="interactive",
            patience_seconds=1_800,
            burst_allowed=True,
            now=now,
        )
        self._place(terms, by, now)

    def _place(self, terms: BidTerms, by: Meta, now: datetime) -> None:
        """Place a bid in the market that serves it best."""
        terms, route = routed(self._store, terms, markets=self._markets, now=now)
        bids.place_bid(self._store, terms=terms, by=by, now=now, route=route)

    def _reclaim(self, now: datetime) -> None:
        """Let an owner take a GPU back from the lease that ends next, but not at once."""
        running = LeaseRow.objects.filter(state="active", burst=False)
        row = running.filter(ends_at__gt=now + RECLAIM_LEFT).order_by("ends_at").first()
        if row is None:
            return
        owner_id = TenantId(row.owner_ids[0])
        leases.reclaim_lease(
            self._store,
            lease_id=LeaseId(row.lease_id),
            owner_id=owner_id,
            by=Meta(actor="loop:demo", tenant_id=owner_id),
            now=now,
        )
