"""What a lease stream adds up to: the terms granted, who claims the lease, and what has happened.

Of the claims (reclaims of its owners, an interruption, a sale of its rest) the first that is due
ends the lease. The work is then asked to stop and has a grace until it is killed. The grace lies
before the deadline, never after it: what is left of it there is void. So the owner has the GPUs
back on time whatever was promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, Literal, Self, assert_never

from ledger.domain.agreed_rates import RateSince, cost, rate_at
from ledger.domain.ids import HostId, LeaseId, MaintenanceId, TenantId
from ledger.domain.money import Money, Rate
from ledger.domain.span import Window
from marketplace.domain.facts import events
from marketplace.domain.facts.values import Share
from marketplace.domain.leases.checkpoints import UNBEGUN, Progress
from marketplace.domain.leases.reclaim_schedule import Reclaim, compensation

SILENT = timedelta(seconds=30)
"""An agent that says nothing for so long after a deadline is not waited for."""
ANSWER = timedelta(seconds=15)
"""What an agent has to report after a kill without a deadline."""


def grace_of(shares: Sequence[Share]) -> timedelta:
    """Return the grace of a lease: one for all its hosts, as a gang stops in one moment.

    The longest that an owner promised, so that no promise is undercut; but within the notice of
    each owner, as nobody waits for GPUs longer than that. So it is no shorter than what each bid
    asked of each owner. Those shares that are older than the grace as a term have 15 seconds at
    any notice.
    """
    longest = max(share.grace_seconds for share in shares)
    within = min(share.notice_seconds for share in shares)
    least = min(share.grace_seconds for share in shares)
    return timedelta(seconds=max(least, min(longest, within)))


def waits_until(ending_at: datetime, due_at: datetime, grace: timedelta) -> datetime:
    """Return when a lease that ends is closed, whether or not its hosts say that work stopped.

    due_at: its deadline. Work that is stopped before it has the grace from then on, up to it.
    """
    left = min(grace, due_at - ending_at)
    return ending_at + max(SILENT, left + ANSWER)


RightsEvent = (
    events.ReclaimRequested
    | events.LeaseInterrupted
    | events.LeaseMoved
    | events.ResaleListed
    | events.ResaleOpened
    | events.ResaleEnded
    | events.LeaseShortened
    | events.LeaseHostLost
    | events.LeaseHardwareFailed
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What was claimed of one lease, and by whom.

    stop_at: when the first of all claims is due. reclaims: the last of each owner, the one that
    is due first in front. interrupted: the market's own claim is due first; for_maintenance: an
    owner's, and for maintenance that was announced; reclaimed_first: an owner's claim was there
    before it; pausing: the work goes on later, its bid allows that; for_budget: it is
    paused since a budget was reached, for nobody. moved: the work moves to another lease.
    """

    stop_at: datetime | None = None
    reclaims: tuple[Reclaim, ...] = ()
    interrupted: bool = False
    pausing: bool = False
    for_budget: bool = False
    for_maintenance: bool = False
    reclaimed_first: bool = False
    resale: events.ResaleListed | None = None
    resale_open: bool = False
    shortened: events.LeaseShortened | None = None
    heard_at: datetime | None = None
    """When a host was heard last, for whose silence the lease ends."""
    failed_at: datetime | None = None
    """When hardware failed under the work, for which the lease ends."""
    of_host: HostId | None = None
    """Whose silence or hardware it is."""
    moved: events.LeaseMoved | None = None
    taken_back: bool = False
    """The cloud that a machine is rented from takes it back."""

    @property
    def moves_first(self) -> bool:
        """Tell if the move to another lease is what is due first."""
        return self.moved is not None and self.stop_at == self.moved.stop_at

    def opening(self, *, tenant_id: TenantId, now: datetime) -> list[events.ResaleOpened]:
        """Open the rest to the market once the owner's first refusal is over."""
        resale = self.resale
        if resale is None or self.resale_open or now < resale.opens_at:
            return []
        return [
            events.ResaleOpened(
                lease_id=resale.lease_id,
                market=resale.market,
                tenant_id=tenant_id,
                since=resale.since,
                ends_at=resale.ends_at,
                floor=resale.floor,
                lease_min_seconds=resale.lease_min_seconds,
                at=now,
            )
        ]

    def after(self, event: RightsEvent, owed: Money | None) -> Rights:
        """Return the claims after one more. owed: what a reclaim pays."""
        match event:
            case events.ReclaimRequested():
                assert owed is not None
                first = Reclaim(event.owner_id, event.stop_at, owed)
                others = [each for each in self.reclaims if each.owner_id != event.owner_id]
                return replace(
                    self,
                    stop_at=event.stop_at,
                    reclaims=(first, *others),
                    interrupted=False,
                    pausing=False,
                    for_budget=False,
                    for_maintenance=event.maintenance_id is not None,
                    taken_back=event.rented,
                    resale=None,
                )
            case events.LeaseInterrupted():
                paid = [Reclaim(c.owner_id, event.stop_at, c.money) for c in event.compensations]
                return replace(
                    self,
                    stop_at=event.stop_at,
                    reclaims=tuple(paid),
                    interrupted=True,
                    pausing=event.pausing,
                    for_budget=event.in_favour_of == event.lease_id,
                    reclaimed_first=self.reclaimed_first
                    or (self.stop_at is not None and not self.interrupted),
                    resale=None,
                )
            case events.LeaseMoved():
                return replace(self, stop_at=event.stop_at, moved=event, resale=None)
            case events.ResaleListed():
                return replace(self, resale=event, resale_open=False)
            case events.ResaleOpened():
                return replace(self, resale_open=True)
            case events.ResaleEnded():
                return replace(self, resale=None)
            case events.LeaseHostLost():
                return replace(self._with_lost(event), heard_at=event.heard_at)
            case events.LeaseHardwareFailed():
                return replace(self._with_lost(event), failed_at=event.failed_at)
            case events.LeaseShortened():
                return replace(self, shortened=event, resale=None)
            case _:
                assert_never(event)

    def _with_lost(self, lost: events.LeaseHostLost | events.LeaseHardwareFailed) -> Rights:
        """Add what the owner of a lost host pays, to what it owes for a reclaim that was due."""
        owed = sum(each.money.nanos for each in self.reclaims if each.owner_id == lost.owner_id)
        money = Money(owed + lost.compensation.nanos, lost.compensation.currency)
        others = [each for each in self.reclaims if each.owner_id != lost.owner_id]
        pays = Reclaim(lost.owner_id, lost.at, money)
        return replace(self, reclaims=(pays, *others), of_host=lost.host_id)


