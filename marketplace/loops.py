"""What the market does by the clock. Each is one pass, called again and again by a runner."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import structlog

from ledger.domain.ids import BidId, LeaseId
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta
from ledger.eventstore.together import Part, record_each
from ledger.queries import stray_holds
from marketplace.commands.bids import release_stray_hold
from marketplace.commands.extending import extend_when_due
from marketplace.commands.moving import ask_for_move
from marketplace.domain.events import LeaseEvent
from marketplace.domain.leases import Lease, LeaseUnknown
from marketplace.domain.moving import PAUSE, better
from marketplace.queries.bids import bids_known
from marketplace.queries.extensions import leases_ending
from marketplace.queries.leases import due_leases
from marketplace.queries.moving import looks, waiting_bids

BATCH = 500
TOGETHER = 100
"""Leases that the clock moves in one append."""
CLOCK = Meta(actor="loop:lease-clock")
EXTENDER = Meta(actor="loop:extensions")
MOVER = Meta(actor="loop:bid-moves")
LOOKED_AT = 20
"""Bids looked at in a pass: each is previewed in every market that may serve it."""
SWEEP = Meta(actor="loop:stray-holds")
STRAY_AFTER = timedelta(hours=1)
"""Longer than any request that places a bid is repeated."""

log = structlog.get_logger()


def advance_leases(store: EventStore, *, now: datetime, start_grace: timedelta) -> int:
    """Start, stop and close the leases whose time has come; return how many that moved.

    Decided on each lease's own stream: rows that lag can cause a look too many, nothing else.
    """
    due, moved, head = due_leases(now=now, limit=BATCH), 0, store.head()
    for since in range(0, len(due), TOGETHER):
        some = due[since : since + TOGETHER]
        ticks = [[_tick(lease_id, now, start_grace)] for lease_id in some]
        for lease_id, outcome in zip(some, record_each(store, ticks), strict=True):
            if isinstance(outcome, Refusal):
                # One lease that cannot be moved must not hold up the others.
                log.error("lease.stuck", lease=str(lease_id), code=outcome.code)
            else:
                moved += outcome[0] > head
    return moved


def _tick(lease_id: LeaseId, now: datetime, start_grace: timedelta) -> Part:
    """Return what brings a lease to where the clock says it belongs."""

    def decide(lease: Lease | None) -> Sequence[LeaseEvent]:
        if lease is None:
            raise LeaseUnknown(lease_id=lease_id)
        return lease.tick(now=now, start_grace=start_grace)

    return Part(Lease, lease_id, decide, CLOCK)


def extend_leases(store: EventStore, *, now: datetime) -> int:
    """Ask for the next step of the leases that go on by themselves; return how many."""
    asked = 0
    for lease_id in leases_ending(now=now, limit=BATCH):
        try:
            asked += extend_when_due(store, lease_id=lease_id, by=EXTENDER, now=now)
        except Refusal as refusal:
            # No money left, for instance: the lease ends at its time, the others go on.
            log.info("lease.not-extended", lease=str(lease_id), code=refusal.code)
    return asked


class Mover:
    """Asks for bids that wait in vain to go to a market that would serve them now.

    A pass looks at the next few, one after the other, and then begins anew.
    """

    def __init__(self) -> None:
        """Begin with the first bid."""
        self._last: UUID | None = None

    def run_once(self, store: EventStore, *, now: datetime) -> int:
        """Look at the next bids; return how many markets were asked to hand one on."""
        page = waiting_bids(since=now - PAUSE, after=self._last, limit=LOOKED_AT)
        self._last = page[-1].bid_id if len(page) == LOOKED_AT else None
        asked = 0
        for bid in page:
            to = better(looks(store, bid.bid_id, bid.markets, now=now), market=bid.market)
            if to is not None:
                asked += ask_for_move(
                    store,
                    bid_id=bid.bid_id,
                    market=bid.market,
                    to=to,
                    moves=bid.moves,
                    by=MOVER,
                    now=now,
                )
        return asked


def sweep_stray_holds(store: EventStore, *, now: datetime) -> int:
    """Give back the holds of bids that never came; return how many."""
    swept = 0
    holds = stray_holds(older_than=now - STRAY_AFTER)
    placed = bids_known(BidId(hold.hold_id) for hold in holds)
    for hold in holds:
        bid_id = BidId(hold.hold_id)
        if bid_id not in placed:
            swept += release_stray_hold(
                store, account_id=hold.account_id, bid_id=bid_id, by=SWEEP, now=now
            )
    return swept
