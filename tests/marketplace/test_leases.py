"""A lease from grant to end: the clock, the hosts, the consumer and the owner in any order."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ledger.domain.ids import (
    AccountId,
    BidId,
    HoldId,
    HostId,
    LeaseId,
    OfferId,
    SubscriberId,
    TenantId,
)
from ledger.domain.money import Money, Rate
from ledger.domain.refusal import Refusal
from ledger.domain.span import Window
from marketplace.domain import close_reasons
from marketplace.domain.events import (
    LeaseActivated,
    LeaseClosed,
    LeaseEnding,
    LeaseEvent,
    LeaseScheduled,
    Share,
    Workload,
    WorkStarted,
    WorkStopped,
)
from marketplace.domain.leases import (
    ExtensionNotLater,
    Lease,
    LeaseEndsSooner,
    LeaseOver,
    LeaseTooLong,
    NotTheOwner,
    ReclaimUnderWay,
)
from tests.conftest import NOON

LEASE = LeaseId(UUID(int=1))
ADA, BOB, EVE = (TenantId(UUID(int=n)) for n in (11, 12, 13))
HOST_A, HOST_B = HostId(UUID(int=21)), HostId(UUID(int=22))
ONE_HOUR = timedelta(hours=1)
START_GRACE = timedelta(minutes=10)
STOP_GRACE = timedelta(seconds=30)


def share(host: HostId, owner: TenantId, gpus: int = 2) -> Share:
    return Share(
        offer_id=OfferId(host),
        host_id=host,
        owner_id=owner,
        gpu_uuids=tuple(f"GPU-{host.int}-{index}" for index in range(gpus)),
        notice_seconds=900,
        reclaim_fee_ppm=100_000,
        source="local",
    )


def scheduled(*shares: Share, hours: int = 4) -> LeaseScheduled:
    return LeaseScheduled(
        lease_id=LEASE,
        bid_id=BidId(UUID(int=2)),
        tenant_id=EVE,
        subscriber_id=SubscriberId(UUID(int=3)),
        user_id=None,
        account_id=AccountId(UUID(int=4)),
        hold_id=HoldId(UUID(int=2)),
        market="main",
        shares=shares or (share(HOST_A, ADA),),
        gpu_model="H100",
        window=Window(NOON + ONE_HOUR, NOON + ONE_HOUR * (1 + hours)),
        price=Rate(2_000_000_000),
        fee_ppm=50_000,
        service_class="on-demand",
        workload=Workload(kind="training"),
        cost_centre="CC-1",
        at=NOON,
    )


def folded(*events: LeaseEvent) -> Lease:
    lease: Lease | None = None
    for event in events:
        lease = Lease.evolve(lease, event)
    assert lease is not None
    return lease


def after(lease: Lease, events: list[LeaseEvent]) -> Lease:
    for event in events:
        lease = Lease.evolve(lease, event)
    return lease


def active(*shares: Share) -> Lease:
    lease = folded(scheduled(*shares))
    lease = after(lease, lease.tick(now=NOON + ONE_HOUR, start_grace=START_GRACE))
    for host_id in sorted(lease.hosts):
        lease = after(lease, lease.work_started(host_id=host_id, now=NOON + ONE_HOUR))
    assert lease.state == "active"
    return lease


def kinds(events: list[LeaseEvent]) -> list[type]:
    return [type(event) for event in events]


def test_nothing_happens_before_the_start() -> None:
    assert folded(scheduled()).tick(now=NOON, start_grace=START_GRACE) == []


def test_a_gang_is_active_only_when_every_host_has_started() -> None:
    lease = folded(scheduled(share(HOST_A, ADA), share(HOST_B, BOB)))
    lease = after(lease, lease.tick(now=NOON + ONE_HOUR, start_grace=START_GRACE))

    first = lease.work_started(host_id=HOST_A, now=NOON + ONE_HOUR)
    lease = after(lease, first)
    second = lease.work_started(host_id=HOST_B, now=NOON + ONE_HOUR)

    assert kinds(first) == [WorkStarted]
    assert kinds(second) == [WorkStarted, LeaseActivated]


def test_a_report_that_comes_twice_changes_nothing() -> None:
    lease = active()
    assert lease.work_started(host_id=HOST_A, now=NOON + ONE_HOUR) == []


def test_a_host_that_never_starts_the_work_makes_the_lease_fail() -> None:
    lease = folded(scheduled())
    late = NOON + ONE_HOUR + START_GRACE

    lease = after(lease, lease.tick(now=NOON + ONE_HOUR, start_grace=START_GRACE))
    events = lease.tick(now=late, start_grace=START_GRACE)

    assert kinds(events) == [LeaseEnding, LeaseClosed]
    assert after(lease, events).state == "failed"


def test_a_lease_nobody_looked_at_for_days_closes_in_one_tick() -> None:
    """coldfront#378: expiry handled one state only."""
    for lease in (folded(scheduled()), active()):
        events = lease.tick(now=NOON + timedelta(days=3), start_grace=START_GRACE)
        lease = after(lease, events)
        if lease.state == "ending":
            lease = after(lease, lease.tick(now=NOON + timedelta(days=4), start_grace=START_GRACE))
        assert lease.over


