"""The right to use GPUs from a grant to its end, and everything that can happen to it.

scheduled > starting > active > (reclaiming) > ending > closed | failed. The consumer may close
from any state that is not final; the owner gets the capacity back by the reclaim deadline; time
does the rest (`tick`). No lease ends without a reason (close_reasons.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, Literal, assert_never

from ledger.domain.ids import HostId, TenantId
from ledger.domain.money import Money
from ledger.domain.refusal import Invalid, Refusal, Unknown
from ledger.domain.span import Window
from marketplace.domain import close_reasons
from marketplace.domain.events import (
    ExtensionRequested,
    LeaseActivated,
    LeaseClosed,
    LeaseEnding,
    LeaseEvent,
    LeaseExtended,
    LeaseInterrupted,
    LeaseScheduled,
    LeaseShortened,
    LeaseStarting,
    ReclaimRequested,
    ResaleEnded,
    ResaleListed,
    ResaleOpened,
    WorkSaved,
    WorkStarted,
    WorkStopped,
)
from marketplace.domain.grace import grace_of, waits_until
from marketplace.domain.progress import SECOND, UNBEGUN, Left, Progress
from marketplace.domain.reclaim_fees import compensation, due_from
from marketplace.domain.rights import NO_CLAIMS, Rights, RightsEvent

State = Literal["scheduled", "starting", "active", "reclaiming", "ending", "closed", "failed"]

LEASE_MAX = timedelta(days=30)
"""A lease longer than a month outlives every price it was cleared at."""


class LeaseUnknown(Unknown):
    """There is no such lease."""


class LeaseOver(Refusal):
    """That lease is over."""


class ReclaimUnderWay(Refusal):
    """An owner is already taking that lease's capacity back, at least as soon: by `stop_at`."""


class RestOnSale(Refusal):
    """The rest of the lease is for sale, or sold: it cannot be extended."""


class ResoldIsFixed(Refusal):
    """A lease bought from another consumer ends when that one's would have ended."""


class ExtensionNotLater(Invalid):
    """An extension must end later than the lease does now."""


