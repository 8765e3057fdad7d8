"""The synthetic week through the product, with work that may be paused and without.

The demand is the same both times: what takes longer than an hour can wait a day and saves itself
every ten minutes, what is shorter wants to begin within ten minutes. `python -m
tests.simulation.pausing_runs` prints what the documentation says of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

import numpy as np

from ledger.domain.account_ids import funds_account
from ledger.domain.ids import BidId, LeaseId
from ledger.domain.money import NANOS_PER_UNIT, Rate
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import Recorded
from marketplace.commands import bids
from marketplace.domain.bids.bid import BidTerms
from marketplace.domain.facts.close_reasons import PAUSED
from marketplace.domain.facts.events import (
    BidPlaced,
    GpuRequest,
    LeaseClosed,
    LeaseScheduled,
    Workload,
)
from tests.simulation.product_week import BY, CURRENCY, MARKET, ProductWeek, tenant_of, unit_of
from tests.simulation.traces import GPUS_PER_NODE

LONG = 3_600
KEPT_SHARE = 0.4
"""Of the synthetic week's jobs: more than six hosts have room for at the busy hours."""
MONDAY = datetime.fromisoformat("2026-03-23T00:00:00+00:00")


class PausingWeek(ProductWeek):
    """The week of a market in which long work lets itself be paused, or does not."""

    def __init__(self, seed: int, starts_at: datetime, *, pausing: bool) -> None:
        super().__init__(seed, starts_at)
        self._pausing = pausing

    def _is_kept(self) -> bool:
        return self._dice.random() < KEPT_SHARE

    def _bidding(self, owner: int, gpus: int, length: float) -> Callable[[datetime], None]:
        dice = self._dice
        seconds = max(60, int(length) // 60 * 60)
        is_long = seconds > LONG
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
            limit=Rate(3 * NANOS_PER_UNIT, CURRENCY),
            service_class="on-demand",
            patience="immediate",
            workload=Workload(kind="training", checkpoint_seconds=600 if is_long else None),
            resume=is_long,
            seeks="soonest",
            pausable=is_long and self._pausing,
        )
        waits = timedelta(days=1) if is_long else timedelta(minutes=10)

        def bid(now: datetime) -> None:
            deadline = now + timedelta(seconds=seconds) + waits
            asked = replace(terms, earliest_start=now, deadline=deadline)
            try:
                bids.place_bid(self.store, terms=asked, by=BY, now=now)
            except Refusal:
                return  # what it cannot afford any more

        return bid

    def met(self, scheduled: LeaseScheduled, number: int) -> None:
        """Let nobody leave early: what differs is pausing alone."""


@dataclass(frozen=True, slots=True)
class Came:
    """What came of a week. shares in per cent, waits in minutes, of first starts."""

    bids: int
    short_met: float
    long_met: float
    short_wait_p95: float
    long_wait_p95: float
    gpu_hours: float
    pauses: int
    gone_on: int
    done: float


def came_of(log: list[Recorded]) -> Came:
    """Work out what came of a week from its log."""
    placed = {e.bid_id: e for r in log if isinstance(e := r.event, BidPlaced)}
    leases = {e.bid_id: e for r in log if isinstance(e := r.event, LeaseScheduled)}
    closed = {LeaseId(e.lease_id): e for r in log if isinstance(e := r.event, LeaseClosed)}
    first = [each for each in placed.values() if each.continues is None]
    waits: dict[bool, list[float]] = {True: [], False: []}
    hours = 0.0
    for bid in first:
        lease = leases.get(bid.bid_id)
        if lease is not None:
            wait = lease.window.starts_at - bid.earliest_start
            waits[bid.duration_seconds > LONG].append(wait.total_seconds() / 60)
    for lease in leases.values():
        over = closed[LeaseId(lease.lease_id)]
        gpus = sum(len(share.gpu_uuids) for share in lease.shares)
        held = (over.ended_at or over.at) - lease.window.starts_at
        hours += max(0.0, held.total_seconds() / 3_600) * gpus
    asked = {flag: sum((b.duration_seconds > LONG) is flag for b in first) for flag in waits}
    ended = {bid_id: closed[LeaseId(lease.lease_id)].reason for bid_id, lease in leases.items()}
    paused = [bid_id for bid_id, reason in ended.items() if reason == PAUSED]
    rests = [b for b in placed.values() if b.continues is not None and b.continues.paused]
    wanted = sum(b.duration_seconds * b.gpus for b in first) / 3_600
    return Came(
        bids=len(first),
        short_met=100 * len(waits[False]) / max(1, asked[False]),
        long_met=100 * len(waits[True]) / max(1, asked[True]),
        short_wait_p95=float(np.percentile(waits[False] or [0.0], 95)),
        long_wait_p95=float(np.percentile(waits[True] or [0.0], 95)),
        gpu_hours=hours,
        pauses=len(paused),
        gone_on=sum(each.bid_id in leases for each in rests),
        done=100 * hours / wanted,
    )
