"""What to do, given what the server wants and what runs. Pure: no clock, no I/O.

A deadline (the earlier of `ends_at` and `stop_at`) is when the GPU is free again, for the owner
or for the next lease: so the work is asked to end `grace_seconds` before it, and is killed at it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from .over_share import GRACE_MS_MAX
from .shares import in_the_way
from .wire import Assignment, Phase, VolumeMount

WIND_DOWN_SHARE = 10
TIME_IS_OVER = "the lease's time is over"
ONE_TENANT = (
    "another tenant's work runs on this host, which cannot keep the two apart: "
    "it runs one tenant's work at a time"
)
LEAVES_SOON_MS = 60_000
"""Work that is over by then is waited for; other work is not."""
LATE_GRACE_MS = 5_000
"""Left to work whose deadline passed before it could be asked to end (the agent was down)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the agent keeps of an assignment: enough to stop the work when the server is away.

    notice_ms: between a reclaim and the loss of the GPUs, as it was agreed; None: not told.
    """

    lease_id: UUID
    gpu_uuids: tuple[str, ...]
    starts_ms: int
    ends_ms: int
    phase: Phase
    stop_ms: int | None
    grace_ms: int
    tenant: str = ""
    outputs: tuple[str, ...] = ()
    volumes: tuple[VolumeMount, ...] = ()
    notice_ms: int | None = None

    @property
    def deadline_ms(self) -> int:
        """When the GPUs are free at the latest."""
        return self.ends_ms if self.stop_ms is None else min(self.ends_ms, self.stop_ms)

    @property
    def wind_down_ms(self) -> int:
        """When work is asked to end so that it is gone by the deadline.

        That is `grace_seconds` before it. The end of the lease itself, which work can know from
        its start, takes never more than a tenth of it; a deadline that comes while it runs has
        the whole of it, as it lies within the notice.
        """
        if self.deadline_ms < self.ends_ms:
            return self.deadline_ms - self.grace_ms
        longest_ms = (self.ends_ms - self.starts_ms) // WIND_DOWN_SHARE
        return self.deadline_ms - min(self.grace_ms, longest_ms)

    @classmethod
    def of(cls, assignment: Assignment) -> Terms:
        """Return the terms of an assignment."""
        stop_at = assignment.stop_at
        return cls(
            lease_id=assignment.lease_id,
            gpu_uuids=assignment.gpu_uuids,
            starts_ms=epoch_ms(assignment.starts_at),
            ends_ms=epoch_ms(assignment.ends_at),
            phase=assignment.phase,
            stop_ms=None if stop_at is None else epoch_ms(stop_at),
            grace_ms=assignment.grace_seconds * 1000,
            tenant="" if assignment.tenant is None else str(assignment.tenant),
            outputs=assignment.outputs,
            volumes=assignment.volumes,
            notice_ms=None if (said := assignment.notice_seconds) is None else said * 1000,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One lease as this host knows it.

    listed: the server still names it. startable: its command is known. work: `none` before it was
    started, `ended` for ever after. noticed_ms: the deadline the work was told of. stopping_ms:
    when it was asked to end. apart: its work can run beside that of other tenants. declined: why
    it is not started, though it should be; early: why it ends before the server asks for it; both
    are the owner's hand. over: why it ends for the memory that it holds beyond its share.
    """

    terms: Terms
    listed: bool
    work: Literal["none", "running", "ended"]
    startable: bool = True
    noticed_ms: int | None = None
    stopping_ms: int | None = None
    apart: bool = True
    declined: str = ""
    early: str = ""
    over: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """Start the work."""

    lease_id: UUID


@dataclass(frozen=True, slots=True)
class Notice:
    """Tell the work until when it may run."""

    lease_id: UUID
    stop_at_ms: int


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask the work to end."""

    lease_id: UUID
    reason: str


@dataclass(frozen=True, slots=True)
class Kill:
    """End the work."""

    lease_id: UUID


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Report that the work was never started, and never will be."""

    lease_id: UUID
    reason: str


@dataclass(frozen=True, slots=True)
class TurnAway:
    """Report that the work cannot be started here, beside what runs."""

    lease_id: UUID
    reason: str


