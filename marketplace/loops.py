"""What the market does by the clock. Each is one pass, called again and again by a runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import structlog

from ledger.domain.ids import AccountId, BidId, HoldId, LeaseId, TenantId
from ledger.domain.refusal import Refusal
from ledger.domain.uptime import ALWAYS_UP, Uptime
from ledger.eventstore.port import EventStore, Meta
from ledger.eventstore.together import Part, record_each
from ledger.queries import stray_holds
from ledger.turns import each_alone, turns_of
from marketplace.commands.bids import release_stray_hold
from marketplace.commands.chains import go_on_with_money
from marketplace.commands.extending import extend_when_due
from marketplace.commands.moving import ask_for_move
from marketplace.commands.spending import note_spending
from marketplace.commands.unfunded import go_on_as_before, pause_without_money
from marketplace.domain.bids.routing import PAUSE, better
from marketplace.domain.facts.events import LeaseEvent
from marketplace.domain.leases.lease import NONE_TOLD, Contacts, Lease, LeaseUnknown
from marketplace.queries.bids import bids_known
from marketplace.queries.extensions import leases_ending
from marketplace.queries.leases import due_leases
from marketplace.queries.money_waits import may_go_on, waits_to_look_at
from marketplace.queries.moving import Waiting, looks, waiting_bids
from marketplace.queries.spending import counted_now, tenants_with_budgets
from marketplace.queries.unfunded import told_of_it, without_money

BATCH = 500
STUCK = "lease.stuck"
TOGETHER = 100
"""Leases that the clock moves in one append."""
CLOCK = Meta(actor="loop:lease-clock")
EXTENDER = Meta(actor="loop:extensions")
MOVER = Meta(actor="loop:bid-moves")
LOOKED_AT = 20
"""Bids looked at in a pass: each is previewed in every market that may serve it."""
WITH_MONEY = Meta(actor="loop:money-waits")
BUDGETS = Meta(actor="loop:budgets")
BUDGETS_ANEW = timedelta(seconds=30)
"""An organisation is looked at so often even if it spends nothing: a period or grant may end."""
SWEEP = Meta(actor="loop:stray-holds")
HOLDS_LOOKED_AT = 1_000
HoldKey = tuple[datetime, HoldId, AccountId]
STRAY_AFTER = timedelta(hours=1)
"""Longer than any request that places a bid is repeated."""

log = structlog.get_logger()


def advance_leases(
    store: EventStore,
    *,
    now: datetime,
    start_grace: timedelta,
    uptime: Callable[[], Uptime] = lambda: ALWAYS_UP,
    heard: Callable[[], Contacts] = lambda: NONE_TOLD,
) -> int:
    """Start, stop and close the leases whose time has come; return how many that moved.

    Decided on each lease's own stream: rows that lag can cause a look too many, nothing else.

    uptime, heard: asked only where there is a lease to look at, which is seldom.
    """
    due = turns_of(store, "leases").take(
        lambda after, limit: due_leases(after, limit, now=now, start_grace=start_grace), BATCH
    )
    if not due:
        return 0
    was_up, contacts, head, moved = uptime(), heard(), store.head(), 0

    def tick(lease_ids: Sequence[LeaseId]) -> int:
        parts = [[_tick(lease_id, now, start_grace, was_up, contacts)] for lease_id in lease_ids]
        outcomes = record_each(store, parts)
        for lease_id, outcome in zip(lease_ids, outcomes, strict=True):
            if isinstance(outcome, Refusal):
                log.error(STUCK, lease=str(lease_id), code=outcome.code)
        return sum(isinstance(each, list) and each[0] > head for each in outcomes)

    for since in range(0, len(due), TOGETHER):
        some = [lease_id for _, lease_id in due[since : since + TOGETHER]]
        try:
            moved += tick(some)
        except Exception as failure:
            # One lease that cannot be moved must not hold up the others: each is tried alone.
            log.warning("lease.together-failed", error=repr(failure))
            moved += each_alone(some, lambda key: tick([key]), event=STUCK, told=_lease)
    return moved


def _lease(lease_id: LeaseId) -> Mapping[str, str]:
    return {"lease": str(lease_id)}


def _tick(
    lease_id: LeaseId, now: datetime, start_grace: timedelta, uptime: Uptime, heard: Contacts
) -> Part:
    """Return what brings a lease to where the clock says it belongs."""

    def decide(lease: Lease | None) -> Sequence[LeaseEvent]:
        if lease is None:
            raise LeaseUnknown(lease_id=lease_id)
        return lease.tick(now=now, start_grace=start_grace, uptime=uptime, heard=heard)

    return Part(Lease, lease_id, decide, CLOCK)


def extend_leases(store: EventStore, *, now: datetime) -> int:
    """Ask for the next step of the leases that go on by themselves; return how many."""
    ending = turns_of(store, "extensions").take(
        lambda after, limit: leases_ending(after, limit, now=now), BATCH
    )

    def extend(lease_id: LeaseId) -> int:
        try:
            return extend_when_due(store, lease_id=lease_id, by=EXTENDER, now=now)
        except Refusal as refusal:
            # No money left, for instance: that is told on the lease, which ends at its time.
            log.info("lease.not-extended", lease=str(lease_id), code=refusal.code)
            return 0

    lease_ids = [lease_id for _, lease_id in ending]
    return each_alone(lease_ids, extend, event="lease.not-extended", told=_lease)


def go_on_where_there_is_money(store: EventStore, *, now: datetime) -> int:
    """Place what waits for money that has come, those first that wait longest; return how many.

    What waited until its time was over ends.
    """
    keys = turns_of(store, "money-waits").take(waits_to_look_at, BATCH)

    def go_on(bid_id: BidId) -> int:
        return go_on_with_money(store, bid_id=bid_id, by=WITH_MONEY, now=now)

    return each_alone(
        may_go_on([bid_id for _, bid_id in keys], now=now),
        go_on,
        event="bid.waits-for-money",
        told=lambda bid_id: {"bid": str(bid_id)},
    )


def see_to_money_that_is_gone(store: EventStore, *, now: datetime) -> int:
    """Tell and pause work whose account a bank took too much from, or let it go on.

    Returns: how many leases were looked at.
    """
    gone = without_money()
    again = sorted(set(told_of_it()) - set(gone))

    def pause(found: tuple[LeaseId, BidId]) -> int:
        lease_id, bid_id = found
        pause_without_money(store, lease_id=lease_id, bid_id=bid_id, by=WITH_MONEY, now=now)
        return 1

    def go_on(found: tuple[LeaseId, BidId]) -> int:
        go_on_as_before(store, lease_id=found[0], by=WITH_MONEY, now=now)
        return 1

    done = each_alone(gone, pause, event="lease.not-paused", told=lambda each: _lease(each[0]))
    return done + each_alone(
        again, go_on, event="lease.not-paused", told=lambda each: _lease(each[0])
    )


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

        def move(bid: Waiting) -> int:
            to = better(looks(store, bid.bid_id, bid.markets, now=now), market=bid.market)
            if to is None:
                return 0
            return ask_for_move(
                store,
                bid_id=bid.bid_id,
                market=bid.market,
                to=to,
                moves=bid.moves,
                by=MOVER,
                now=now,
            )

        return each_alone(
            page, move, event="bid.not-moved", told=lambda bid: {"bid": str(bid.bid_id)}
        )


def sweep_stray_holds(store: EventStore, *, now: datetime) -> int:
    """Give back the holds of bids that never came; return how many."""

    def page(after: HoldKey | None, limit: int) -> list[HoldKey]:
        holds = stray_holds(older_than=now - STRAY_AFTER, after=after, limit=limit)
        return [(hold.placed_at, hold.hold_id, hold.account_id) for hold in holds]

    # Bids that wait for weeks, and leases that begin in weeks, hold money all the time.
    held = turns_of(store, "stray-holds").take(page, HOLDS_LOOKED_AT)
    placed = bids_known(BidId(hold_id) for _, hold_id, _ in held)

    def give_back(key: HoldKey) -> int:
        _, hold_id, account_id = key
        return release_stray_hold(
            store, account_id=account_id, bid_id=BidId(hold_id), by=SWEEP, now=now
        )

    stray = [key for key in held if BidId(key[1]) not in placed]
    return each_alone(stray, give_back, event="hold.stuck", told=lambda key: {"hold": str(key[1])})


class BudgetWatch:
    """Tells budgets what the read model counts, of organisations in which anything changed.

    What it remembers only saves looking: a process that begins anew looks at all of them once.
    """

    def __init__(self) -> None:
        """Begin with nothing looked at."""
        self._seen: dict[UUID, tuple[int, datetime]] = {}

    def run_once(self, store: EventStore, *, now: datetime) -> int:
        """Look at each organisation once; return how many were counted."""
        counted = 0
        for tenant_id, read in tenants_with_budgets().items():
            touched, looked_at = self._seen.get(tenant_id, (-1, now))
            if read.touched == touched and now - looked_at < BUDGETS_ANEW:
                continue
            found, up_to = counted_now(read)
            tenant = TenantId(tenant_id)
            note_spending(store, tenant_id=tenant, counted=found, up_to=up_to, by=BUDGETS, now=now)
            self._seen[tenant_id] = read.touched, now
            counted += 1
        return counted