def test_work_that_ends_by_itself_ends_the_lease_early() -> None:
    lease = active()
    events = lease.work_stopped(
        host_id=HOST_A, exit_code=0, failed=False, detail="", now=NOON + ONE_HOUR * 2
    )
    assert kinds(events) == [WorkStopped, LeaseEnding, LeaseClosed]
    closed = events[-1]
    assert isinstance(closed, LeaseClosed)
    assert (closed.reason, closed.failed) == (close_reasons.WORK_DONE, False)


def test_work_lost_while_it_ran_is_told_from_work_that_never_came_up() -> None:
    """What was proved of the use of lost work is charged; what never came up costs nothing."""
    lease = folded(scheduled())
    lease = after(lease, lease.tick(now=NOON + ONE_HOUR, start_grace=START_GRACE))
    for begun, reason in (
        (lease, close_reasons.START_FAILED),
        (active(), close_reasons.WORK_LOST),
    ):
        events = begun.work_stopped(
            host_id=HOST_A, exit_code=None, failed=True, detail="gone", now=NOON + ONE_HOUR
        )
        closed = events[-1]
        assert isinstance(closed, LeaseClosed)
        assert (closed.reason, closed.failed) == (reason, True)


def test_a_gang_that_loses_one_host_waits_for_the_other_to_stop() -> None:
    lease = active(share(HOST_A, ADA), share(HOST_B, BOB))
    events = lease.work_stopped(
        host_id=HOST_A, exit_code=1, failed=False, detail="oom", now=NOON + ONE_HOUR * 2
    )
    assert kinds(events) == [WorkStopped, LeaseEnding]
    lease = after(lease, events)
    events = lease.work_stopped(
        host_id=HOST_B, exit_code=None, failed=False, detail="", now=NOON + ONE_HOUR * 2
    )
    assert kinds(events) == [WorkStopped, LeaseClosed]


def test_the_consumer_may_close_a_scheduled_lease_at_once() -> None:
    events = folded(scheduled()).close(now=NOON)
    assert kinds(events) == [LeaseEnding, LeaseClosed]


def test_a_lease_that_is_over_cannot_be_closed_again() -> None:
    lease = folded(scheduled())
    lease = after(lease, lease.close(now=NOON))
    with pytest.raises(LeaseOver):
        lease.close(now=NOON)


def test_only_an_owner_of_its_gpus_reclaims_a_lease() -> None:
    with pytest.raises(NotTheOwner):
        active().reclaim(owner_id=BOB, now=NOON + ONE_HOUR)


def test_a_reclaim_stops_the_work_after_the_notice_and_pays_the_agreed_share() -> None:
    lease = active()
    asked = NOON + ONE_HOUR * 2
    lease = after(lease, lease.reclaim(owner_id=ADA, now=asked))
    assert lease.stop_at == asked + timedelta(seconds=900)
    assert lease.tick(now=lease.stop_at - timedelta(seconds=1), start_grace=START_GRACE) == []

    lease = after(lease, lease.tick(now=lease.stop_at, start_grace=START_GRACE))
    events = lease.work_stopped(
        host_id=HOST_A, exit_code=None, failed=False, detail="", now=lease.due_at
    )

    closed = events[-1]
    assert isinstance(closed, LeaseClosed)
    assert closed.reason == close_reasons.RECLAIMED
    # 2 h 45 min of 2 GPUs at 2.00 an hour are lost: 11.00; a tenth of that is paid back.
    assert closed.compensation == Money(1_100_000_000)
    assert closed.compensation_from == ADA