class LeaseTooLong(Invalid):
    """A lease may last thirty days at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What one lease stream adds up to."""

    STREAM: ClassVar[str] = "lease"

    terms: LeaseScheduled
    ends_at: datetime
    state: State = "scheduled"
    started: frozenset[HostId] = frozenset()
    stopped: frozenset[HostId] = frozenset()
    rights: Rights = NO_CLAIMS
    progress: Progress = UNBEGUN
    ending_reason: int | None = None
    ending_at: datetime | None = None
    extension_asked: datetime | None = None

    @property
    def over(self) -> bool:
        """Tell if the state is final."""
        return self.state in ("closed", "failed")

    @property
    def hosts(self) -> frozenset[HostId]:
        """Return every host that gives a share."""
        return frozenset(share.host_id for share in self.terms.shares)

    @property
    def gpus(self) -> int:
        """Return how many GPUs the lease holds, over all its hosts."""
        return sum(len(share.gpu_uuids) for share in self.terms.shares)

    @property
    def starts_at(self) -> datetime:
        """Return the start of the window granted."""
        return self.terms.window.starts_at

    @property
    def stop_at(self) -> datetime | None:
        """Return the deadline of the reclaim or interruption that is due first."""
        return self.rights.stop_at

    @property
    def due_at(self) -> datetime:
        """Return when the work must stop: the end, or the reclaim deadline if that is sooner."""
        return self.ends_at if self.stop_at is None else min(self.ends_at, self.stop_at)

    def cost_at_most(self, *, ends_at: datetime) -> Money:
        """Return what the lease costs if it is used in full until `ends_at`."""
        span = Window(self.starts_at, ends_at)
        return self.terms.price.charge(span.millis * self.gpus)

    @property
    def grace(self) -> timedelta:
        """Return how long the work has between the signal to stop and the kill."""
        return grace_of(self.terms.shares)

    def tick(self, *, now: datetime, start_grace: timedelta) -> list[LeaseEvent]:
        """Return what time alone has brought about by `now`, all of it, in order.

        However long nobody looked, one call brings a lease to where it belongs.
        """
        events: list[LeaseEvent] = []
        if not self.over and self.state != "ending" and now < self.due_at:
            events += self.rights.opening(tenant_id=self.terms.tenant_id, now=now)
        lease = self
        for event in events:
            lease = Lease.evolve(lease, event)
        while step := lease._next(now, start_grace):
            events += step
            for event in step:
                lease = Lease.evolve(lease, event)
        return events

    def _next(self, now: datetime, start_grace: timedelta) -> Sequence[LeaseEvent]:
        starts_at = self.starts_at
        match self.state:
            case "scheduled" if now >= self.due_at:
                return self._end(self._reason_before_start(), self.due_at)
            case "scheduled" if now >= starts_at:
                return [LeaseStarting(lease_id=self.terms.lease_id, at=max(starts_at, now))]
            case "starting" if now >= starts_at + start_grace and self.started != self.hosts:
                return self._end(close_reasons.NEVER_STARTED, now)
            case "starting" | "active" | "reclaiming" if now >= self.due_at:
                return self._end(self._reason_of_due(), now)
            case "ending":
                assert self.ending_at is not None
                waited = now >= waits_until(self.ending_at, self.due_at, self.grace)
                if self.stopped >= self.started or waited:
                    return [self._close(now)]
        return []

    def _reason_before_start(self) -> int:
        if self.stop_at is not None and self.stop_at < self.ends_at:
            before = close_reasons.RECLAIMED_BEFORE_START
            return close_reasons.INTERRUPTED if self.rights.interrupted else before
        return close_reasons.NEVER_STARTED

    def _reason_of_due(self) -> int:
        if self.stop_at is not None and self.stop_at <= self.ends_at:
            return close_reasons.INTERRUPTED if self.rights.interrupted else close_reasons.RECLAIMED
        if self.rights.shortened is not None and self.started:
            return close_reasons.RESOLD
        return close_reasons.WINDOW_OVER if self.started else close_reasons.NEVER_STARTED

    def _end(self, reason: int, at: datetime) -> Sequence[LeaseEvent]:
        return [LeaseEnding(lease_id=self.terms.lease_id, reason=reason, at=at)]

    def _close(self, now: datetime) -> LeaseClosed:
        reason = self.ending_reason
        assert reason is not None
        first, *others = due_from(self.rights.reclaims, reason) or (None,)
        left = self.left(now) if reason in close_reasons.CUT_SHORT else None
        return LeaseClosed(
            lease_id=self.terms.lease_id,
            market=self.terms.market,
            reason=reason,
            failed=reason in close_reasons.FAULTS,
            compensation=first.money if first else None,
            compensation_from=first.owner_id if first else None,
            at=now,
            compensations=tuple(others),
            kept_seconds=None if left is None else left.kept // SECOND,
            lost_seconds=None if left is None else -(-left.lost // SECOND),
        )

    def left(self, now: datetime) -> Left:
        """Return what is safe of the work, and what is lost if it goes on elsewhere."""
        stopped_at = min(self.ending_at or now, self.ends_at)
        return self.progress.left(
            Window(self.starts_at, self.ends_at),
            stopped_at=stopped_at,
            every_seconds=self.terms.workload.checkpoint_seconds,
        )

    def work_started(self, *, host_id: HostId, now: datetime) -> list[LeaseEvent]:
        """Take note that a host started its part; with the last one the lease is active."""
        if self.over or host_id in self.started or host_id not in self.hosts:
            return []
        events: list[LeaseEvent] = [
            WorkStarted(lease_id=self.terms.lease_id, host_id=host_id, at=now)
        ]
        if self.state == "starting" and self.started | {host_id} == self.hosts:
            events.append(LeaseActivated(lease_id=self.terms.lease_id, at=now))
        return events

    def work_stopped(
        self,
        *,
        host_id: HostId,
        exit_code: int | None,
        failed: bool,
        detail: str,
        now: datetime,
        occupied: bool = False,
    ) -> list[LeaseEvent]:
        """Take note that the work on a host is gone.

        occupied: it failed to start because processes of others fill the GPU.
        Gone before it was asked to go, it ends the lease: a gang does not go on without a part.
        """
        if self.over or host_id in self.stopped or host_id not in self.hosts:
            return []
        events: list[LeaseEvent] = [
            WorkStopped(
                lease_id=self.terms.lease_id,
                host_id=host_id,
                exit_code=exit_code,
                detail=detail[:500],
                at=now,
            )
        ]
        if self.state != "ending":
            if failed:
                lost = host_id in self.started
                unmade = close_reasons.GPU_OCCUPIED if occupied else close_reasons.START_FAILED
                reason = close_reasons.WORK_LOST if lost else unmade
            elif exit_code is None:
                # The agent stops work a little before its deadline, so that the GPU is free by it.
                reason = self._reason_of_due()
            elif exit_code == 0:
                reason = close_reasons.WORK_DONE
            else:
                reason = close_reasons.WORK_FAILED
            events += self._end(reason, now)
        lease = self
        for event in events:
            lease = Lease.evolve(lease, event)
        if lease.stopped >= lease.started:
            events.append(lease._close(now))
        return events

    def close(self, *, now: datetime) -> list[LeaseEvent]:
        """Decide whether the consumer may end the lease: always, until it is over.

        Raises: LeaseOver.
        """
        if self.over:
            raise LeaseOver(lease_id=self.terms.lease_id, state=self.state)
        if self.state == "ending":
            return []
        return list(self._end(close_reasons.CLOSED_BY_CONSUMER, now)) + self._closed_if_idle(
            close_reasons.CLOSED_BY_CONSUMER, now
        )

    def abandon(
        self, *, now: datetime, reason: int = close_reasons.BID_WITHDRAWN
    ) -> list[LeaseEvent]:
        """End a lease at once, by default one whose bid was withdrawn before the grant came."""
        if self.over or self.state == "ending":
            return []
        return list(self._end(reason, now)) + self._closed_if_idle(reason, now)

    def _closed_if_idle(self, reason: int, now: datetime) -> list[LeaseEvent]:
        """Close at once where no host has anything running."""
        if self.state in ("scheduled",):
            ending = LeaseEnding(lease_id=self.terms.lease_id, reason=reason, at=now)
            return [Lease.evolve(self, ending)._close(now)]
        return []

    def compensation(self, owner_id: TenantId, *, asked_at: datetime, stop_at: datetime) -> Money:
        """Price what a reclaim takes from this lease, by the terms of the owner's shares."""
        return compensation(
            [share for share in self.terms.shares if share.owner_id == owner_id],
            self.terms.price,
            starts_at=self.starts_at,
            ends_at=self.ends_at,
            asked_at=asked_at,
            stop_at=stop_at,
        )

    def ask_extension(self, *, ends_at: datetime, now: datetime) -> list[LeaseEvent]:
        """Decide whether the consumer may ask to go on; the engine decides whether it can be.

        Raises: LeaseOver, ReclaimUnderWay, RestOnSale, ResoldIsFixed, ExtensionNotLater,
            LeaseTooLong.
        """
        if self.over or self.state == "ending":
            raise LeaseOver(lease_id=self.terms.lease_id, state=self.state)
        if self.stop_at is not None:
            raise ReclaimUnderWay(lease_id=self.terms.lease_id, stop_at=self.stop_at)
        if self.rights.resale is not None or self.rights.shortened is not None:
            raise RestOnSale(lease_id=self.terms.lease_id)
        if any(share.resold for share in self.terms.shares):
            raise ResoldIsFixed(lease_id=self.terms.lease_id)
        if ends_at <= self.ends_at:
            raise ExtensionNotLater(ends_at=self.ends_at)
        if ends_at - self.terms.window.starts_at > LEASE_MAX:
            raise LeaseTooLong(days_max=LEASE_MAX.days)
        if self.extension_asked == ends_at:
            return []
        return [
            ExtensionRequested(
                lease_id=self.terms.lease_id, market=self.terms.market, ends_at=ends_at, at=now
            )
        ]

    def extend(self, *, ends_at: datetime, now: datetime) -> list[LeaseEvent]:
        """Take up an extension that the engine granted; one that comes too late lapses.

        Too late is also after a reclaim: what it costs was told, and does not grow; and after
        the rest was sold.
        """
        cut = self.stop_at is not None or self.rights.shortened is not None
        if cut or self.over or self.state == "ending" or ends_at <= self.ends_at:
            return []
        return [LeaseExtended(lease_id=self.terms.lease_id, ends_at=ends_at, at=now)]

    def _claimed(self, event: RightsEvent) -> Rights:
        owed = None
        if isinstance(event, ReclaimRequested):
            owed = event.compensation
            if owed is None:
                owed = self.compensation(event.owner_id, asked_at=event.at, stop_at=event.stop_at)
        return self.rights.after(event, owed)

    @classmethod
    def evolve(cls, state: Lease | None, event: LeaseEvent, /) -> Lease:
        """Return the lease after `event`."""
        if isinstance(event, LeaseScheduled):
            assert state is None
            return cls(terms=event, ends_at=event.window.ends_at)
        assert state is not None
        match event:
            case LeaseStarting():
                return replace(state, state="starting")
            case WorkStarted():
                return replace(state, started=state.started | {event.host_id})
            case LeaseActivated():
                running: State = "active" if state.stop_at is None else "reclaiming"
                return replace(state, state=running, progress=state.progress.begun(event.at))
            case WorkStopped():
                return replace(state, stopped=state.stopped | {event.host_id})
            case WorkSaved():
                return replace(state, progress=state.progress.after(event))
            case ReclaimRequested() | LeaseInterrupted():
                stopping: State = "scheduled" if state.state == "scheduled" else "reclaiming"
                return replace(state, state=stopping, rights=state._claimed(event))
            case ExtensionRequested():
                return replace(state, extension_asked=event.ends_at)
            case LeaseExtended():
                return replace(state, ends_at=event.ends_at, extension_asked=None)
            case LeaseShortened():
                ends_at = min(state.ends_at, event.ends_at)
                return replace(state, ends_at=ends_at, rights=state._claimed(event))
            case ResaleListed() | ResaleOpened() | ResaleEnded():
                return replace(state, rights=state._claimed(event))
            case LeaseEnding():
                return replace(
                    state, state="ending", ending_reason=event.reason, ending_at=event.at
                )
            case LeaseClosed():
                return replace(state, state="failed" if event.failed else "closed")
            case _:
                assert_never(event)