NO_CLAIMS = Rights()


CutEvent = events.LeaseInterrupted | events.LeaseShortened | events.LeaseMoved
"""A grant claims a lease's capacity or its time; where that comes to nothing it is withdrawn."""

State = Literal["scheduled", "starting", "active", "reclaiming", "ending", "closed", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseState:
    """What one lease stream adds up to; `Lease` adds what may be decided on it.

    cut: the last claim on it by a grant; uncut: the lease as it would be without that claim.
    """

    STREAM: ClassVar[str] = "lease"

    terms: events.LeaseScheduled
    ends_at: datetime
    state: State = "scheduled"
    awaiting: frozenset[HostId] = frozenset()
    commit: str = ""
    started: frozenset[HostId] = frozenset()
    stopped: frozenset[HostId] = frozenset()
    rights: Rights = NO_CLAIMS
    progress: Progress = UNBEGUN
    broke_on: HostId | None = None
    ending_reason: int | None = None
    ending_at: datetime | None = None
    starting_at: datetime | None = None
    extension_asked: datetime | None = None
    extension_refused: events.ExtensionRefused | None = None
    cut: CutEvent | None = None
    uncut: Self | None = None
    outputs_failed: tuple[events.OutputsFailed, ...] = ()
    maintenance: tuple[events.MaintenanceNoticed, ...] = ()
    repriced: tuple[events.LeaseRepriced, ...] = ()
    """What was agreed of its price since it was granted, in order."""

    @property
    def over(self) -> bool:
        return self.state in ("closed", "failed")

    @property
    def hosts(self) -> frozenset[HostId]:
        return frozenset(share.host_id for share in self.terms.shares)

    @property
    def gpus(self) -> int:
        return sum(len(share.gpu_uuids) for share in self.terms.shares)

    @property
    def starts_at(self) -> datetime:
        return self.terms.window.starts_at

    def told_of_maintenance(
        self, host_id: HostId, maintenance_id: MaintenanceId
    ) -> events.MaintenanceNoticed | None:
        """Return what it is told of a maintenance window of a host of it; None: nothing."""
        key = host_id, maintenance_id
        found = (each for each in self.maintenance if (each.host_id, each.maintenance_id) == key)
        return next(found, None)

    @property
    def stop_at(self) -> datetime | None:
        """Return the deadline of the reclaim or interruption that is due first."""
        return self.rights.stop_at

    @property
    def due_at(self) -> datetime:
        """Return when the work must stop: the end, or the reclaim deadline if that is sooner."""
        return self.ends_at if self.stop_at is None else min(self.ends_at, self.stop_at)

    @property
    def right_ends_at(self) -> datetime:
        """Return when the right to the GPUs ends or ended, whenever that was noticed.

        The consumer pays for nothing after it, nor from when on hardware failed under the work.
        """
        failed_at = self.rights.failed_at
        return self.stops_at if failed_at is None else min(self.stops_at, failed_at)

    @property
    def stops_at(self) -> datetime:
        """Return when the work has to begin to stop, or had to."""
        return self.due_at if self.ending_at is None else min(self.ending_at, self.due_at)

    def cost_at_most(self, *, ends_at: datetime) -> Money:
        """Return what the lease costs if it is used in full until `ends_at`."""
        span = Window(self.starts_at, ends_at)
        return cost(self.terms.price, self._later_prices(), span, self.gpus)

    def price_at(self, moment: datetime) -> Rate:
        """Return the price of use that begins then: that of its grant, or what was agreed since."""
        return rate_at(self.terms.price, self._later_prices(), moment)

    def _later_prices(self) -> tuple[RateSince, ...]:
        return tuple(RateSince(each.since, each.price) for each in self.repriced)

    @property
    def grace(self) -> timedelta:
        """Return how long the work has between the signal to stop and the kill."""
        return grace_of(self.terms.shares)

    def compensation(self, owner_id: TenantId, *, asked_at: datetime, stop_at: datetime) -> Money:
        """Price what a reclaim takes from this lease, by the terms of the owner's shares."""
        return compensation(
            [share for share in self.terms.shares if share.owner_id == owner_id],
            self.price_at(stop_at),
            starts_at=self.starts_at,
            ends_at=self.ends_at,
            asked_at=asked_at,
            stop_at=stop_at,
        )

    def _going_on(
        self,
        event: events.ExtensionRequested
        | events.ExtensionRefused
        | events.LeaseExtended
        | events.LeaseRepriced,
    ) -> Self:
        """Return it after news of until when it goes on, and at which price."""
        match event:
            case events.ExtensionRequested():
                return replace(self, extension_asked=event.ends_at)
            case events.ExtensionRefused():
                return replace(self, extension_refused=event)
            case events.LeaseRepriced():
                return replace(self, repriced=(*self.repriced, event))
            case events.LeaseExtended():
                return replace(
                    self, ends_at=event.ends_at, extension_asked=None, extension_refused=None
                )
            case _:
                assert_never(event)

    def _claimed(self, event: RightsEvent) -> Rights:
        owed = None
        if isinstance(event, events.ReclaimRequested):
            owed = event.compensation
            if owed is None:
                owed = self.compensation(event.owner_id, asked_at=event.at, stop_at=event.stop_at)
        return self.rights.after(event, owed)

    def without_cut(self, in_favour_of: LeaseId) -> Self | None:
        """Return the lease as it would be had a grant never claimed it; None: it has not."""
        if self.cut is None or self.uncut is None:
            return None
        if claimed_for(self.cut) == in_favour_of:
            return self.uncut
        before = self.uncut.without_cut(in_favour_of)
        return None if before is None else type(self).evolve(before, self.cut)

    @classmethod
    def evolve(cls, state: Self | None, event: events.LeaseEvent, /) -> Self:
        if isinstance(event, events.LeaseScheduled):
            assert state is None
            return cls(terms=event, ends_at=event.window.ends_at)
        assert state is not None
        if isinstance(event, events.CutWithdrawn):
            return state.without_cut(event.in_favour_of) or state
        after = cls._after(state, event)
        if isinstance(event, CutEvent):
            return replace(after, cut=event, uncut=state)
        if state.uncut is None:
            return after
        return replace(after, uncut=cls.evolve(state.uncut, event))

    def _of_host(
        self, event: events.FilesAwaited | events.WorkStarted | events.WorkStopped
    ) -> Self:
        """Return it after news of the work on one of its hosts."""
        match event:
            case events.FilesAwaited():
                return replace(self, awaiting=self.awaiting | {event.host_id})
            case events.WorkStarted():
                commit = self.commit or event.commit
                return replace(self, started=self.started | {event.host_id}, commit=commit)
            case events.WorkStopped():
                first = event.host_id if self.ending_reason is None else None
                return replace(
                    self,
                    stopped=self.stopped | {event.host_id},
                    broke_on=self.broke_on or first,
                )

    @classmethod
    def _after(cls, state: Self, event: events.LeaseEvent, /) -> Self:
        match event:
            case events.LeaseStarting():
                return replace(state, state="starting", starting_at=event.at)
            case events.FilesAwaited() | events.WorkStarted() | events.WorkStopped():
                return state._of_host(event)
            case events.LeaseActivated():
                running: State = "active" if state.stop_at is None else "reclaiming"
                return replace(state, state=running, progress=state.progress.begun(event.at))
            case events.WorkSaved():
                return replace(state, progress=state.progress.after(event))
            case events.OutputsFailed():
                return replace(state, outputs_failed=(*state.outputs_failed, event))
            case events.ReclaimRequested() | events.LeaseInterrupted() | events.LeaseMoved():
                stopping: State = "scheduled" if state.state == "scheduled" else "reclaiming"
                return replace(state, state=stopping, rights=state._claimed(event))
            case (
                events.ExtensionRequested()
                | events.ExtensionRefused()
                | events.LeaseExtended()
                | events.LeaseRepriced()
            ):
                return state._going_on(event)
            case events.LeaseShortened():
                ends_at = min(state.ends_at, event.ends_at)
                return replace(state, ends_at=ends_at, rights=state._claimed(event))
            case (
                events.ResaleListed()
                | events.ResaleOpened()
                | events.ResaleEnded()
                | events.LeaseHostLost()
                | events.LeaseHardwareFailed()
            ):
                return replace(state, rights=state._claimed(event))
            case events.MaintenanceNoticed() | events.MaintenanceNoticeWithdrawn():
                return replace(state, maintenance=told_of(state.maintenance, event))
            case events.LeaseEnding():
                return replace(
                    state, state="ending", ending_reason=event.reason, ending_at=event.at
                )
            case events.LeaseClosed():
                return replace(state, state="failed" if event.failed else "closed")
            case events.LeaseScheduled() | events.CutWithdrawn():
                raise AssertionError("`evolve` takes these in")
            case _:
                assert_never(event)


def told_of(
    known: Sequence[events.MaintenanceNoticed],
    event: events.MaintenanceNoticed | events.MaintenanceNoticeWithdrawn,
) -> tuple[events.MaintenanceNoticed, ...]:
    """Return what a lease is told of maintenance after one more word of it."""
    key = event.host_id, event.maintenance_id
    others = tuple(each for each in known if (each.host_id, each.maintenance_id) != key)
    return (*others, event) if isinstance(event, events.MaintenanceNoticed) else others


def claimed_for(cut: CutEvent) -> LeaseId:
    return cut.sold_to if isinstance(cut, events.LeaseShortened) else cut.in_favour_of
