"""The right to use GPUs from a grant to its end, and everything that can happen to it.

scheduled > starting > active > (reclaiming) > ending > closed | failed. The consumer may close
from any state that is not final; the owner gets the capacity back by the reclaim deadline; time
does the rest (`tick`). No lease ends without a reason (close_reasons.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from types import MappingProxyType

from ledger.domain.ids import HostId
from ledger.domain.refusal import Invalid, Unknown
from ledger.domain.span import Window
from ledger.domain.uptime import ALWAYS_UP, Uptime
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import (
    ExtensionRefused,
    ExtensionRequested,
    FilesAwaited,
    LeaseActivated,
    LeaseClosed,
    LeaseEnding,
    LeaseEvent,
    LeaseExtended,
    LeaseStarting,
    WorkSaved,
    WorkStarted,
    WorkStopped,
)
from marketplace.domain.facts.instants import ONE_SECOND
from marketplace.domain.leases.actions import LEASE_MAX, CheckpointOutOfLease, LeaseTooLong, need
from marketplace.domain.leases.checkpoints import Left
from marketplace.domain.leases.reclaim_schedule import due_from
from marketplace.domain.leases.state import LeaseState, waits_until


@dataclass(frozen=True, slots=True)
class Heard:
    """Since when a host has been heard without a long pause, and when it was heard last."""

    since: datetime
    until: datetime


FILES_WITHIN = timedelta(hours=1)
"""So long may the files and the image of a lease take to come, from when its hosts were asked.
Nobody is charged before its work starts, so the owner's GPUs do not wait for longer."""

Contacts = Mapping[HostId, Heard]


class LeaseUnknown(Unknown):
    """There is no such lease."""


NONE_TOLD: Contacts = MappingProxyType({})
"""Of a host of which nothing is told it is taken that it is heard."""


