"""Who is around an engine, played from an agenda on a store in memory: people, agents, loops.

What is due happens in order of time; after each thing the engine looks at what is new and every
policy reacts, as the loops of a running market do.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import count

from config.demo.pump import Pump
from ledger.domain.ids import LeaseId
from ledger.domain.refusal import Refusal
from ledger.domain.span import Window
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import START, Meta, load
from marketplace.commands import leases
from marketplace.domain.facts.events import LeaseInterrupted, LeaseScheduled
from marketplace.domain.leases.lease import Lease
from marketplace.engine import Engine
from metering import commands as metering
from metering.domain.events import GpuUse

PASS_EVERY = timedelta(minutes=30)
REPORT = timedelta(seconds=3)
"""How long after a decision the host's agent says that it is done."""
START_GRACE = timedelta(minutes=10)


class Played:
    """Lets leases begin, end and be metered. What else happens is put on the agenda with `at`."""

    def __init__(self, store: MemoryStore, pump: Pump, *engines: Engine, actor: str) -> None:
        self.store = store
        self.pump = pump
        self._engines = engines
        self._actor = actor
        self._agenda: list[tuple[datetime, int, Callable[[datetime], None]]] = []
        self._number = count()
        self._seen = START
        self._leases: list[LeaseId] = []

    def at(self, moment: datetime, act: Callable[[datetime], None]) -> None:
        """Let something happen at a moment."""
        heapq.heappush(self._agenda, (moment, next(self._number), act))

    def play(self, starts_at: datetime, ends_at: datetime) -> None:
        """Let everything happen that is due before `ends_at`; then nobody holds a lease."""
        moment = starts_at
        while moment < ends_at:
            self.at(moment, lambda now: None)
            moment += PASS_EVERY
        while self._agenda:
            now, _, act = heapq.heappop(self._agenda)
            if now >= ends_at:
                break
            act(now)
            for engine in self._engines:
                engine.run_once(now=now)
            self.pump.run()
            self._meet_new_leases()
        for lease_id in self._leases:
            self.leave(lease_id, ends_at)
        self.pump.run()

    def met(self, scheduled: LeaseScheduled, number: int) -> None:
        """Plan what else becomes of a lease. number: how many there were before."""

    def uses(self, lease: Lease, window: Window) -> Iterator[GpuUse]:
        """Yield what was measured of each GPU of a lease in a window."""
        raise NotImplementedError

    # --- leases -----------------------------------------------------------------------------

    def _meet_new_leases(self) -> None:
        page = self.store.read_all(
            after=self._seen,
            limit=10_000,
            only=frozenset({LeaseScheduled.name, LeaseInterrupted.name}),
        )
        self._seen = page.next_position
        for recorded in page.events:
            match recorded.event:
                case LeaseInterrupted() as interrupted:
                    self.at(interrupted.stop_at, partial(self._end, interrupted.lease_id))
                case LeaseScheduled() as scheduled:
                    self.at(scheduled.window.starts_at, partial(self._start, scheduled.lease_id))
                    self.at(scheduled.window.ends_at, partial(self._end, scheduled.lease_id))
                    self.met(scheduled, len(self._leases))
                    self._leases.append(scheduled.lease_id)
                case _:
                    pass

    def _start(self, lease_id: LeaseId, now: datetime) -> None:
        for host_id in sorted(self._tick(lease_id, now).hosts):
            by = Meta(actor=f"agent:{host_id}")
            try:
                leases.lease_started(
                    self.store, lease_id=lease_id, host_id=host_id, by=by, now=now + REPORT
                )
            except Refusal:
                return  # it is over already

    def _end(self, lease_id: LeaseId, now: datetime) -> None:
        lease = self._tick(lease_id, now)
        if lease.state != "ending":
            return
        for host_id in sorted(lease.hosts):
            leases.lease_stopped(
                self.store,
                lease_id=lease_id,
                host_id=host_id,
                exit_code=None,
                by=Meta(actor=f"agent:{host_id}"),
                now=now + REPORT,
            )
        self._meter(lease, now)

    def leave(self, lease_id: LeaseId, now: datetime) -> None:
        """Let the consumer go, if the lease is not over."""
        lease = self._lease(lease_id)
        if lease.over:
            return
        who = Meta(actor=self._actor, tenant_id=lease.terms.tenant_id)
        leases.close_lease(self.store, lease_id=lease_id, by=who, now=now)
        self.pump.run()
        if lease.started:
            self._end(lease_id, now)
        else:
            metering.close_meter(self.store, lease_id=lease_id, by=who, now=now)

    def reclaim(self, lease_id: LeaseId, now: datetime) -> None:
        """Let the first of the owners take the capacity back, if the lease is not over."""
        owner_id = self._lease(lease_id).terms.shares[0].owner_id
        who = Meta(actor=self._actor, tenant_id=owner_id)
        try:
            leases.reclaim_lease(self.store, lease_id=lease_id, owner_id=owner_id, by=who, now=now)
        except Refusal:
            return  # over, or nearly so
        stop_at = self._lease(lease_id).stop_at
        assert stop_at is not None
        self.at(stop_at, partial(self._end, lease_id))

    def _tick(self, lease_id: LeaseId, now: datetime) -> Lease:
        by = Meta(actor="loop:lease-clock")
        leases.advance_lease(self.store, lease_id=lease_id, start_grace=START_GRACE, by=by, now=now)
        return self._lease(lease_id)

    def _lease(self, lease_id: LeaseId) -> Lease:
        lease = load(self.store, Lease, lease_id)
        assert lease is not None
        return lease

    def _meter(self, lease: Lease, ended_at: datetime) -> None:
        """Close the usage windows of a lease that is over, hour by hour, as samples would have."""
        self.pump.run()
        by = Meta(actor="loop:usage")
        lease_id = lease.terms.lease_id
        for window in _hours(Window(lease.terms.window.starts_at, ended_at)):
            metering.close_usage_window(
                self.store,
                lease_id=lease_id,
                window=window,
                gpus=tuple(self.uses(lease, window)),
                gaps=(),
                by=by,
                now=window.ends_at + timedelta(seconds=30),
            )
        metering.close_meter(
            self.store, lease_id=lease_id, by=by, now=ended_at + timedelta(minutes=1)
        )


def _hours(span: Window) -> Iterator[Window]:
    """Cut a span at the full hours."""
    starts_at = span.starts_at
    while starts_at < span.ends_at:
        full = starts_at.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        ends_at = min(full, span.ends_at)
        yield Window(starts_at, ends_at)
        starts_at = ends_at