@dataclass(frozen=True, slots=True)
class Decline:
    """Report that the owner of the host lets the work not be started."""

    lease_id: UUID
    reason: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove all trace of the lease."""

    lease_id: UUID


Action = Start | Notice | Terminate | Kill | GiveUp | TurnAway | Decline | Forget


def reconcile(leases: Sequence[Held], *, now_ms: int) -> list[Action]:
    """Return what to do now, ends before starts, each lease's actions in their order.

    Asking again with the same state gives the same actions, so each may fail and be tried again.
    """
    actions = [action for held in leases for action in _ending(held, now_ms)]
    leaving = {
        uuid
        for held in leases
        if held.work == "running" and (held.stopping_ms is not None or _reason(held, now_ms))
        for uuid in held.terms.gpu_uuids
    }
    here = [held for held in leases if held.work == "running"]
    for held in leases:
        terms = held.terms
        if held.work != "none" or not held.listed:
            continue
        if held.declined and terms.starts_ms <= now_ms < terms.deadline_ms:
            actions.append(Decline(terms.lease_id, held.declined))
        if held.declined or terms.phase == "stop":
            continue
        if now_ms >= terms.deadline_ms or not held.startable or now_ms < terms.starts_ms:
            continue
        if any(in_the_way(uuid, other) for uuid in terms.gpu_uuids for other in leaving):
            continue
        if others := [each for each in here if not _may_stand_beside(held, each)]:
            if all(_is_about_to_go(each, now_ms) for each in others):
                continue  # as with a GPU that is about to be free
            actions.append(TurnAway(terms.lease_id, ONE_TENANT))
            continue
        actions.append(Start(terms.lease_id))
        here.append(held)
    return actions


def _may_stand_beside(one: Held, other: Held) -> bool:
    """Tell if two works may run at one time; of unknown tenants nobody knows that they are one."""
    same = one.terms.tenant != "" and one.terms.tenant == other.terms.tenant
    return same or (one.apart and other.apart)


def _is_about_to_go(held: Held, now_ms: int) -> bool:
    due_ms = held.terms.deadline_ms
    return held.stopping_ms is not None or due_ms <= now_ms + LEAVES_SOON_MS


def next_due_ms(leases: Iterable[Held], *, now_ms: int) -> int | None:
    """Return the next moment at which time alone changes what there is to do; None: never."""
    return min((due for held in leases for due in _dues(held) if due > now_ms), default=None)


def kill_ms(held: Held) -> int:
    """Return when work that was asked to end is killed: never long after its deadline."""
    assert held.stopping_ms is not None
    asked, terms = held.stopping_ms, held.terms
    if asked < terms.deadline_ms:
        # Meanwhile its neighbours on the card lack the memory.
        grace_ms = min(terms.grace_ms, GRACE_MS_MAX) if held.over else terms.grace_ms
        return min(asked + grace_ms, terms.deadline_ms)
    return asked + min(LATE_GRACE_MS, terms.grace_ms)


def limit_ms(held: Held) -> tuple[int, int]:
    """Return when running work is asked to end and when it is killed, as things stand.

    Its keeper is told, and so does both with the agent dead.
    """
    if held.stopping_ms is not None:
        return held.stopping_ms, kill_ms(held)
    return held.terms.wind_down_ms, held.terms.deadline_ms


def epoch_ms(moment: datetime) -> int:
    """Return whole milliseconds since the epoch, rounded down, without a float on the way."""
    whole = int(moment.replace(microsecond=0).timestamp())
    return whole * 1000 + moment.microsecond // 1000


def _ending(held: Held, now_ms: int) -> Iterator[Action]:
    terms = held.terms
    if held.work == "ended":
        if not held.listed:
            yield Forget(terms.lease_id)
        return
    if held.work == "none":
        if not held.listed:
            yield Forget(terms.lease_id)
        elif now_ms >= terms.deadline_ms or (terms.phase == "stop" and not held.early):
            yield GiveUp(terms.lease_id, "it was to be stopped before it was started")
        return
    reason = _reason(held, now_ms)
    warned = terms.phase == "warn" and held.noticed_ms != terms.deadline_ms
    if warned and held.stopping_ms is None:
        yield Notice(terms.lease_id, terms.deadline_ms)
    if held.stopping_ms is not None:
        if now_ms >= kill_ms(held):
            yield Kill(terms.lease_id)
    elif reason:
        yield Terminate(terms.lease_id, reason)


def _reason(held: Held, now_ms: int) -> str:
    """Return why running work is to be asked to end now; empty: it is not."""
    terms = held.terms
    if held.early and (terms.phase == "stop" or now_ms >= terms.wind_down_ms):
        return held.early
    if terms.phase == "stop":
        return "the server asked for it"
    if not held.listed:
        return "the lease is not this host's any more"
    if now_ms >= terms.wind_down_ms:
        return TIME_IS_OVER
    return held.over


def _dues(held: Held) -> Iterator[int]:
    terms = held.terms
    if held.work == "none":
        yield terms.starts_ms
        yield terms.deadline_ms
    if held.work == "running":
        yield terms.wind_down_ms
        yield terms.deadline_ms
        if held.stopping_ms is not None:
            yield kill_ms(held)