class ExtensionNotLater(Invalid):
    """An extension must end later than the lease does now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease(LeaseState):
    """One lease, and what may be decided on it."""

    def tick(
        self,
        *,
        now: datetime,
        start_grace: timedelta,
        uptime: Uptime = ALWAYS_UP,
        heard: Contacts = NONE_TOLD,
    ) -> list[LeaseEvent]:
        """Return what time alone has brought about by `now`, all of it, in order.

        However long nobody looked, one call brings a lease to where it belongs.

        uptime: what hosts are given to start or to report in runs only while the market is up.
        heard: the same of each host: what it is given runs only while it is heard.
        """
        events: list[LeaseEvent] = []
        if not self.over and self.state != "ending" and now < self.due_at:
            events += self.rights.opening(tenant_id=self.terms.tenant_id, now=now)
        lease = self._after_all(events)
        while step := lease._next(now, start_grace, uptime, heard):
            events += step
            lease = lease._after_all(step)
        return events

    def _next(
        self, now: datetime, start_grace: timedelta, uptime: Uptime, heard: Contacts
    ) -> Sequence[LeaseEvent]:
        match self.state:
            case "scheduled" if now >= self.due_at:
                return self._end(self._reason_before_start(), self.due_at)
            case "scheduled" if now >= self.starts_at:
                return [LeaseStarting(lease_id=self.terms.lease_id, at=now)]
            case "starting" | "active" | "reclaiming" if now >= self.due_at:
                reason = self._reason_of_due()
                if reason == close_reasons.NEVER_STARTED and self._was_asked_late(
                    start_grace, uptime
                ):
                    reason = close_reasons.MARKET_AWAY
                return self._end(reason, now)
            case "starting" if any(
                self._had_to_start(now, uptime, heard.get(host_id)) >= start_grace
                for host_id in self.hosts - self.started - self.awaiting
            ):
                return self._end(close_reasons.NEVER_STARTED, now)
            case "starting" if self.awaiting - self.started and (
                self._had_to_start(now, uptime) >= max(start_grace, FILES_WITHIN)
            ):
                return self._end(close_reasons.FILES_LATE, now)
            case "ending":
                stops_at = self.stops_at
                wait = waits_until(stops_at, self.due_at, self.grace) - stops_at
                waited = uptime.between(stops_at, now) >= wait
                if self.stopped >= self.started - self._not_waited_for() or waited:
                    return [self._close(now)]
        return []

    def _not_waited_for(self) -> frozenset[HostId]:
        """Return the host that was silent for so long that the lease ends: it answers nothing now.

        What it does after all is fenced, and counts as it would later.
        """
        lost = self.rights.of_host
        if self.ending_reason != close_reasons.HOST_SILENT or lost is None:
            return frozenset()
        return frozenset({lost})

    def _had_to_start(
        self, until: datetime, uptime: Uptime, heard: Heard | None = None
    ) -> timedelta:
        """Return how long a host has had to start the work, and to say so: since it was asked."""
        assert self.starting_at is not None
        if heard is None:
            return uptime.between(self.starting_at, until)
        return uptime.between(max(self.starting_at, heard.since), min(until, heard.until))

    def _was_asked_late(self, start_grace: timedelta, uptime: Uptime) -> bool:
        """Tell if the hosts had less time to start than they are given, by the market's doing."""
        given = min(start_grace, self.due_at - self.starts_at)
        return self._had_to_start(self.due_at, uptime) < given

    def _reason_before_start(self) -> int:
        if self.stop_at is not None and self.stop_at < self.ends_at:
            return self._reason_of_cut(close_reasons.RECLAIMED_BEFORE_START)
        # Only the market's own clock asks hosts to start, so that none was asked is its own doing.
        return close_reasons.MARKET_AWAY

    def _reason_of_cut(self, reclaimed: int) -> int:
        """Return why it stops before its end. reclaimed: where an owner took it back."""
        if self.rights.interrupted:
            return self._reason_of_market()
        if self.rights.taken_back:
            return close_reasons.TAKEN_BACK
        if self.rights.for_maintenance:
            return close_reasons.MAINTENANCE
        return close_reasons.MOVED if self.rights.moves_first else reclaimed

    def _reason_of_due(self) -> int:
        if self.stop_at is not None and self.stop_at <= self.ends_at:
            return self._reason_of_cut(close_reasons.RECLAIMED)
        if self.rights.shortened is not None and self.started:
            return close_reasons.RESOLD
        if self.hosts - self.started - self.awaiting:
            return close_reasons.NEVER_STARTED
        if self.started != self.hosts:
            return close_reasons.FILES_LATE
        refused = self.extension_refused
        if refused is not None and refused.reason in close_reasons.WITHOUT_MONEY:
            return close_reasons.AWAITS_MONEY if refused.pausing else close_reasons.MONEY_SPENT
        return close_reasons.WINDOW_OVER

    def _reason_of_market(self) -> int:
        if self.rights.for_budget:
            return close_reasons.BUDGET_REACHED
        return close_reasons.PAUSED if self.rights.pausing else close_reasons.INTERRUPTED

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
            ended_at=self.right_ends_at,
            of_host=self.rights.of_host,
            compensations=tuple(others),
            kept_seconds=None if left is None else left.kept // ONE_SECOND,
            lost_seconds=None if left is None else -(-left.lost // ONE_SECOND),
        )

    def left(self, now: datetime) -> Left:
        """Return what is safe of the work, and what is lost if it goes on elsewhere."""
        # What a host did after it was heard last is not safe: nobody can fetch it.
        stopped_at = min(now, self.right_ends_at, self.rights.heard_at or now)
        return self.progress.left(
            Window(self.starts_at, self.ends_at),
            stopped_at=stopped_at,
            every_seconds=self.terms.workload.checkpoint_seconds,
        )

    def files_awaited(self, *, host_id: HostId, now: datetime) -> list[LeaseEvent]:
        """Take note that a host brings what the work needs: that is not its being late."""
        known = self.started | self.awaiting
        if self.state != "starting" or host_id in known or host_id not in self.hosts:
            return []
        return [FilesAwaited(lease_id=self.terms.lease_id, host_id=host_id, at=now)]

    def work_started(
        self, *, host_id: HostId, now: datetime, commit: str = "", left_out: Sequence[str] = ()
    ) -> list[LeaseEvent]:
        """Take note that a host started its part; with the last one the lease is active.

        commit: which one its source was resolved to; left_out: what of that did not come.
        """
        if self.over or host_id in self.started or host_id not in self.hosts:
            return []
        events: list[LeaseEvent] = [
            WorkStarted(
                lease_id=self.terms.lease_id,
                host_id=host_id,
                at=now,
                commit=commit,
                left_out=tuple(left_out),
            )
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
        over_share: bool = False,
    ) -> list[LeaseEvent]:
        """Take note that the work on a host is gone.

        occupied: it failed to start because processes of others fill the GPU. over_share: its host
        stopped it, for holding more GPU memory than its share has.
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
            elif over_share:
                reason = close_reasons.OVER_SHARE
            elif exit_code is None:
                # The agent stops work a little before its deadline, so that the GPU is free by it.
                reason = self._reason_of_due()
            elif exit_code == 0:
                reason = close_reasons.WORK_DONE
            else:
                reason = close_reasons.WORK_FAILED
            events += self._end(reason, now)
        lease = self._after_all(events)
        if lease.stopped >= lease.started:
            events.append(lease._close(now))
        return events

    def close(self, *, now: datetime) -> list[LeaseEvent]:
        """Decide whether the consumer may end the lease: always, until it is over.

        Raises: LeaseOver.
        """
        if self.state == "ending":
            return []
        need("end", self, tenant_id=self.terms.tenant_id, now=now)
        return self.abandon(now=now, reason=close_reasons.CLOSED_BY_CONSUMER)

    def abandon(self, *, now: datetime, reason: int) -> list[LeaseEvent]:
        """End a lease at once; where no host has anything running, it is closed, too."""
        if self.over or self.state == "ending":
            return []
        ending = self._end(reason, now)
        idle = self.state == "scheduled"
        return [*ending, *([self._after_all(ending)._close(now)] if idle else [])]

    def _after_all(self, events: Iterable[LeaseEvent]) -> Lease:
        return reduce(Lease.evolve, events, self)

    def ask_extension(self, *, ends_at: datetime, now: datetime) -> list[LeaseEvent]:
        """Decide whether the consumer may ask to go on; the engine decides whether it can be.

        Raises: LeaseOver, ReclaimUnderWay, RestOnSale, ResoldIsFixed, ExtensionNotLater,
            LeaseTooLong.
        """
        need("extend", self, tenant_id=self.terms.tenant_id, now=now)
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

    def refuse_extension(
        self, *, ends_at: datetime, reason: str, now: datetime, pausing: bool = False
    ) -> list[LeaseEvent]:
        """Take note why a lease that goes on by itself cannot: once for each step and reason.

        pausing: its work is asked to save, and waits for money once the lease is over.
        """
        known = self.extension_refused
        if self.over or self.state == "ending" or ends_at <= self.ends_at:
            return []
        if known is not None and (known.ends_at, known.reason) == (ends_at, reason):
            return []
        return [
            ExtensionRefused(
                lease_id=self.terms.lease_id,
                market=self.terms.market,
                ends_at=ends_at,
                reason=reason,
                at=now,
                pausing=pausing,
            )
        ]


def save(
    lease: Lease, *, host_id: HostId | None, safe_at: datetime, now: datetime
) -> list[LeaseEvent]:
    """Take note of a checkpoint; one that is not later than the last changes nothing.

    A host reports late and by another clock: what it says counts as far as it can be.

    Args:
        host_id: None: the consumer says so.

    Raises: LeaseOver, CheckpointOutOfLease; neither of them where a host reports.
    """
    if host_id is None:
        need("checkpoint", lease, tenant_id=lease.terms.tenant_id, now=now)
        if not lease.starts_at <= safe_at <= now:
            raise CheckpointOutOfLease(since=lease.starts_at, until=now)
    elif lease.over or host_id not in lease.started or safe_at < lease.starts_at:
        return []
    safe_at = min(safe_at, now)
    if not lease.progress.is_news(host_id, safe_at):
        return []
    return [WorkSaved(lease_id=lease.terms.lease_id, host_id=host_id, safe_at=safe_at, at=now)]