def test_a_reclaim_cannot_be_asked_twice_or_for_less_than_the_notice() -> None:
    lease = active()
    with pytest.raises(LeaseEndsSooner):
        lease.reclaim(owner_id=ADA, now=lease.ends_at - timedelta(minutes=15))
    lease = after(lease, lease.reclaim(owner_id=ADA, now=NOON + ONE_HOUR))
    with pytest.raises(ReclaimUnderWay):
        lease.reclaim(owner_id=ADA, now=NOON + ONE_HOUR)
    with pytest.raises(ReclaimUnderWay):
        lease.ask_extension(ends_at=lease.ends_at + ONE_HOUR, now=NOON + ONE_HOUR)


def test_an_extension_keeps_the_gpus_and_moves_the_end() -> None:
    """Blazar LP#1692805: extending an active lease moved it to another host."""
    lease = active()
    later = lease.ends_at + ONE_HOUR
    extended = after(lease, lease.extend(ends_at=later, now=NOON + ONE_HOUR))
    assert (extended.ends_at, extended.terms) == (later, lease.terms)


def test_an_extension_is_refused_where_it_makes_no_sense() -> None:
    lease = active()
    with pytest.raises(ExtensionNotLater):
        lease.ask_extension(ends_at=lease.ends_at, now=NOON + ONE_HOUR)
    with pytest.raises(LeaseTooLong):
        lease.ask_extension(ends_at=lease.ends_at + timedelta(days=31), now=NOON + ONE_HOUR)


class AnyLife(RuleBasedStateMachine):
    """Whoever does what in whatever order: I6, I7, I8."""

    @initialize()
    def granted(self) -> None:
        self.lease = folded(scheduled(share(HOST_A, ADA), share(HOST_B, BOB)))
        self.now: datetime = NOON
        self.finals = 0

    def _apply(self, events: list[LeaseEvent]) -> None:
        self.finals += sum(isinstance(event, LeaseClosed) for event in events)
        self.lease = after(self.lease, events)

    @rule(minutes=st.integers(0, 120))
    def time_passes(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)
        self._apply(self.lease.tick(now=self.now, start_grace=START_GRACE))

    @rule(host=st.sampled_from([HOST_A, HOST_B]))
    def host_starts(self, host: HostId) -> None:
        if self.lease.state != "scheduled":
            self._apply(self.lease.work_started(host_id=host, now=self.now))

    @rule(host=st.sampled_from([HOST_A, HOST_B]), code=st.sampled_from([0, 1, None]))
    def host_stops(self, host: HostId, code: int | None) -> None:
        if host in self.lease.started:
            self._apply(
                self.lease.work_stopped(
                    host_id=host, exit_code=code, failed=False, detail="", now=self.now
                )
            )

    @rule(owner=st.sampled_from([ADA, BOB, EVE]))
    def owner_reclaims(self, owner: TenantId) -> None:
        before = self.lease
        try:
            self._apply(self.lease.reclaim(owner_id=owner, now=self.now))
        except Refusal:
            assert self.lease is before

    @rule(hours=st.integers(1, 10))
    def engine_extends(self, hours: int) -> None:
        if self.lease.stop_at is None:
            ends_at = self.lease.ends_at + timedelta(hours=hours)
            self._apply(self.lease.extend(ends_at=ends_at, now=self.now))

    @rule()
    def consumer_closes(self) -> None:
        was_over = self.lease.over
        try:
            self._apply(self.lease.close(now=self.now))
            assert not was_over
        except LeaseOver:
            assert was_over

    @invariant()
    def closes_once_and_with_a_known_reason(self) -> None:
        assert self.finals == (1 if self.lease.over else 0)
        if self.lease.over:
            assert self.lease.ending_reason in close_reasons.REASONS

    @invariant()
    def is_over_soon_after_it_is_due(self) -> None:
        later = self.lease.due_at + STOP_GRACE
        lease = self.lease
        for moment in (max(self.now, later), max(self.now, later) + STOP_GRACE):
            lease = after(lease, lease.tick(now=moment, start_grace=START_GRACE))
        assert lease.over


TestAnyLife = AnyLife.TestCase
