"""Whatever happens to a lease: its work has its grace, and its owners their GPUs by the deadline.

The lease as the market decides it, and its hosts as their agents do, on one clock. The work never
ends by itself: it is always killed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ledger.domain.ids import HostId, TenantId
from ledger.domain.refusal import Refusal
from ledger.domain.span import Window
from marketplace.domain.facts.events import LeaseClosed, LeaseEvent
from marketplace.domain.leases.actions import LeaseEndsSooner, LeaseOver, ReclaimUnderWay
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.reclaim import interrupt, reclaim
from marketplace.domain.leases.state import waits_until
from metering.agent.reconcile import (
    WIND_DOWN_SHARE,
    Forget,
    GiveUp,
    Held,
    Kill,
    Notice,
    Start,
    Terminate,
    Terms,
    epoch_ms,
    next_due_ms,
    reconcile,
)
from tests.conftest import NOON
from tests.marketplace.support.leasing import (
    ADA,
    BOB,
    HOST_A,
    HOST_B,
    START_GRACE,
    after,
    folded,
    scheduled,
    share,
)

MILLI = timedelta(milliseconds=1)
OWNERS = {HOST_A: ADA, HOST_B: BOB}
NOTICES = [0, 300, 600, 900]
PHASES = {"starting": "run", "active": "run", "reclaiming": "warn", "ending": "stop"}


@dataclass
class Host:
    """One host: what its agent holds, and since when it knows of the deadline that is next."""

    held: Held
    known_ms: int


class AnyEnd(RuleBasedStateMachine):
    """One lease over two hosts of two owners. back_by: until when each owner was told to wait."""

    @initialize(
        notices=st.tuples(st.sampled_from(NOTICES), st.sampled_from(NOTICES)),
        parts=st.tuples(st.sampled_from([4, 4, 1, 0]), st.sampled_from([4, 4, 1, 0])),
        agents_first=st.booleans(),
        minutes=st.sampled_from([20, 60]),
    )
    def granted(
        self, notices: tuple[int, int], parts: tuple[int, int], agents_first: bool, minutes: int
    ) -> None:
        shares = [
            replace(
                share(host, owner),
                notice_seconds=notice,
                grace_seconds=min(900, notice) * part // 4,
            )
            for (host, owner), notice, part in zip(OWNERS.items(), notices, parts, strict=True)
        ]
        lease = scheduled(*shares)
        ends_at = lease.window.starts_at + timedelta(minutes=minutes)
        window = Window(lease.window.starts_at, ends_at)
        self.lease: Lease = folded(replace(lease, window=window))
        self.now: datetime = NOON
        self.agents_first = agents_first
        self.hosts: dict[HostId, Host] = {}
        self.back_by: list[datetime] = []
        longest, least = (pick(each.grace_seconds for each in shares) for pick in (max, min))
        grace_seconds = self.lease.grace // timedelta(seconds=1)
        assert least <= grace_seconds <= min(longest, *notices)

    @property
    def _running(self) -> set[HostId]:
        return {host for host, its in self.hosts.items() if its.held.work == "running"}

    def _apply(self, events: list[LeaseEvent]) -> None:
        if any(isinstance(event, LeaseClosed) for event in events):
            assert not self._running, "closed over work that still had time"
        self.lease = after(self.lease, events)
        self._tell()

    def _tell(self) -> None:
        """Let the agents know what is wanted now."""
        for host in OWNERS:
            its = self.hosts.get(host)
            if self.lease.state not in PHASES:
                if its is not None:
                    its.held = replace(its.held, listed=False)
                continue
            stop_at = self.lease.stop_at
            terms = Terms(
                lease_id=self.lease.terms.lease_id,
                gpu_uuids=(f"GPU-{host.int}",),
                starts_ms=epoch_ms(self.lease.starts_at),
                ends_ms=epoch_ms(self.lease.ends_at),
                phase=PHASES[self.lease.state],  # type: ignore[arg-type]  # of the closed set
                stop_ms=None if stop_at is None else epoch_ms(stop_at),
                grace_ms=self.lease.grace // MILLI,
            )
            now_ms = epoch_ms(self.now)
            if its is None:
                held = Held(terms=terms, listed=True, work="none")
                self.hosts[host] = Host(held, now_ms)
                continue
            if its.held.terms.deadline_ms != terms.deadline_ms:
                its.known_ms = now_ms
            its.held = replace(its.held, terms=terms)

    def _act(self) -> None:
        """Let the agents do what there is to do now."""
        now_ms = epoch_ms(self.now)
        for host, its in self.hosts.items():
            for _ in range(6):
                actions = reconcile([its.held], now_ms=now_ms)
                for action in actions:
                    self._do(host, its, action, now_ms)
                if not actions or its.held.work == "ended":
                    break

    def _do(self, host: HostId, its: Host, action: object, now_ms: int) -> None:
        match action:
            case Start():
                its.held = replace(its.held, work="running")
                its.known_ms = now_ms
                self._apply(self.lease.work_started(host_id=host, now=self.now))
            case Notice():
                its.held = replace(its.held, noticed_ms=action.stop_at_ms)
            case Terminate():
                self._asked_in_time(its.held.terms, its.known_ms, now_ms)
                its.held = replace(its.held, stopping_ms=now_ms)
            case Kill():
                self._killed_in_time(its.held, now_ms)
                its.held = replace(its.held, work="ended")
                self._stopped(host)
            case GiveUp():
                its.held = replace(its.held, work="ended")
                self._stopped(host)
            case Forget():
                its.held = replace(its.held, work="ended")

    def _stopped(self, host: HostId) -> None:
        self._apply(
            self.lease.work_stopped(
                host_id=host, exit_code=None, failed=False, detail="", now=self.now
            )
        )

    def _asked_in_time(self, terms: Terms, known_ms: int, now_ms: int) -> None:
        """Check that work is asked to stop its grace before the deadline, once that is known."""
        allowed = terms.grace_ms
        if terms.deadline_ms == terms.ends_ms:
            allowed = min(allowed, (terms.ends_ms - terms.starts_ms) // WIND_DOWN_SHARE)
        if terms.phase != "stop":
            assert now_ms == max(known_ms, terms.deadline_ms - allowed)

    def _killed_in_time(self, held: Held, now_ms: int) -> None:
        """Check that work had its grace, or what the deadline left of it; never more."""
        assert held.stopping_ms is not None
        left = max(0, held.terms.deadline_ms - held.stopping_ms)
        assert now_ms - held.stopping_ms == min(held.terms.grace_ms, left)

    def _step(self) -> None:
        """Let market and agents see the same moment, in either order."""
        if self.agents_first:
            self._act()
        self._apply(self.lease.tick(now=self.now, start_grace=START_GRACE))
        self._act()

    def _dues(self) -> list[datetime]:
        lease = self.lease
        dues = [lease.starts_at, lease.due_at, lease.starts_at + START_GRACE]
        if lease.state == "ending":
            assert lease.ending_at is not None
            dues.append(waits_until(lease.ending_at, lease.due_at, lease.grace))
        soonest = next_due_ms((its.held for its in self.hosts.values()), now_ms=epoch_ms(self.now))
        if soonest is not None:
            dues.append(NOON + (soonest - epoch_ms(NOON)) * MILLI)
        return [due for due in dues if due > self.now]

    def _until(self, moment: datetime) -> None:
        """Let time pass, stopping wherever somebody has something to do."""
        for _ in range(60):
            self._step()
            if self.now == moment:
                return
            self.now = min([moment, *self._dues()])
        raise AssertionError("time does not pass")

    @rule(seconds=st.sampled_from([0, 1, 9, 59, 60, 61, 300, 899, 900, 3_599, 3_600]))
    def time_passes(self, seconds: int) -> None:
        self._until(self.now + timedelta(seconds=seconds))

    @precondition(lambda self: self.now < self.lease.starts_at)
    @rule()
    def the_start_comes(self) -> None:
        self._until(self.lease.starts_at)

    @precondition(lambda self: not self.lease.over)
    @rule(before=st.sampled_from([0, 1, 10, 61, 300, 900, 1_200]))
    def the_deadline_comes_near(self, before: int) -> None:
        self._until(max(self.now, self.lease.due_at - timedelta(seconds=before)))

    @rule(host=st.sampled_from([HOST_A, HOST_B]), more=st.sampled_from([0, 0, 1, 600]))
    def owner_reclaims(self, host: HostId, more: int) -> None:
        owner: TenantId = OWNERS[host]
        least = next(s.notice_seconds for s in self.lease.terms.shares if s.host_id == host)
        notice = timedelta(seconds=least + more)
        try:
            self._apply(reclaim(self.lease, owner_id=owner, now=self.now, notice=notice))
        except LeaseEndsSooner:
            pass  # of no use now; what is extended later can be reclaimed then
        except (LeaseOver, ReclaimUnderWay):
            self.back_by.append(self.now + notice)
        else:
            self.back_by.append(self.now + notice)
        self._step()

    @rule()
    def market_interrupts(self) -> None:
        notice = max(each.notice_seconds for each in self.lease.terms.shares)
        stop_at = self.now + timedelta(seconds=notice)
        favoured = self.lease.terms.lease_id
        self._apply(interrupt(self.lease, in_favour_of=favoured, stop_at=stop_at, now=self.now))
        self._step()

    @rule(hours=st.integers(1, 2))
    def lease_goes_on(self, hours: int) -> None:
        ends_at = self.lease.ends_at + timedelta(hours=hours)
        with suppress(Refusal):
            self._apply(self.lease.ask_extension(ends_at=ends_at, now=self.now))
            self._apply(self.lease.extend(ends_at=ends_at, now=self.now))
        self._step()

    @rule()
    def consumer_closes(self) -> None:
        with suppress(LeaseOver):
            self._apply(self.lease.close(now=self.now))
        self._step()

    @invariant()
    def owners_have_their_gpus_back_by_then(self) -> None:
        if any(by <= self.now for by in self.back_by):
            assert not self._running

    @invariant()
    def nothing_runs_past_the_deadline(self) -> None:
        if self._running:
            assert self.now < self.lease.due_at


TestAnyEnd = AnyEnd.TestCase
TestAnyEnd.settings = settings(max_examples=300, stateful_step_count=20, deadline=None)
