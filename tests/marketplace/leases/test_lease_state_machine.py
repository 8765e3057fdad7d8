"""Whoever does what in whatever order: I6, I7, and the two promises of I8.

The owner has the capacity back by the deadline, whatever consumer, hosts and other owners do; the
consumer may leave at any time. Neither needs the other's consent, nor that an agent answers.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ledger.domain.ids import HostId, TenantId
from ledger.domain.money import Money
from ledger.domain.refusal import Refusal
from listings.domain.events import ReclaimStep
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import (
    LeaseClosed,
    LeaseEvent,
    LeaseInterrupted,
    ReclaimRequested,
)
from marketplace.domain.leases.actions import (
    LeaseEndsSooner,
    LeaseOver,
    NotTheOwner,
    ReclaimUnderWay,
)
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.reclaim import NoticeTooShort, interrupt, quote, reclaim
from marketplace.domain.leases.reclaim_schedule import OWED_NOTHING
from tests.conftest import NOON
from tests.marketplace.support.leasing import (
    ADA,
    BOB,
    EVE,
    HOST_A,
    HOST_B,
    START_GRACE,
    STOP_GRACE,
    after,
    folded,
    scheduled,
    share,
)

STEPS = (ReclaimStep(3_600, 50_000), ReclaimStep(7_200, 0))
NOTICE = timedelta(seconds=900)
"""The least notice of either owner."""


class AnyLife(RuleBasedStateMachine):
    """One lease of two owners. `promised`: the first deadline that each accepted reclaim set."""

    @initialize()
    def granted(self) -> None:
        self.lease = folded(scheduled(share(HOST_A, ADA, steps=STEPS), share(HOST_B, BOB)))
        self.now: datetime = NOON
        self.finals: list[LeaseClosed] = []
        self.promised: datetime | None = None
        self.told: dict[TenantId, Money | None] = {}

    def _apply(self, events: list[LeaseEvent]) -> None:
        self.finals += [event for event in events if isinstance(event, LeaseClosed)]
        self.lease = after(self.lease, events)

    def _later(self, now: datetime) -> Lease:
        """Return what the clock alone makes of the lease: no agent says anything any more."""
        lease = after(self.lease, self.lease.tick(now=now, start_grace=START_GRACE))
        return after(lease, lease.tick(now=now + STOP_GRACE, start_grace=START_GRACE))

    @rule(minutes=st.integers(0, 120), millis=st.sampled_from([0, 1, 999]))
    def time_passes(self, minutes: int, millis: int) -> None:
        self.now += timedelta(minutes=minutes, milliseconds=millis)
        self._apply(self.lease.tick(now=self.now, start_grace=START_GRACE))

    @precondition(lambda self: self.lease.due_at > self.now)
    @rule(off_millis=st.sampled_from([-1, 0, 1]))
    def the_deadline_comes(self, off_millis: int) -> None:
        self.now = max(self.now, self.lease.due_at + timedelta(milliseconds=off_millis))
        self._apply(self.lease.tick(now=self.now, start_grace=START_GRACE))

    @rule(host=st.sampled_from([HOST_A, HOST_B]))
    def host_starts(self, host: HostId) -> None:
        if self.lease.state != "scheduled":
            self._apply(self.lease.work_started(host_id=host, now=self.now))

    @rule(
        host=st.sampled_from([HOST_A, HOST_B]),
        code=st.sampled_from([0, 1, None]),
        failed=st.booleans(),
    )
    def host_stops(self, host: HostId, code: int | None, failed: bool) -> None:
        if host in self.lease.started:
            self._apply(
                self.lease.work_stopped(
                    host_id=host, exit_code=code, failed=failed, detail="", now=self.now
                )
            )

    @rule(
        owner=st.sampled_from([ADA, BOB, EVE]),
        notice=st.sampled_from([None, 0, 899, 900, 901, 3_600, 7_200, 86_400]),
    )
    def owner_reclaims(self, owner: TenantId, notice: int | None) -> None:
        before = self.lease
        length = None if notice is None else timedelta(seconds=notice)
        wanted = self.now + (NOTICE if length is None else length)
        try:
            events = reclaim(self.lease, owner_id=owner, now=self.now, notice=length)
        except NotTheOwner:
            assert owner == EVE
        except NoticeTooShort:
            assert length is not None and length < NOTICE
        except (LeaseOver, LeaseEndsSooner, ReclaimUnderWay):
            # Not needed: it is back by then anyway.
            assert self._later(wanted).over
        else:
            [requested] = events
            assert isinstance(requested, ReclaimRequested)
            assert owner in (ADA, BOB)
            assert requested.stop_at == wanted
            self.told[owner] = requested.compensation
            self.promised = wanted if self.promised is None else min(self.promised, wanted)
            self._apply(events)
            return
        assert self.lease is before

    @rule(minutes=st.integers(15, 120))
    def market_interrupts(self, minutes: int) -> None:
        stop_at = self.now + timedelta(minutes=minutes)
        events = interrupt(
            self.lease, in_favour_of=self.lease.terms.lease_id, stop_at=stop_at, now=self.now
        )
        for event in events:
            assert isinstance(event, LeaseInterrupted)
            self.told = {each.owner_id: each.money for each in event.compensations}
            self.promised = stop_at if self.promised is None else min(self.promised, stop_at)
        self._apply(events)
        assert self._later(stop_at).over

    @rule(hours=st.integers(1, 10))
    def consumer_asks_to_go_on(self, hours: int) -> None:
        before = self.lease
        ends_at = self.lease.ends_at + timedelta(hours=hours)
        try:
            self._apply(self.lease.ask_extension(ends_at=ends_at, now=self.now))
        except Refusal:
            assert self.lease is before

    @rule(hours=st.integers(1, 10))
    def engine_extends(self, hours: int) -> None:
        """The engine may have read neither the reclaim nor the end yet."""
        ends_at = self.lease.ends_at + timedelta(hours=hours)
        self._apply(self.lease.extend(ends_at=ends_at, now=self.now))

    @rule()
    def consumer_closes(self) -> None:
        was_over = self.lease.over
        try:
            self._apply(self.lease.close(now=self.now))
        except LeaseOver:
            assert was_over
            return
        assert not was_over
        assert self._later(self.now).over

    @invariant()
    def consumer_may_leave(self) -> None:
        if not self.lease.over:
            left = after(self.lease, self.lease.close(now=self.now))
            assert left.over or left.state == "ending"

    @invariant()
    def owner_has_it_back_by_the_deadline(self) -> None:
        if self.promised is not None:
            assert self.lease.due_at <= self.promised
            assert self._later(max(self.now, self.promised)).over

    @invariant()
    def closes_once_and_with_a_known_reason(self) -> None:
        assert len(self.finals) == (1 if self.lease.over else 0)
        if self.lease.over:
            assert self.lease.ending_reason in close_reasons.REASONS

    @invariant()
    def is_over_soon_after_it_is_due(self) -> None:
        assert self._later(max(self.now, self.lease.due_at)).over

    @invariant()
    def pays_what_was_told_at_the_last_reclaim_of_each_owner(self) -> None:
        for closed in self.finals:
            paid = {each.owner_id: each.money for each in closed.compensations}
            if closed.compensation is not None:
                assert closed.compensation_from is not None
                assert closed.compensation_from not in paid
                paid[closed.compensation_from] = closed.compensation
            told = {owner: money for owner, money in self.told.items() if money and money.nanos}
            assert paid == ({} if closed.reason in OWED_NOTHING else told)

    @invariant()
    def quotes_are_what_a_reclaim_would_be(self) -> None:
        if self.lease.over or self.lease.state == "ending":
            return
        for owner in (ADA, BOB):
            for choice in quote(self.lease, owner_id=owner, now=self.now):
                notice = timedelta(seconds=choice.notice_seconds)
                [event] = reclaim(self.lease, owner_id=owner, now=self.now, notice=notice)
                assert isinstance(event, ReclaimRequested)
                assert (event.stop_at, event.compensation) == (choice.stop_at, choice.compensation)


TestAnyLife = AnyLife.TestCase
